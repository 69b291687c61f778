"""One batch, one Kafka transaction: changelog, outputs and input offsets, all or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, ProducerFenced
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

from ringfaust.kafka.names import worker_group
from ringfaust.processor.processor import Outputs
from ringfaust.protocol.records import OutRecord, Role

BATCH_BYTES = 1_000_000
"""Size at which a record batch is closed; topics of ours take twice as much."""

_RETRY_MS = 5
_AWAY_FIRST_S = 0.05
_AWAY_MOST_S = 1.0


class Backoff:
    """Tries a broker that is away less and less often, up to once a second.

    The client itself tries again after milliseconds, as suits a coordinator that is busy: with a
    producer for each partition that is thousands of connections a second while a broker restarts.
    """

    def __init__(self, ready: Callable[..., Awaitable[bool]]) -> None:
        """`ready`: the client's own, which connects to a broker if need be."""
        self._ready = ready
        self._wait_s: dict[int, float] = {}

    async def ready(self, node_id: int, **options: Any) -> bool:
        """Can the broker be reached? A no takes its time."""
        if await self._ready(node_id, **options):
            self._wait_s.pop(node_id, None)
            return True
        wait_s = self._wait_s.get(node_id, _AWAY_FIRST_S)
        self._wait_s[node_id] = min(2 * wait_s, _AWAY_MOST_S)
        await asyncio.sleep(wait_s)
        return False


class RecordBatches:
    """Records on their way to one topic, packed into Kafka's record batches as they come.

    So no record is kept as Python objects until the commit: made and packed while it is in the
    processor's cache, an evicted record costs half of what it costs to gather and pack later.
    """

    __slots__ = ("_append", "_create", "_now_ms", "builders")

    def __init__(self, create: Callable[[], BatchBuilder]) -> None:
        self._create = create
        self._now_ms = 0
        """Time of the first record: the place for it was made when the last batch left, long ago
        perhaps, and retention goes by this."""
        self.builders = [create()]
        self._append = self.builders[0].append

    def __len__(self) -> int:
        return sum(builder.record_count() for builder in self.builders)

    def append(self, record: OutRecord, /) -> None:
        """Pack one more."""
        key, value, headers = record
        if not self._now_ms:
            self._now_ms = time.time_ns() // 1_000_000
        if self._append(timestamp=self._now_ms, key=key, value=value, headers=headers) is None:
            self.builders.append(self._create())
            self._append = self.builders[-1].append
            self._append(timestamp=self._now_ms, key=key, value=value, headers=headers)


class Committer:
    """The transactional producer of one partition; its id fences whoever had that before."""

    def __init__(
        self,
        application: str,
        partition: int,
        topics: Mapping[str, str],
        client: Mapping[str, Any],
        transactional_id: str,
    ) -> None:
        """Connect to nothing yet.

        Args:
            application: whose group the offsets are committed for.
            partition: of the inputs, and of the outputs that name no other.
            topics: ours, by role.
            client: options of any Kafka client.
            transactional_id: whoever starts with it fences an earlier owner.
        """
        self._group = worker_group(application)
        self._partition = partition
        self._topics = topics
        self._producer = AIOKafkaProducer(
            **client,
            transactional_id=transactional_id,
            acks="all",
            max_batch_size=BATCH_BYTES,
            # A transaction that begins just after another finds the coordinator busy with it.
            retry_backoff_ms=_RETRY_MS,
            max_request_size=2 * BATCH_BYTES,
        )
        kafka: Any = self._producer.client
        kafka.ready = Backoff(kafka.ready).ready

    async def start(self) -> None:
        """Connect, and end whatever an earlier owner left open."""
        await self._producer.start()

    async def stop(self) -> None:
        """Disconnect. A transaction that is open then is never committed."""
        await self._producer.stop()

    def gather(self) -> RecordBatches:
        """An empty place for the records of one topic."""
        return RecordBatches(self._producer.create_batch)

    async def commit(
        self,
        outputs: Outputs[RecordBatches],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
    ) -> int:
        """Write all of it as one. Returns the changelog offset after the writes, if there are any.

        Args:
            outputs: what the road gave.
            writes: rows for the changelog.
            offsets: by input topic: the next offset to read.

        Raises:
            KafkaError: nothing is known of the outcome; open the partition anew.
        """
        try:
            return await self._commit(outputs, writes, offsets)
        except (AssertionError, IllegalOperation) as error:
            # How aiokafka says that it was fenced between two calls.
            raise ProducerFenced(f"the producer cannot go on: {error}") from error

    async def _commit(
        self,
        outputs: Outputs[RecordBatches],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
    ) -> int:
        producer = self._producer
        await producer.begin_transaction()
        sent = []
        for (role, partition), batches in outputs.items():
            sent += await self._send(role, partition, batches)
        changelog = self.gather()
        for key, value in writes:
            changelog.append((key, value, []))
        if writes:
            sent += await self._send(Role.CHANGELOG, None, changelog)
        if offsets:
            await producer.send_offsets_to_transaction(
                {TopicPartition(topic, self._partition): at for topic, at in offsets.items()},
                self._group,
            )
        # aiokafka would commit a transaction one of whose batches was refused, without that batch.
        written = await asyncio.gather(*sent)
        await producer.commit_transaction()
        return int(written[-1].offset + changelog.builders[-1].record_count()) if writes else 0

    async def _send(
        self, role: Role, partition: int | None, batches: RecordBatches
    ) -> list[asyncio.Future[RecordMetadata]]:
        where = self._partition if partition is None else partition
        topic = self._topics[role]
        sent = []
        for builder in batches.builders:
            future = await self._producer.send_batch(builder, topic, partition=where)
            future.add_done_callback(_look_at)
            sent.append(future)
        return sent


def _look_at(future: asyncio.Future[RecordMetadata]) -> None:
    """If the commit fails before it waits for this, nobody else asks how it ended."""
    if not future.cancelled():
        future.exception()
