"""The work of one partition of a producers' topic that is repartitioned.

Its records belong to queues in any partition, and the topic may have more or fewer partitions than
ringfaust's topics, so no partition task can read it. Nothing is stored: each batch is one
transaction of the forwarded records and the position after them, which is the group's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from faust.types import TP

from ringfaust.kafka.names import repartition_transactional_id
from ringfaust.processor.processor import Writes
from ringfaust.processor.repartition import Repartitioner
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.routes import Route
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.input_positions import log_gaps, start_positions
from ringfaust.worker.interfaces import (
    Bounds,
    CommittedOffset,
    PartitionStore,
    repartition_note,
)
from ringfaust.worker.store_identity import last_positions
from ringfaust.worker.task import PendingCommit, Task


def repartition_task(route: Route, number: int, context: WorkerContext) -> Task:
    """The task of one partition of a repartitioned topic."""
    transactional_id = repartition_transactional_id(context.application, route.topic, number)
    work = RepartitionWork(route, number, context)

    async def no_store(committed: Mapping[str, CommittedOffset]) -> PartitionStore | None:
        found = committed.get(route.topic)
        if found is not None and not found.is_repartitioned and number < context.partitions:
            changelog = TP(context.topics[Role.CHANGELOG], number)
            stored = await last_positions(changelog, context.open_changelog())
            work.read_directly = stored.get(route.topic, 0)
        return None

    return context.new_task(work, no_store, lambda: context.open_producer(number, transactional_id))


class RepartitionWork:
    """Forwards the records of one partition of a topic to the partitions of their queues."""

    def __init__(self, route: Route, number: int, context: WorkerContext) -> None:
        self._route = route
        self._number = number
        self._context = context
        self._topic_id = ""
        self._gaps = 0
        self.read_directly = 0
        """Up to where a partition task has read the topic before it was repartitioned. The group's
        offset may lag behind that."""
        self._decided = self._committed = -1
        """The position in the last decided batch, and in the last committed one."""

    @property
    def name(self) -> str:
        """For the log."""
        return f"{self._route.topic}, partition {self._number}"

    @property
    def number(self) -> int:
        """The partition."""
        return self._number

    is_caught_up = True
    """Nothing waits for it."""
    remaining_records = 0

    @property
    def tps(self) -> frozenset[TP]:
        """The input partition."""
        return frozenset({TP(self._route.topic, self._number)})

    @property
    def positions(self) -> Mapping[str, int]:
        """The next offset to read."""
        return {self._route.topic: self._repartitioner.position}

    def restore(
        self,
        store: PartitionStore | None,
        committed: Mapping[str, CommittedOffset],
        new_batches: Callable[[], RecordBatches],
    ) -> None:
        """Continue after what was committed."""
        found = committed.get(self._route.topic)
        if found is not None:
            self._topic_id = found.topic_id or self._topic_id
            self._committed = found.offset
            if not found.is_repartitioned:
                self._committed = max(found.offset, self.read_directly)
        self._repartitioner = Repartitioner(
            self._route,
            self._context.partitions,
            self._context.processor_config.max_record_bytes,
            max(self._committed, 0),
            new_batches,
            cloud_events_of=self._context.processor_config.cloud_events_of,
        )

    def start(self, bounds: Mapping[str, Bounds], committed: Mapping[str, CommittedOffset]) -> None:
        """Set the start position of a new assignment.

        Raises:
            StateLost: input is missing.
            GapFound: records are missing, and the worker stops then.
        """
        self.check_inputs(bounds, committed)

    def check_inputs(
        self, bounds: Mapping[str, Bounds], committed: Mapping[str, CommittedOffset]
    ) -> None:
        """Compare the position with the log that exists, and report what is missing (R112).

        Raises:
            StateLost: input is missing.
            GapFound: records are missing, and the worker stops then.
        """
        topic = self._route.topic
        stored = {topic: self._committed} if self._committed >= 0 else {}
        ids = {topic: self._topic_id}
        starts = start_positions(self._number, stored, ids, bounds, {})
        log_gaps(starts.gaps, stop=self._context.stops_at_gaps)
        self._topic_id = bounds[topic].topic_id or self._topic_id
        self._repartitioner.position = starts.positions[topic]
        for gap in starts.gaps:
            self._gaps += 1
            self._repartitioner.report_gap(gap, self._gaps, self._context.clock.wall_ms())

    def topic_ids(self) -> Mapping[str, str]:
        """The id of the topic, if it is known."""
        return {self._route.topic: self._topic_id}

    def poll_timeout_s(self) -> float | None:
        """Wait until records arrive."""
        return None

    def begin_cycle(self, wall_ms: int) -> None:
        """Nothing is due by time."""

    is_full = False
    """Each record is forwarded on its own."""

    def decide(self, records: Iterator[FetchedRecord], wall_ms: int) -> None:
        """Forward some records, in memory."""
        self._repartitioner.take(records, wall_ms)

    def decided_outputs(self) -> Collection[tuple[Role, int | None]]:
        """What the next commit is going to write, so far: roles and partitions."""
        return self._repartitioner.decided_outputs()

    def skip_to(self, offsets: Mapping[TP, int]) -> None:
        """Move past transaction markers behind the records of a cycle, which are no gap (R112)."""
        self._repartitioner.position = max(self._repartitioner.position, *offsets.values(), 0)

    def take_commit(self, wall_ms: int, *, is_last: bool = False) -> PendingCommit | None:
        """Remove the forwarded records; None if there are none, and nothing was passed."""
        outputs = self._repartitioner.outputs()
        if not outputs and self._repartitioner.position <= max(self._decided, self._committed):
            return None
        self._decided = self._repartitioner.position
        note = repartition_note(self._topic_id)
        return PendingCommit(outputs, Writes([], []), self.positions, wall_ms, note)

    def settle(self) -> None:
        """Remember the position: Kafka forgets the group's offset with the topic."""
        self._committed = self._decided

    async def end_cycle(self) -> None:
        """These inputs are never paused."""
