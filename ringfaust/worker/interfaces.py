"""What a task needs: its work, and a clock, a store, a producer and a consumer around it.

The worker implements these over asyncio, RocksDB and Kafka. The simulator in `tests/sim` implements
them over plain values.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.errors import ProtocolError, RingfaustError
from ringfaust.kafka.offsets import CommittedOffset
from ringfaust.kafka.topic_ids import TopicIds
from ringfaust.processor.outbox import Activity, Outputs
from ringfaust.processor.processor import Writes
from ringfaust.processor.row_store import KeyValue
from ringfaust.protocol.control import OrderRecord
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role


class InputChanged(KafkaError):  # type: ignore[misc]
    """An input topic may have been deleted, created again or cut: its positions may be wrong."""


class StopsWorker(RingfaustError):
    """What is wrong concerns the whole worker, its configuration or its machine, so it stops."""


class CancelledByNobody(StopsWorker):
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
        self, writes: Iterable[tuple[bytes, bytes | None]], next_offset: int, now_ms: int,
        *, is_only_copy: bool = False,
    ) -> None:  # fmt: skip
        """Put and delete rows in order, and store `applied` with them, atomically.

        `is_only_copy`: they have what the changelog lacks, which should survive a kill (R82).
        """

    def close(self) -> None:
        """Close it."""

    def wipe(self) -> None:
        """Close it and delete its files."""

    def set_aside(self, why: str) -> None:
        """Close it and rename its folder; `why`: what is wrong, as the end of a sentence."""


class TaskProducer(Protocol):
    """The transactional producer of one task."""

    async def start(self) -> None:
        """Connect, fence an earlier owner, and settle the transaction that it left open."""

    async def stop(self) -> None:
        """Disconnect."""

    def new_batches(self) -> RecordBatches:
        """An empty container for the records of one topic."""

    @property
    def begins_early(self) -> bool:
        """Whether `begin_next` would save anything now."""

    def begin_next(self, outputs: Collection[tuple[Role, int | None]]) -> None:
        """Begin the next transaction, which will write these, while one is being committed."""

    async def commit(
        self,
        outputs: Outputs[RecordBatches],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        metadata: str = "",
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


class StandbyConsumer(ChangelogConsumer, Protocol):
    """The part of `AIOKafkaConsumer` that follows changelogs."""

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The offset after the last record of `partition` that was committed, as last heard."""

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When that was heard, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one fetch from one partition, in offset order.

    It is empty if the consumer has passed nothing but aborted records: the position moves on, so
    that nobody sees a lag where nothing is left to read. `generation` changes with every assignment
    and every seek of the partition; see `BatchConsumer.is_current`.
    """

    tp: TP
    records: Sequence[FetchedRecord]
    generation: int
    next_offset: int
    """Where the next fetch begins: transaction markers may be in between."""


class ReadPosition(NamedTuple):
    """How far a partition has been read."""

    next_offset: int
    """The next offset to fetch; it moves past transaction markers too."""
    fetched: int
    """The offset after the last record that the client has returned; 0 if there was none."""


class InputReader(Protocol):
    """The part of `BatchConsumer` that tasks use."""

    def pause(self, tp: TP) -> None:
        """Stop delivering `tp` until `resume`. One batch that is already fetched may still come."""

    def resume(self, tp: TP) -> None:
        """Deliver `tp` again."""

    def pause_until_seek(self, tp: TP) -> None:
        """Stop delivering `tp` until `seek`, whatever `resume` does."""

    async def seek(self, partition: TP, offset: int) -> None:
        """Continue at `offset`. Batches fetched before are no longer current.

        Raises:
            aiokafka.errors.IllegalStateError: the partition is no longer assigned.
        """

    def is_current(self, batch: Batch) -> bool:
        """Whether `batch` was fetched after the last assignment and seek of its partition."""

    def read_position(self, tp: TP) -> ReadPosition | None:
        """How far `tp` has been read; None while it is not read."""

    def stop_reading(self, tps: Collection[TP]) -> None:
        """Read `tps` no more, until they are sought again. Their batches are no longer current."""

    def rejoin(self) -> None:
        """Have the group assign the partitions again."""

    def change_topics(self, topics: frozenset[str]) -> None:
        """Take part in the group with these topics from now on. What is read stays."""

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, as far as the client knows; 0: it does not exist."""

    async def end_membership(self) -> None:
        """Take part in the group no more, and read on."""

    async def prove_membership(self, *, is_fenced: bool) -> None:
        """Wait until the group cannot have given this worker's partitions to another one (R126).

        A heartbeat proves that for a while: the group has confirmed that the worker is a member.

        Args:
            is_fenced: somebody else has opened a partition, so only a new heartbeat proves it.
        """


class OrderReader(Protocol):
    """Reads what operators order a partition that has stopped to do (R123)."""

    async def next(self, unit: str) -> OrderRecord:
        """The next order for the unit."""

    async def answer(self, order: OrderRecord, refused: str = "") -> None:
        """Answer the operator who gave the order. `refused`: why it was not carried out."""

    async def close(self) -> None:
        """Disconnect."""


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


class LogEnd(NamedTuple):
    """Where a log ends, open transactions included, as the brokers last answered."""

    asked_ms: int
    """When they were asked. All that they accepted before is before `offset`."""
    since_ms: int
    """Since when they have answered without a pause."""
    offset: int


