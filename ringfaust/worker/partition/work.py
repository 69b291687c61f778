"""The work of one partition: processor, ticks and pausing. `task` says when what is called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime

from faust.types import TP

from ringfaust.core.state import State
from ringfaust.errors import ProtocolError
from ringfaust.kafka.names import partition_transactional_id
from ringfaust.kafka.offsets import CommittedOffset, changelog_metadata
from ringfaust.processor.processor import Processor
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.route_changes import feeds_of, routes_of
from ringfaust.protocol.stored_rows import (
    FEEDS_KEY,
    INPUTS_KEY,
    POSITIONS_KEY,
    read_feeds,
    read_inputs,
    read_positions,
)
from ringfaust.spans import open_spans
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import Bounds, PartitionStore, PendingCommit
from ringfaust.worker.partition.command_log import CommandLog
from ringfaust.worker.partition.group_offsets import GroupOffsets
from ringfaust.worker.partition.hearing import Hearing
from ringfaust.worker.partition.input_positions import check_changelog, log_gaps, start_positions
from ringfaust.worker.partition.numbers import PartitionNumbers
from ringfaust.worker.partition.pausing import InputPauses
from ringfaust.worker.partition.route_changes import RouteSwitch
from ringfaust.worker.partition.spans import WorkerSpans
from ringfaust.worker.partition.task import Task
from ringfaust.worker.store.follower import Follower, OwnStore
from ringfaust.worker.store.identity import read_identity

log = logging.getLogger(__name__)

_CLOCK_CHECK_S = 1.0
"""How often a partition looks whether the clock agrees with the brokers' again."""
_CAUGHT_UP_CHECK_S = 0.2
"""How often a partition that was just assigned checks, when idle, whether it has read its log."""


def partition_task(
    follower: Follower, input_topics: frozenset[str], context: WorkerContext
) -> Task:
    """The task of one partition.

    Args:
        follower: its store.
        input_topics: all topics that are read without repartition.
        context: what the tasks of the worker share.
    """
    number = follower.number
    transactional_id = partition_transactional_id(context.application, number)
    return Task(
        PartitionWork(number, input_topics, context),
        context,
        OwnStore(follower),
        lambda: context.open_producer(number, transactional_id),
    )


