"""The work of one partition of a producers' topic that is repartitioned.

Its records belong to queues in any partition, and the topic may have more or fewer partitions than
ringfaust's topics, so no partition task can read it. Nothing is stored: each batch is one
transaction of the forwarded records and the position after them, which is the group's offset.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from faust.types import TP

from ringfaust.errors import ProtocolError
from ringfaust.kafka.names import repartition_transactional_id
from ringfaust.kafka.offsets import CommittedOffset, repartition_metadata
from ringfaust.processor.processor import Writes
from ringfaust.processor.repartition import Repartitioner
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.routes import Route, copied_key
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import Bounds, PartitionStore, PendingCommit
from ringfaust.worker.partition.input_positions import log_gaps, start_positions
from ringfaust.worker.partition.task import Task
from ringfaust.worker.store.identity import copied_before, last_positions

log = logging.getLogger(__name__)


def repartition_task(route: Route, number: int, context: WorkerContext, revision: int = 0) -> Task:
    """The task of one partition of a repartitioned topic.

    Args:
        route: the topic, and which queue its records are for.
        number: the partition.
        context: what the tasks of the worker share.
        revision: of the configuration that has the route; 0: nothing was applied yet.
    """
    transactional_id = repartition_transactional_id(context.application, route.topic, number)
    work = RepartitionWork(route, number, context, revision)

    return Task(
        work,
        context,
        _NoStore(work, TP(route.topic, number), context),
        lambda: context.open_producer(number, transactional_id),
    )


class _NoStore:
    """The store of a task that keeps no state. It finds out what was copied before."""

    def __init__(self, work: RepartitionWork, tp: TP, context: WorkerContext) -> None:
        self._work = work
        self._tp = tp
        self._context = context

    async def catch_up(self) -> None:
        """There is nothing to prepare."""

    async def open(self, committed: Mapping[str, CommittedOffset]) -> PartitionStore | None:
        """Find out where to continue if the group's offset does not tell."""
        topic, number = self._tp
        context, found = self._context, committed.get(topic)
        if found is None:
            self._work.copied = await _copied_before(self._tp, context)
        elif not found.is_repartitioned and number < context.partitions:
            changelog = TP(context.topics[Role.CHANGELOG], number)
            stored = await last_positions(changelog, context.open_changelog())
            self._work.read_directly = stored.get(topic, 0)
        return None

    def close(self) -> None:
        """There is nothing to close."""


async def _copied_before(tp: TP, context: WorkerContext) -> int | None:
    """Where to continue if the group has no offset; None: nothing was copied from this topic yet.

    The group's offsets were deleted, or Kafka has forgotten them, because the group was empty for
    `offsets.retention.minutes`. From its beginning everything would be copied again.
    """
    topic_id = (await context.topic_ids([tp.topic])).topics.get(tp.topic, "")
    hop, changelog = context.topics[Role.HOP], context.topics[Role.CHANGELOG]
    numbers = range(context.partitions)
    copied = await copied_before(
        copied_key(f"{tp.topic}/{tp.partition}", topic_id),
        {TP(hop, number): TP(changelog, number) for number in numbers},
        context.open_changelog(),
    )
    if copied is not None:
        log.warning(
            "%s, partition %d: the consumer group has no offset any more; continuing at offset %d, "
            "up to which the rings have its records",
            tp.topic, tp.partition, copied,
        )  # fmt: skip
    return copied


