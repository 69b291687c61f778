"""One batch, one Kafka transaction: changelog, outputs and input offsets, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalStateError
from aiokafka.structs import RecordMetadata

from ringfaust.hosts.road import Outputs
from ringfaust.wire.record import OutRecord, Role

BATCH_BYTES = 1_000_000
"""Size at which a record batch is closed; topics of ours take twice as much."""

_RETRY_MS = 5


class Committer:
    """The transactional producer of one partition; its id fences whoever had that before."""

    def __init__(
        self, application: str, partition: int, topics: Mapping[str, str], client: Mapping[str, Any]
    ) -> None:
        """`topics`: ours, by role. `client`: options of any Kafka client."""
        self._group = application
        self._partition = partition
        self._topics = topics
        self._producer = AIOKafkaProducer(
            **client,
            transactional_id=f"{application}-{partition}",
            acks="all",
            max_batch_size=BATCH_BYTES,
            # A transaction that begins just after another finds the coordinator busy with it.
            retry_backoff_ms=_RETRY_MS,
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
        outputs: Outputs,
        writes: Iterable[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        now_ms: int,
    ) -> int:
        """Write all of it as one. Returns the changelog offset after the writes.

        Args:
            outputs: what the road gave.
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
        outputs: Outputs,
        writes: Iterable[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        now_ms: int,
    ) -> int:
        producer = self._producer
        await producer.begin_transaction()
        sent = []
        for (role, partition), records in outputs.items():
            sent += await self._send(role, partition, records, now_ms)
        changelog: list[OutRecord] = [(key, value, []) for key, value in writes]
        logged = await self._send(Role.CHANGELOG, None, changelog, now_ms)
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
        self, role: Role, partition: int | None, records: list[OutRecord], now_ms: int
    ) -> list[tuple[asyncio.Future[RecordMetadata], int]]:
        """Hand over as few record batches as hold them: (future, number of records) each."""
        topic = self._topics[role]
        where = self._partition if partition is None else partition
        sent = []
        builder = self._producer.create_batch()
        for key, value, headers in records:
            if builder.append(timestamp=now_ms, key=key, value=value, headers=headers) is None:
                count = builder.record_count()
                sent.append(
                    (await self._producer.send_batch(builder, topic, partition=where), count)
                )
                builder = self._producer.create_batch()
                builder.append(timestamp=now_ms, key=key, value=value, headers=headers)
        count = builder.record_count()
        sent.append((await self._producer.send_batch(builder, topic, partition=where), count))
        return sent