class PartitionWork:
    """Processes the records of one partition of the input topics."""

    def __init__(self, number: int, input_topics: frozenset[str], context: WorkerContext) -> None:
        self.number = number
        """The partition."""
        self._given = self._topics = input_topics
        """What the group has given it; and what it reads of that."""
        self._looked: tuple[frozenset[str], int] | None = None
        """The topics that it had, and the revision that was in use, when it chose what to read."""
        self._context = context
        self._ends: Mapping[str, int] | None = {}
        """By topic: the end of the log at the assignment; None once it has been read."""
        self._group = GroupOffsets(context.clock)
        self._before: Mapping[str, int] = {}
        """By topic: the position before the cycle, or in the last commit."""
        self._next_tick_s = 0.0
        self._control = TP(context.topics[Role.CONTROL], number)
        self._command_log = CommandLog(number, context.clock.monotonic_s)
        spans = open_spans()
        self._spans = WorkerSpans(spans) if spans else None
        self.numbers = PartitionNumbers()
        self._changelog_id = ""

    @property
    def name(self) -> str:
        """For the log."""
        return f"partition {self.number}"

    @property
    def tps(self) -> frozenset[TP]:
        """The input partitions."""
        return frozenset(TP(topic, self.number) for topic in self._topics)

    def give(self, topics: frozenset[str]) -> None:
        """Let it have other input topics."""
        if not topics >= self._given:  # nobody reads those on, even if they come back at once
            self._looked = None
        self._given = topics

    @property
    def positions(self) -> Mapping[str, int]:
        """By input topic: the next offset to read."""
        return self._processor.positions

    @property
    def is_caught_up(self) -> bool:
        """Whether the log that existed at the assignment has been read."""
        return self._ends is None

    @property
    def unit(self) -> str:
        """For operators."""
        return f"{self.number}"

    @property
    def state(self) -> State:
        """The state, once it is loaded. Each time the partition is opened there is another."""
        return self._processor.state

    @property
    def paused_topics(self) -> Collection[str]:
        """The input topics that wait for a queue."""
        return self._processor.paused_topics

    def wall_ms(self) -> int:
        """The time in ms since 1970."""
        return self._context.clock.wall_ms()

    @property
    def remaining_records(self) -> int:
        """How much of the log that existed at the assignment is left, markers included."""
        at = self._processor.positions
        return sum(max(end - at.get(topic, 0), 0) for topic, end in (self._ends or {}).items())

    # --- opening ---------------------------------------------------------------------------------

    def restore(
        self,
        store: PartitionStore | None,
        committed: Mapping[str, CommittedOffset],
        new_batches: Callable[[], RecordBatches],
    ) -> None:
        """Load the state from the store. Positions come with it, not from the group's offsets."""
        assert store is not None
        positions = read_positions(store.get(POSITIONS_KEY))
        self._processor: Processor[RecordBatches] = self._context.new_processor(
            store, positions, new_batches
        )
        self._processor.load_inputs(read_inputs(store.get(INPUTS_KEY)))
        feeds = read_feeds(store.get(FEEDS_KEY))
        self._routes = RouteSwitch(self.number, self._processor, feeds)
        identity = read_identity(store)
        self._changelog_id = identity.changelog if identity else ""
        self._pauses = InputPauses(self.number, self._processor, self._context)
        self._hearing = Hearing()  # what was read and not committed is read again
        self._processor.is_cut = True
        self._processor.observe(evictions=self._spans is not None, counts=self._context.is_metered)
        self._check_time()
        self._processor.start()
        self.take_up_inputs()

    def _check_time(self) -> None:
        """Report a state whose time is ahead of the clock: it waits until then (R115)."""
        state_ms, context = self._processor.now_ms, self._context
        ahead_ms = state_ms - context.clock.wall_ms()
        if ahead_ms > context.clock_skew_max_ms and not context.processor_config.log_is_clock:
            log.error(
                "partition %d: the time of its state is %.0f s ahead of the clock. A worker whose "
                "clock was wrong has written it. Until %s consumers do not time out, and delays "
                "and TTLs of new messages count from that time",
                self.number, ahead_ms / 1000, f"{datetime.fromtimestamp(state_ms // 1000, UTC)}",
            )  # fmt: skip

    @property
    def has_other_inputs(self) -> bool:
        """Whether it may have to read other topics from here on (R128)."""
        if self._processor.is_unfinished:
            return False
        if self._looked != (self._given, self._processor.revision):
            return True
        return self._routes.is_free_again

    @property
    def blocked(self) -> str:
        """Why it reads nothing but commands; empty: it reads all its inputs."""
        return self._routes.blocked

    def take_up_inputs(self) -> bool:
        """Use the routes of the configuration in use, and choose which topics to read (R128).

        Raises:
            QueuesMoved: nothing was applied yet, and the routes of the files would move queues with
                messages to other partitions.
        """
        processor, context = self._processor, self._context
        used, before = processor.state.configuration, (self._topics, self._routes.feeds)
        was_taken = self._looked is None
        self._looked = (self._given, processor.revision)
        feeds = context.feeds
        if used is not None:
            feeds = feeds_of(used.document, context.partitions)
            context.took_up(used.revision, feeds)
        direct = routes_of(feeds, repartitioned=False)
        topics = {context.topics[Role.HOP], *(route.topic for route in direct)}
        if self._routes.switch_to(feeds):
            processor.use_routes(direct)
        else:
            topics.clear()
        self._topics = self._given & {self._control.topic, *topics}
        if self._ends is not None:  # what is not read is not waited for
            self._ends = {topic: end for topic, end in self._ends.items() if topic in self._topics}
        if (self._topics, self._routes.feeds) == before and not was_taken:
            return False
        self._pauses.keep(self._topics)
        return True

    def check_inputs(
        self, bounds: Mapping[str, Bounds], committed: Mapping[str, CommittedOffset]
    ) -> None:
        """Compare the positions with the log that exists, and report what is missing (R112).

        After the assignment nothing ticks until that log has been read.

        Raises:
            StateLost: state or input is missing.
            GapFound: records are missing, and the worker stops then.
        """
        check_changelog(self.number, self._changelog_id, committed)
        processor = self._processor
        known = {topic: each.topic_id for topic, each in processor.inputs.items()}
        starts = start_positions(self.number, processor.positions, known, bounds, committed)
        log_gaps(starts.gaps, stop=self._context.stops_at_gaps)
        ids = {topic: bound.topic_id for topic, bound in bounds.items()}
        processor.go_to(starts.positions, ids, starts.gaps)
        if self._ends is not None:  # the earlier ones of a recreated topic are never reached
            self._ends = {**self._ends, **{topic: bound.end for topic, bound in bounds.items()}}
        self._group.learn(bounds, committed)

    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the input topics and of the changelog, as far as they are known."""
        inputs = self._processor.inputs
        known = {name: inputs[name].topic_id for name in self._topics if name in inputs}
        return {**known, self._context.topics[Role.CHANGELOG]: self._changelog_id}

    # --- cycles ----------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether what the cycle has decided fills its transaction (R114)."""
        return self._processor.is_full

    def poll_timeout_s(self) -> float | None:
        """How long to wait for records before the next cycle; None: until some arrive."""
        if self._processor.is_unfinished or self.has_other_inputs:
            return 0.0
        waits_s = (self._group.until_due_s(self._read_positions()), self._until_work_s())
        return min((each_s for each_s in waits_s if each_s is not None), default=None)

    def _until_work_s(self) -> float | None:
        """How long until something is due in the state, or may be; None: nothing is."""
        if self._ends is not None:
            return _CAUGHT_UP_CHECK_S
        clock = self._context.clock
        until_tick_s = self._until_tick_s(clock.wall_ms())
        return until_tick_s if until_tick_s is None or clock.is_right else _CLOCK_CHECK_S

    def _until_tick_s(self, wall_ms: int) -> float | None:
        """How long until time acts on the state; None: it does not, as things are."""
        if self._context.processor_config.log_is_clock:
            return None
        wake_ms = self._processor.next_wake_ms()
        if wake_ms is None:
            return None
        pause_s = self._next_tick_s - self._context.clock.monotonic_s()
        return max((wake_ms - wall_ms) / 1000, pause_s, 0.0)

    def begin_cycle(self, wall_ms: int) -> None:
        """Tick if it is time, but not before the old log has been read.

        A command that did not fit into the last transaction continues before that (R114).
        docs/architecture.md#time explains the ticks.
        """
        self._before = dict(self._processor.positions)
        if self._processor.is_unfinished:
            self._processor.go_on()
            return
        clock = self._context.clock
        if self._ends is None and clock.is_right and self._until_tick_s(wall_ms) == 0:  # R115
            self._next_tick_s = clock.monotonic_s() + self._context.tick_ms / 1000
            self._processor.tick(wall_ms, self._hearing.heard)

    def decide(self, records: Iterator[FetchedRecord], wall_ms: int) -> None:
        """Process records in memory; what does not fit into this cycle stays in the iterator."""
        watched = self._spans.watch(records) if self._spans else records
        self._processor.take(watched, wall_ms)

    def skip(self, record: FetchedRecord, why: ProtocolError, wall_ms: int) -> None:
        """Move a record to the dead topic in place of processing it (R123)."""
        self._processor.skip(record, why, wall_ms)

    def decided_outputs(self) -> Collection[tuple[Role, int | None]]:
        """What the next commit is going to write, so far: roles, and partitions if not its own."""
        found = self._processor.decided_outputs()
        return [*found, (Role.CHANGELOG, None)] if found else ()

    def skip_to(self, offsets: Mapping[TP, int]) -> None:
        """Move past transaction markers behind the records of a cycle, which are no gap (R112)."""
        self._processor.skip_to({tp.topic: offset for tp, offset in offsets.items()})

    def take_commit(
        self, wall_ms: int, *, is_last: bool = False, is_probe: bool = False
    ) -> PendingCommit | None:
        """Remove what the cycle has decided; None if there is nothing to commit."""
        processor = self._processor
        read = self._read_positions()
        offsets = self._group.take(read, is_last=is_last)
        if is_probe:
            offsets = read
        has_read = any(self._before.get(topic) != at for topic, at in processor.positions.items())
        self._before = dict(processor.positions)
        activity, outputs = processor.activity(), processor.outputs()
        if self._spans is not None:
            self._spans.commit(wall_ms)
        if not (outputs or has_read or offsets or processor.inputs_changed):
            return None
        metadata = changelog_metadata(self._changelog_id)
        return PendingCommit(outputs, processor.writes(), offsets, wall_ms, metadata, activity)

    def _read_positions(self) -> Mapping[str, int]:
        """The positions of the topics that it reads."""
        positions = self._processor.positions
        return {topic: positions[topic] for topic in self._topics if topic in positions}

    def committed(self, pending: PendingCommit, seconds: float) -> None:
        """Drop what the store has now, and shrink the decoded state to its bound. Then log it.

        `seconds`: how long transaction and store have taken.
        """
        self._processor.committed(self._context.cache_bytes())
        activity = pending.activity
        assert activity is not None
        if activity.log:
            self._command_log.tell(activity.log)
        if self._context.is_metered:
            self.numbers.commit(pending.outputs, activity, seconds)
        if self._spans is not None:
            self._spans.committed(activity.evictions, self._context.clock.wall_ms())

    async def end_cycle(self) -> None:
        """Pause and resume inputs, and check how far the logs have been read (R110)."""
        await self._pauses.update()
        if self._ends is not None:
            self._check_caught_up(self._ends)
        self._listen()

    def _check_caught_up(self, ends: Mapping[str, int]) -> None:
        for topic, end in ends.items():
            if topic in self._processor.paused_topics:
                continue  # the rest of it cannot be read now, and ticks must not wait for that
            if not self._has_decided(topic, end):
                return
        self._ends = None

    def _listen(self) -> None:
        """Find out how far consumers have been heard."""
        newest = self._context.log_end(self._control)
        target = self._hearing.target(newest)
        if newest is None or target is None:
            return
        if self._has_decided(self._control.topic, target.offset):
            self._hearing.reach()

    def _has_decided(self, topic: str, end: int) -> bool:
        """Whether all committed records of a topic before an offset have been decided."""
        if self._processor.positions.get(topic, 0) >= end:
            return True
        read = self._context.reader().read_position(TP(topic, self.number))
        return (
            read is not None
            and read.next_offset >= end
            and self._processor.positions.get(topic, 0) >= read.fetched
        )
