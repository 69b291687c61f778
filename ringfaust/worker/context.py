"""What all tasks of a worker share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faust.types import TP

from ringfaust.core import levels
from ringfaust.core.catalog import Configuration
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import KeyValue
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.stored_rows import Feeds
from ringfaust.worker.interfaces import (
    ChangelogConsumer,
    CommitSlot,
    InputReader,
    LogEnd,
    OrderReader,
    PartitionStore,
    ReadBounds,
    ReadGroupOffsets,
    ReadTopicIds,
    StandbyConsumer,
    TaskProducer,
    WorkerClock,
)

NewProcessor = Callable[
    [KeyValue, Mapping[str, int], Callable[[], RecordBatches]], Processor[RecordBatches]
]
"""Creates the processor of a partition, from its store, its positions and an empty buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """How a task divides its time."""

    batch_records: int
    """A batch takes no more fetches once it has as many records."""
    slice_records: int = 250
    """Records that are decided before the event loop runs: about 1.5 ms."""
    yields_per_slice: int = 5
    """Passes of the event loop between slices: a request takes several to leave and return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Settings of a worker, and the functions with which its tasks open what they need."""

    application: str
    partitions: int
    """Of each of ringfaust's topics."""
    topics: Mapping[str, str]
    """Names of ringfaust's topics by role."""
    data_dir: Path
    cache_bytes: Callable[[], int]
    """Bound of the decoded state of each partition that the worker serves now."""
    tick_ms: int
    feeds: Feeds
    """What feeds the queues before a configuration is applied (R113)."""
    clock_skew_max_ms: int
    """How far the clock may differ from the brokers', in ms."""
    stops_at_gaps: bool
    """Whether missing records stop the worker (R112)."""
    tombstone_ms: int
    """How long the changelog keeps tombstones. An older store is rebuilt."""
    processor_config: ProcessorConfig
    task_settings: TaskSettings

    clock: WorkerClock
    open_store: Callable[[Path], PartitionStore]
    """Opens or creates the store in a directory."""
    open_producer: Callable[[int, str], TaskProducer]
    """Creates the producer of a partition, by number and transactional id."""
    open_changelog: Callable[[], ChangelogConsumer]
    """Creates a consumer that replays the changelog, not started."""
    open_standby_log: Callable[[], StandbyConsumer]
    """Creates a consumer that follows the changelog for standbys, not started."""
    new_processor: NewProcessor
    new_commit_slot: Callable[[], CommitSlot]
    group_offsets: ReadGroupOffsets
    read_bounds: ReadBounds
    topic_ids: ReadTopicIds
    leave_group: Callable[[], Awaitable[bool]]
    """Removes this worker from the group; returns whether others are in it."""
    log_end: Callable[[TP], LogEnd | None]
    """The end of a partition of the control topic; None as long as nobody has answered."""
    reader: Callable[[], InputReader]
    """The consumer of the input topics."""
    open_orders: Callable[[int], Awaitable[OrderReader]]
    """Reads the orders for a stopped partition, by number, that are given from now on (R123)."""
    level: int = levels.OLDEST
    """The feature level in use when the worker started (R129)."""
    takes_standbys: bool = False
    """Whether the worker follows the changelog of partitions that others serve (R127)."""
    is_metered: bool = False
    """Whether partitions count for metrics."""
    replaying: dict[int, int] = field(default_factory=dict)
    """By partition: how much of its changelog is left to replay."""
    crash: Callable[[BaseException], None]
    """Stops the worker with this error."""
    took_up: Callable[[int, Feeds], None] = lambda *_: None
    """Called with the revision and the routes that a partition has taken up (R128)."""
    newest_configuration: Callable[[], Awaitable[Configuration | None]]
    """Reads what was applied last; None: nothing was."""
