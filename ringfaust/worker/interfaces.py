"""What a task needs from its surroundings: a clock, a store, a producer and a consumer.

The worker implements these over asyncio, RocksDB and Kafka. The simulator in `tests/sim` implements
them over plain values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.errors import RingfaustError
from ringfaust.kafka.topic_ids import TopicIds
from ringfaust.processor.outbox import Outputs
from ringfaust.processor.row_store import KeyValue
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.worker.consumer_thread import Batch, Progress


class InputChanged(KafkaError):  # type: ignore[misc]
    """An input topic may have been deleted, created again or cut: its positions may be wrong."""


class CancelledByNobody(RingfaustError):
    """A Kafka client has let out a cancellation of its own, so a partition would never be served.

    What to do: start the worker again. Nothing is lost; it continues where it was.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: cancelled by the Kafka client. Start the worker again")


class StateLost(RingfaustError):
    """State that the rings need is missing. Nothing was changed.

    What to do: the message names what is missing, and how to continue without it.
    """


class WorkerClock(Protocol):
    """The only source of time for tasks."""

    @property
    def is_right(self) -> bool:
        """Whether the clock agrees with the brokers', as far as is known (R115)."""

    def wall_ms(self) -> int:
        """The time in ms since 1970."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Raise TimeoutError in the block after `seconds`; None: never."""


class PartitionStore(KeyValue, Protocol):
    """The state of one partition on disk."""

    path: Path

    @property
    def applied(self) -> tuple[int, int]:
        """The changelog offset after the last applied row, and when the changelog ended there.

        The offset is 0 for a new store. The time is in ms since 1970.
        """

    def apply(
        self, writes: Iterable[tuple[bytes, bytes | None]], next_offset: int, now_ms: int
    ) -> None:
        """Put and delete rows in order, and store `applied` with them, atomically."""

    def close(self) -> None:
        """Close it."""

    def wipe(self) -> None:
        """Close it and delete its files."""

    def set_aside(self, why: str) -> None:
        """Close it and rename its folder, which is not used again.

        Args:
            why: what is wrong with it, as the end of a sentence.
        """


class TaskProducer(Protocol):
    """The transactional producer of one task."""

    async def start(self) -> None:
        """Connect, fence an earlier owner, and settle the transaction that it left open."""

    async def stop(self) -> None:
        """Disconnect."""

    def new_batches(self) -> RecordBatches:
        """An empty container for the records of one topic."""

    def begin_next(self, outputs: Collection[tuple[Role, int | None]]) -> None:
        """Begin the next transaction, which will write these, while one is being committed."""

    async def commit(
        self,
        outputs: Outputs[RecordBatches],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        note: str = "",
    ) -> int:
        """Commit everything in one transaction. Returns the changelog offset after `writes`."""


class ChangelogConsumer(Protocol):
    """The part of `AIOKafkaConsumer` that replays a changelog."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Choose what to read."""

    async def beginning_offsets(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each."""

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last committed record of each."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read from there."""

    async def position(self, partition: TopicPartition) -> int:
        """The next offset to read."""

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[FetchedRecord]]:
        """The next records."""


class InputReader(Protocol):
    """The part of `BatchConsumer` that tasks use."""

    def pause(self, tp: TP) -> None:
        """Stop fetching `tp` until `resume`. One batch that is already fetched may still come."""

    def resume(self, tp: TP) -> None:
        """Fetch `tp` again."""

    def pause_until_seek(self, tp: TP) -> None:
        """Stop fetching `tp` until `seek`, whatever `resume` does."""

    async def seek(self, partition: TP, offset: int) -> None:
        """Continue at `offset`. Batches fetched before are no longer current.

        Raises:
            aiokafka.errors.IllegalStateError: the partition is no longer assigned.
        """

    def is_current(self, batch: Batch) -> bool:
        """Whether `batch` was fetched after the last assignment and seek of its partition."""

    async def progress(self, tp: TP) -> Progress | None:
        """How far `tp` has been read; None if it is not assigned."""

    def rejoin(self) -> None:
        """Have the group assign the partitions again."""


class CommitSlot(Protocol):
    """Runs commits, at most one at a time."""

    @property
    def is_running(self) -> bool:
        """Whether a commit is in flight."""

    @property
    def is_done(self) -> bool:
        """Whether a submitted commit has ended that nobody has waited for."""

    def submit(self, commit: Coroutine[Any, Any, None], on_done: Callable[[], None]) -> None:
        """Start a commit. Calls `on_done` when it has ended."""

    async def wait(self) -> None:
        """Wait until no commit is in flight. Raises the error of the last one, once."""

    async def wait_or(self, arrived: asyncio.Event) -> None:
        """Wait until the commit in flight has ended, or until `arrived` is set.

        `arrived`: what `on_done` of the commit sets.
        """

    async def cancel(self) -> None:
        """Abandon the commit in flight."""


class Bounds(NamedTuple):
    """The committed log of a topic's partition as it is now."""

    begin: int
    """The first offset that still exists."""
    end: int
    """The offset after the last committed record."""
    topic_id: str = ""
    """Empty if the brokers are too old to know it."""


class CommittedOffset(NamedTuple):
    """An offset that the consumer group has committed."""

    offset: int
    note: str = ""
    """What the task that committed it has noted: see `repartition_note`, `changelog_note`."""

    @property
    def is_repartitioned(self) -> bool:
        """Whether a repartition task has committed it."""
        return self.note.startswith(_REPARTITIONED)

    @property
    def topic_id(self) -> str:
        """The id of the topic that it belongs to; empty if it is not known."""
        return self.note.removeprefix(_REPARTITIONED) if self.is_repartitioned else ""

    @property
    def changelog_id(self) -> str:
        """The id of the changelog with the state that belongs to it; empty if it is not known."""
        return self.note.removeprefix(_CHANGELOG) if self.note.startswith(_CHANGELOG) else ""


_REPARTITIONED, _CHANGELOG = "repartitioned ", "changelog "


def repartition_note(topic_id: str) -> str:
    """What a repartition task notes with its offsets."""
    return _REPARTITIONED + topic_id


def changelog_note(topic_id: str) -> str:
    """What a task with a store notes with its offsets.

    Args:
        topic_id: of the changelog; empty if the brokers are too old to know it.
    """
    return _CHANGELOG + topic_id if topic_id else ""


class LogEnd(NamedTuple):
    """Where a log ends, open transactions included, as the brokers last answered."""

    asked_ms: int
    """When they were asked. All that they accepted before is before `offset`."""
    since_ms: int
    """Since when they have answered without a pause."""
    offset: int


OpenStore = Callable[[Mapping[str, CommittedOffset]], Awaitable[PartitionStore | None]]
"""Opens the store of a task, given the group's offsets by topic."""
GroupOffsets = Callable[[Iterable[TP]], Awaitable[Mapping[TP, CommittedOffset]]]
"""Reads the offsets that the consumer group has committed."""
ReadTopicIds = Callable[[Collection[str]], Awaitable[TopicIds]]
"""Reads the ids of the cluster and of topics."""
ReadBounds = Callable[[Iterable[TP]], Awaitable[Mapping[TP, Bounds]]]
"""Reads the bounds of each partition."""
