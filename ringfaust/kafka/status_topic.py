"""The status topic as a worker uses it: an ordinary producer, and a consumer now and then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from ringfaust.errors import RingfaustError
from ringfaust.kafka.reader import read_to_end
from ringfaust.kafka.vendor import use_backoff
from ringfaust.transactional.clients import connected
from ringfaust.transactional.vendor import stop_client

StatusRow = tuple[bytes, bytes | None]
"""Key and value; None removes the row."""

_BATCH_BYTES = 256 * 1024
_TIMEOUT_MS = 10_000
_READ_RECORDS = 200
"""Records that are read at a time: their decoding takes about 2 ms."""


class NoStatusTopic(RingfaustError):
    """The status topic does not exist, or has too few partitions, or may not be seen."""


class StatusTopic:
    """Writes and reads rows. Everything raises `KafkaError` if the brokers fail."""

    def __init__(self, client: Mapping[str, Any], topic: str, partitions: int) -> None:
        """Connect to nothing yet.

        Args:
            client: options of any Kafka client.
            topic: its name.
            partitions: how many it must have.
        """
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect for writing.

        Raises:
            NoStatusTopic: it cannot be used.
        """
        self._producer = AIOKafkaProducer(
            **self._client,
            acks=1,
            compression_type="lz4",
            max_batch_size=_BATCH_BYTES,
            request_timeout_ms=_TIMEOUT_MS,
        )
        use_backoff(self._producer)
        await self._producer.start()
        known = await self._producer.client.fetch_all_metadata()
        found = len(known.partitions_for_topic(self._topic) or ())
        if found < self._partitions:
            what = f"has only {found} partitions" if found else "does not exist"
            raise NoStatusTopic(
                f"topic {self._topic} {what}, or this worker may not see it. "
                "`ringfaust topics create` creates a missing topic"
            )

    async def stop(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_client(producer)

    async def write(self, partition: int, rows: Sequence[StatusRow]) -> None:
        """Write rows in order. Returns when the brokers have them."""
        assert self._producer is not None
        batch = self._producer.create_batch()
        for key, value in rows:
            while batch.append(timestamp=None, key=key, value=value) is None:
                await self._send(batch, partition)
                batch = self._producer.create_batch()
        await self._send(batch, partition)

    async def _send(self, batch: Any, partition: int) -> None:
        assert self._producer is not None
        batch.close()
        await (await self._producer.send_batch(batch, self._topic, partition=partition))

    async def read(self, partitions: Collection[int]) -> AsyncIterator[tuple[int, list[StatusRow]]]:
        """Yield the rows that exist now, as they come: partition and rows, later ones last."""
        consumer = AIOKafkaConsumer(
            **self._client, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        tps = [TopicPartition(self._topic, number) for number in partitions]
        async with connected(consumer):
            consumer.assign(tps)
            begins = await consumer.beginning_offsets(tps)
            ends = await consumer.end_offsets(tps)
            for tp, begin in begins.items():
                consumer.seek(tp, begin)
            left = {tp: end for tp, end in ends.items() if end > begins[tp]}
            async for records in read_to_end(consumer, left, _READ_RECORDS):
                yield records[0].partition, [(each.key, each.value) for each in records]