class PendingCommit(NamedTuple):
    """What one cycle has decided, to be committed in one transaction."""

    outputs: Outputs[RecordBatches]
    writes: Writes
    offsets: Mapping[str, int]
    """By input topic: the next offset to read."""
    wall_ms: int
    """When the cycle began."""
    metadata: str = ""
    """Committed with the offsets, for the next owner."""
    activity: Activity | None = None
    """What to report once it is committed; None: nothing."""


class Work(Protocol):
    """What a task does with its records. It decides in memory; the task does the I/O."""

    @property
    def name(self) -> str:
        """For the log."""

    @property
    def tps(self) -> frozenset[TP]:
        """The input partitions."""

    @property
    def positions(self) -> Mapping[str, int]:
        """By input topic: the next offset to read."""

    @property
    def number(self) -> int:
        """The partition."""

    @property
    def unit(self) -> str:
        """For operators: the number, or for a repartitioned topic TOPIC/NUMBER."""

    @property
    def paused_topics(self) -> Collection[str]:
        """The input topics that wait for a queue."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the log that existed at the assignment has been read."""

    @property
    def remaining_records(self) -> int:
        """About how much of that log is left."""

    def restore(
        self,
        store: PartitionStore | None,
        committed: Mapping[str, CommittedOffset],
        new_batches: Callable[[], RecordBatches],
    ) -> None:
        """Load the committed state: at the assignment, and after a failed commit.

        Args:
            store: what `open_store` returned.
            committed: the group's offsets by topic. Nobody else can move them any more.
            new_batches: creates an empty container for the records of one topic.
        """

    def check_inputs(
        self, bounds: Mapping[str, Bounds], committed: Mapping[str, CommittedOffset]
    ) -> None:
        """Set positions: of all inputs after `restore`, or of new ones.

        Args:
            bounds: by topic, the log that exists now.
            committed: the group's offsets by topic.

        Raises:
            StateLost: state or input is missing.
            GapFound: records are missing, and the worker stops then.
        """

    def give(self, topics: frozenset[str]) -> None:
        """Let it have other input topics; see `take_up_inputs`."""

    @property
    def blocked(self) -> str:
        """Why it reads nothing but commands; empty: it reads all its inputs."""

    @property
    def has_other_inputs(self) -> bool:
        """Whether it may have to read other topics from here on (R128)."""

    def take_up_inputs(self) -> bool:
        """Choose the topics to read from here on, while it is open and nothing is in flight.

        Returns:
            Whether anything has changed.
        """

    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics that it depends on, as far as they are known."""

    def poll_timeout_s(self) -> float | None:
        """How long to wait for records before the next cycle; None: until some arrive."""

    def begin_cycle(self, wall_ms: int) -> None:
        """Do what is due before the records of a cycle."""

    @property
    def is_full(self) -> bool:
        """Whether what the cycle has decided fills its transaction (R114)."""

    def decide(self, records: Iterator[FetchedRecord], wall_ms: int) -> None:
        """Process records in memory.

        What does not fit into this cycle stays in the iterator, and what comes behind a question,
        until others have run (R122).
        """

    def skip(self, record: FetchedRecord, why: ProtocolError, wall_ms: int) -> None:
        """Move a record to the dead topic in place of processing it, and go on after it (R123)."""

    def decided_outputs(self) -> Collection[tuple[Role, int | None]]:
        """What the next commit is going to write, so far: roles, and partitions if not its own."""

    def skip_to(self, offsets: Mapping[TP, int]) -> None:
        """Called after `decide`: the consumer has read up to these offsets."""

    def take_commit(
        self, wall_ms: int, *, is_last: bool = False, is_probe: bool = False
    ) -> PendingCommit | None:
        """Remove what the cycle has decided; None if there is nothing to commit.

        Args:
            wall_ms: the time now.
            is_last: the task is about to close: nothing may be left for a later commit.
            is_probe: commit the positions in any case: after a takeover the brokers refuse that.
        """

    def committed(self, pending: PendingCommit, seconds: float) -> None:
        """Drop from memory what the commit has stored; log, count and trace it and its duration."""

    async def end_cycle(self) -> None:
        """Pause and resume inputs."""


class StoreSource(Protocol):
    """Where a task has its store from."""

    async def catch_up(self) -> None:
        """Prepare the store while another worker still has the partition."""

    async def open(self, committed: Mapping[str, CommittedOffset]) -> PartitionStore | None:
        """Open the store, and apply the committed changelog to it.

        Args:
            committed: the group's offsets by topic.

        Returns:
            None if the work keeps no state.
        """

    def close(self) -> None:
        """Close the store, or what was prepared of it. May be called again."""


ReadGroupOffsets = Callable[[Iterable[TP]], Awaitable[Mapping[TP, CommittedOffset]]]
"""Reads the offsets that the consumer group has committed."""
ReadTopicIds = Callable[[Collection[str]], Awaitable[TopicIds]]
"""Reads the ids of the cluster and of topics."""
ReadBounds = Callable[[Iterable[TP]], Awaitable[Mapping[TP, Bounds]]]
"""Reads the bounds of each partition."""