class RepartitionWork:
    """Forwards the records of one partition of a topic to the partitions of their queues."""

    def __init__(self, route: Route, number: int, context: WorkerContext, revision: int) -> None:
        self.route = route
        """The topic, and which queue its records are for. It never changes."""
        self._revision = revision
        self.number = number
        """The partition."""
        self._context = context
        self._topic_id = ""
        self._gaps = 0
        self.read_directly = 0
        """Up to where a partition task has read the topic before it was repartitioned. The group's
        offset may lag behind that."""
        self.copied: int | None = None
        """Up to where it was copied, if the group has no offset; None: it was not."""
        self._decided = self._committed = -1
        """The position in the last decided batch, and in the last committed one."""
        # From 0 on, as those of `PartitionNumbers`.
        self.written = Counter({str(role): 0 for role in (Role.DEAD, Role.EVENTS)})
        """Records by the role of their topic, without those that were forwarded."""

    @property
    def name(self) -> str:
        """For the log."""
        return f"{self.route.topic}, partition {self.number}"

    @property
    def unit(self) -> str:
        """For operators."""
        return f"{self.route.topic}/{self.number}"

    is_caught_up = True
    """Nothing waits for it."""
    remaining_records = 0
    paused_topics: Collection[str] = ()

    @property
    def tps(self) -> frozenset[TP]:
        """The input partition."""
        return frozenset({TP(self.route.topic, self.number)})

    @property
    def positions(self) -> Mapping[str, int]:
        """The next offset to read."""
        return {self.route.topic: self._repartitioner.position}

    def restore(
        self,
        store: PartitionStore | None,
        committed: Mapping[str, CommittedOffset],
        new_batches: Callable[[], RecordBatches],
    ) -> None:
        """Continue after what was committed."""
        found = committed.get(self.route.topic)
        if found is None:
            self._committed = self._committed if self.copied is None else self.copied
        else:
            self._topic_id = found.topic_id or self._topic_id
            self._committed = found.offset
            if not found.is_repartitioned:
                self._committed = max(found.offset, self.read_directly)
        self._repartitioner = Repartitioner(
            self.route,
            self._context.partitions,
            self._context.processor_config.max_record_bytes,
            max(self._committed, 0),
            new_batches,
            cloud_events_of=self._context.processor_config.cloud_events_of,
            revision=self._revision,
        )

    def check_inputs(
        self, bounds: Mapping[str, Bounds], committed: Mapping[str, CommittedOffset]
    ) -> None:
        """Compare the position with the log that exists, and report what is missing (R112).

        Raises:
            StateLost: input is missing.
            GapFound: records are missing, and the worker stops then.
        """
        topic = self.route.topic
        stored = {topic: self._committed} if self._committed >= 0 else {}
        ids = {topic: self._topic_id}
        starts = start_positions(self.number, stored, ids, bounds, {})
        log_gaps(starts.gaps, stop=self._context.stops_at_gaps)
        self._topic_id = bounds[topic].topic_id or self._topic_id
        self._repartitioner.topic_id = self._topic_id
        self._repartitioner.position = starts.positions[topic]
        for gap in starts.gaps:
            self._gaps += 1
            self._repartitioner.report_gap(gap, self._gaps, self._context.clock.wall_ms())

    def topic_ids(self) -> Mapping[str, str]:
        """The id of the topic, if it is known."""
        return {self.route.topic: self._topic_id}

    def poll_timeout_s(self) -> float | None:
        """Wait until records arrive."""
        return None

    def begin_cycle(self, wall_ms: int) -> None:
        """Nothing is due by time."""

    is_full = False
    """Each record is forwarded on its own."""
    has_other_inputs = False
    blocked = ""

    def give(self, topics: frozenset[str]) -> None:
        """It always has one."""

    def take_up_inputs(self) -> bool:
        """Another route has another task."""
        return False

    def decide(self, records: Iterator[FetchedRecord], wall_ms: int) -> None:
        """Forward some records, in memory."""
        self._repartitioner.take(records, wall_ms)

    def skip(self, record: FetchedRecord, why: ProtocolError, wall_ms: int) -> None:
        """Move a record to the dead topic in place of forwarding it (R123)."""
        self._repartitioner.skip(record, why, wall_ms)

    def decided_outputs(self) -> Collection[tuple[Role, int | None]]:
        """What the next commit is going to write, so far: roles and partitions."""
        return self._repartitioner.decided_outputs()

    def skip_to(self, offsets: Mapping[TP, int]) -> None:
        """Move past transaction markers behind the records of a cycle, which are no gap (R112)."""
        self._repartitioner.position = max(self._repartitioner.position, *offsets.values(), 0)

    def take_commit(
        self, wall_ms: int, *, is_last: bool = False, is_probe: bool = False
    ) -> PendingCommit | None:
        """Remove the forwarded records; None if there are none, and nothing was passed."""
        outputs = self._repartitioner.outputs()
        if not (outputs or is_probe) and self._repartitioner.position <= max(
            self._decided, self._committed
        ):
            return None
        self._decided = self._repartitioner.position
        metadata = repartition_metadata(self._topic_id)
        return PendingCommit(outputs, Writes([], []), self.positions, wall_ms, metadata)

    def committed(self, pending: PendingCommit, seconds: float) -> None:
        """Count, and remember the position: Kafka forgets the group's offset with the topic."""
        self._committed = self._decided
        for (role, _), records in pending.outputs.items():
            if role is not Role.HOP:
                self.written[str(role)] += len(records)

    async def end_cycle(self) -> None:
        """These inputs are never paused."""
