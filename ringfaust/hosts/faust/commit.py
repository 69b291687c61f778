"""One batch, one Kafka transaction: changelog, outputs and input offsets, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalStateError
from aiokafka.structs import RecordMetadata

from ringfaust.wire.record import OutRecord

BATCH_BYTES = 1_000_000
"""Size at which a record batch is closed; topics of ours take twice as much."""

Entry = tuple[bytes | None, bytes | None, Any]
"""key, value, headers"""


class Committer:
    """The transactional producer of one partition; its id fences whoever had that before."""

    def __init__(
        self, application: str, partition: int, changelog_topic: str, client: Mapping[str, Any]
    ) -> None:
        """`client`: options of any Kafka client."""
        self._group = application
        self._partition = partition
        self._changelog_topic = changelog_topic
        self._producer = AIOKafkaProducer(
            **client,
            transactional_id=f"{application}-{partition}",
            acks="all",
            max_batch_size=BATCH_BYTES,
            max_request_size=2 * BATCH_BYTES,
        )

    async def start(self) -> None:
        """Connect, and end whatever an earlier owner left open."""
        await self._producer.start()

    async def stop(self) -> None:
        """Disconnect. A transaction that is open then is never committed."""
        await self._producer.stop()

    async def commit(
        self,
        outputs: Mapping[tuple[str, int], list[Entry]],
        writes: Iterable[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        now_ms: int,
    ) -> int:
        """Write all of it as one. Returns the changelog offset after the writes.

        Args:
            outputs: entries by (topic, partition), in order.
            writes: rows for the changelog; never none.
            offsets: by input topic: the next offset to read.
            now_ms: timestamp of what is written.

        Raises:
            KafkaError: nothing is known of the outcome; open the partition anew.
        """
        try:
            return await self._commit(outputs, writes, offsets, now_ms)
        except AssertionError as error:  # how aiokafka says that it was fenced between two calls
            raise IllegalStateError(f"the producer cannot go on: {error}") from error

    async def _commit(
        self,
        outputs: Mapping[tuple[str, int], list[Entry]],
        writes: Iterable[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        now_ms: int,
    ) -> int:
        producer = self._producer
        await producer.begin_transaction()
        sent = []
        for (topic, partition), entries in outputs.items():
            sent += await self._send(topic, partition, entries, now_ms)
        changelog: list[Entry] = [(key, value, ()) for key, value in writes]
        logged = await self._send(self._changelog_topic, self._partition, changelog, now_ms)
        if offsets:
            await producer.send_offsets_to_transaction(
                {TopicPartition(topic, self._partition): at for topic, at in offsets.items()},
                self._group,
            )
        # aiokafka would commit a transaction one of whose batches was refused, without that batch.
        *_, last = await asyncio.gather(*(future for future, _ in sent + logged))
        await producer.commit_transaction()
        return int(last.offset) + logged[-1][1]

    async def _send(
        self, topic: str, partition: int, entries: list[Entry], now_ms: int
    ) -> list[tuple[asyncio.Future[RecordMetadata], int]]:
        """Hand over as few record batches as hold the entries: (future, number of records) each."""
        sent = []
        builder = self._producer.create_batch()
        for key, value, headers in entries:
            if (
                builder.append(timestamp=now_ms, key=key, value=value, headers=list(headers))
                is None
            ):
                count = builder.record_count()
                sent.append(
                    (await self._producer.send_batch(builder, topic, partition=partition), count)
                )
                builder = self._producer.create_batch()
                builder.append(timestamp=now_ms, key=key, value=value, headers=list(headers))
        count = builder.record_count()
        sent.append((await self._producer.send_batch(builder, topic, partition=partition), count))
        return sent


def by_topic(
    outputs: Iterable[OutRecord], topics: Mapping[str, str], partition: int
) -> dict[tuple[str, int], list[Entry]]:
    """The outputs by (topic, partition), each in order. `topics`: name by role."""
    found: dict[tuple[str, int], list[Entry]] = {}
    for role, key, value, headers, where in outputs:
        target = (topics[role], partition if where is None else where)
        found.setdefault(target, []).append((key, value, headers))
    return found
