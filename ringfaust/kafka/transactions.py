"""One batch is one Kafka transaction: changelog, outputs and input offsets, all or nothing.

After a commit, the coordinator is busy for some milliseconds: it writes the markers that end the
transaction. Until then it refuses the next one of the same producer. So two producers take turns.
While one commits, the other may already tell the coordinator which partitions it is going to write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from ringfaust.kafka.names import partition_transactional_id, second_transactional_id, worker_group
from ringfaust.kafka.packed_batch import PackedBatch
from ringfaust.kafka.vendor import retry_soon, use_backoff
from ringfaust.processor.outbox import Outputs
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import Role
from ringfaust.transactional.vendor import FAILED_BETWEEN_CALLS, begin_early
from ringfaust.transactional.writer import Offsets, Sent, TransactionalWriter

BATCH_BYTES = 1_000_000
"""Size at which a record batch is closed. Ringfaust's topics accept twice as much."""

_RETRY_MS = 3


class TransactionalProducer:
    """The transactional producer of one partition; starting it fences an earlier owner.

    It is two writers that take turns. A transaction begins after the one before it was committed,
    so their order is that of one producer.
    """

    def __init__(
        self,
        application: str,
        partition: int,
        topics: Mapping[str, str],
        client: Mapping[str, Any],
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
    ) -> None:
        """Connect to nothing yet.

        Args:
            application: the consumer group for which offsets are committed.
            partition: of the inputs, and of the outputs that name no other.
            topics: names of ringfaust's topics by role.
            client: options of any Kafka client.
            transactional_id: starting with it fences an earlier owner. The second producer has
                an id of its own, see `second_transactional_id`.
            timeout_ms: the brokers abort a transaction that takes longer.
        """
        self._group = worker_group(application)
        self._partition = partition
        self._topics = topics
        retry_soon(_RETRY_MS / 1000)
        self._writers = deque[TransactionalWriter]()
        """The first has the next turn."""
        self._is_committing = False
        """From the start of a commit until it has succeeded: for good, if it fails."""
        self._is_begun = False
        """Whether `begin_next` has begun a transaction that no commit has taken yet."""
        self._recent: list[tuple[Role, int | None]] = []
        """What the last transaction has written in this partition."""
        for name in (transactional_id, second_transactional_id(transactional_id)):
            writer = TransactionalWriter(
                client,
                name,
                transaction_timeout_ms=timeout_ms,
                max_batch_size=BATCH_BYTES,
                # A transaction that begins right after another finds the coordinator still busy.
                retry_backoff_ms=_RETRY_MS,
                max_request_size=2 * BATCH_BYTES,
            )
            use_backoff(writer.producer)
            self._writers.append(writer)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect, and abort the transactions that an earlier owner left open.

        Both at the same time, because nobody serves the partition meanwhile. The earlier owner may
        commit once more before its second producer is fenced, too. So the state must be read after
        this.
        """
        started = [writer.start() for writer in self._writers]
        # Waits for both, even if one fails: a client that is still starting cannot be stopped.
        for error in await asyncio.gather(*started, return_exceptions=True):
            if error is not None:
                raise error

    async def stop(self) -> None:
        """Disconnect. An open transaction is never committed."""
        if self._is_begun and not self._is_committing:
            with suppress(*FAILED_BETWEEN_CALLS, KafkaError, TimeoutError):
                await self._writers[0].abort()
        await asyncio.gather(*(writer.stop() for writer in self._writers))

    def new_batches(self) -> RecordBatches:
        """An empty container for the records of one topic."""
        return RecordBatches(BATCH_BYTES)

    @property
    def begins_early(self) -> bool:
        """Whether `begin_next` saves anything: a commit runs, and the next must ask to begin."""
        return self._is_committing and not self._writers[1].adds_by_itself

    def begin_next(self, outputs: Collection[tuple[Role, int | None]]) -> None:
        """Begin the next transaction while one is being committed: that saves it a round trip.

        Only if `begins_early`. May be called again, for further topics. The transaction is empty
        until `commit`: if this one fails, nothing is ever written in that one.

        What the last transaction has written is most likely written again, so it is added, too:
        adding it later would take two more requests, another addition and another write.

        Args:
            outputs: what it is going to write: roles, and partitions as in `commit`.
        """
        self._is_begun = True
        likely = {*outputs, *self._recent}
        begin_early(self._writers[1].producer, [self._target(*output) for output in likely])

    async def commit(
        self,
        outputs: Outputs[RecordBatches],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        metadata: str = "",
    ) -> int:
        """Commit everything in one transaction.

        Args:
            outputs: records of the processor.
            writes: rows for the changelog.
            offsets: by input topic: the next offset to read.
            metadata: committed with the offsets, for the next owner.

        Returns:
            The changelog offset after `writes`; 0 if there are none.

        Raises:
            KafkaError: the outcome is unknown; stop this producer and start another (R117).
            Exception: any other error is a programming error, here or in the Kafka client.
        """
        self._is_committing = True
        is_begun, self._is_begun = self._is_begun, False
        changelog = self.new_batches()
        changelog.append_rows(writes)
        written = dict(outputs)
        if writes:
            written[Role.CHANGELOG, None] = changelog
        positions = {topic: OffsetAndMetadata(at, metadata) for topic, at in offsets.items()}
        last = await self._writers[0].commit_batches(
            [
                (*self._target(*where), [PackedBatch(each) for each in part.batches])
                for where, part in written.items()
            ],
            self._offsets(positions),
            self._group,
            is_begun=is_begun,
        )
        self._is_committing = False
        self._recent = [(role, None) for role, partition in written if partition is None]
        self._writers.rotate()
        return last[-1] + changelog.batches[-1].count if writes else 0

    async def commit_rows(
        self, rows: Iterable[tuple[bytes, bytes | None]], offsets: Callable[[], Mapping[str, int]]
    ) -> None:
        """Commit any number of changelog rows in one transaction, without collecting them.

        Args:
            rows: the next one is taken when there is room for it.
            offsets: called after the last row; returns by input topic the next offset to read.

        Raises:
            KafkaError: the outcome is unknown; stop this producer and start another (R117).
        """
        done: dict[TopicPartition, OffsetAndMetadata | int] = {}
        where = self._target(Role.CHANGELOG, None)

        async def send(packed: RecordBatches) -> Sent:
            each = ((*where, PackedBatch(batch)) for batch in packed.batches)
            return await self._writers[0].send_batches(each)

        async def produce() -> Sent:
            packed = self.new_batches()
            for key, value in rows:
                packed.append((key, value, []))
                if len(packed.batches) > 1:
                    await asyncio.gather(*await send(packed))
                    packed = self.new_batches()
            sent = await send(packed) if len(packed) else []
            done.update(self._offsets(offsets()))
            return sent

        await self._writers[0].commit(produce, done, self._group)

    def _target(self, role: Role, partition: int | None) -> TopicPartition:
        number = self._partition if partition is None else partition
        return TopicPartition(self._topics[role], number)

    def _offsets(self, positions: Mapping[str, OffsetAndMetadata] | Mapping[str, int]) -> Offsets:
        return {TopicPartition(topic, self._partition): at for topic, at in positions.items()}


async def commit_changelog(
    client: Mapping[str, Any],
    application: str,
    changelog: str,
    partition: int,
    rows: Sequence[tuple[bytes, bytes | None]],
) -> int:
    """Commit rows of a partition's changelog alone. A worker that has the partition is shut out.

    Returns:
        The offset after them. Readers may see them a little later.

    Raises:
        KafkaError: the brokers failed, or a worker has opened the partition meanwhile.
    """
    name = partition_transactional_id(application, partition)
    topics: dict[str, str] = {Role.CHANGELOG: changelog}
    async with TransactionalProducer(application, partition, topics, client, name) as producer:
        return await producer.commit({}, rows, {})
