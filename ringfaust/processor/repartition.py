"""Repartitioning: forwards producers' records to the partition of their queue. No I/O.

A host passes in the records of one partition of a topic. It writes the outputs and the new position
in one transaction. `processor` then reads the records from the repartition topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Generic

from ringfaust.errors import ProtocolError
from ringfaust.processor.outbox import Buffer, Outputs
from ringfaust.protocol.cloud_events import UNDECODABLE, cloud_event
from ringfaust.protocol.gaps import Gap, gap_line
from ringfaust.protocol.outputs import source_of, undecodable_line, undecodable_record
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import FetchedRecord, OutRecord, Role
from ringfaust.protocol.routes import (
    LOG_APPEND_TIME,
    Route,
    RouteTemplate,
    refuse_oversized,
    repartition_headers,
)


class Repartitioner(Generic[Buffer]):
    """Forwards the records of one partition of one topic.

    `take` produces outputs, and `outputs` returns and removes them.
    """

    def __init__(
        self,
        route: Route,
        partitions: int,
        max_record_bytes: int,
        position: int,
        new_buffer: Callable[[], Buffer],
        *,
        cloud_events_of: str = "",
        revision: int = 0,
    ) -> None:
        """Start at a position.

        Args:
            route: the topic, and which queue its records are for.
            partitions: the number of partitions of the application's topics.
            max_record_bytes: larger records go to the dead topic.
            position: the next offset to process.
            new_buffer: returns an empty buffer for records, such as `list`.
            cloud_events_of: see `ProcessorConfig`.
            revision: of the configuration that has the route; 0: nothing was applied yet.
        """
        self.position = position
        """The next offset to process. Earlier records are repeats and are skipped."""
        self.topic_id = ""
        """The id of the topic; empty: the brokers are too old to know it."""
        self._queue_of = RouteTemplate(route.queue).queue_of
        self._partitions = partitions
        self._max_record_bytes = max_record_bytes
        self._new_buffer = new_buffer
        self._cloud_events_of = cloud_events_of
        self._revision = revision
        self._out: Outputs[Buffer] = {}

    def take(self, records: Iterable[FetchedRecord], wall_ms: int) -> None:
        """Forward records in order, skipping repeats."""
        for record in records:
            if record.offset < self.position:
                continue
            self.position = record.offset + 1
            try:
                refuse_oversized(record, self._max_record_bytes)
                self._forward(record, wall_ms)
            except ProtocolError as error:
                self._undecodable(record, error, wall_ms)

    def skip(self, record: FetchedRecord, why: ProtocolError, wall_ms: int) -> None:
        """Move the next record to the dead topic in place of forwarding it (R123)."""
        self.position = record.offset + 1
        self._undecodable(record, why, wall_ms)

    def _forward(self, record: FetchedRecord, wall_ms: int) -> None:
        queue = self._queue_of(record)
        is_broker_time = record.timestamp_type == LOG_APPEND_TIME
        sent_ms = record.timestamp if is_broker_time else wall_ms
        headers = repartition_headers(record, queue, sent_ms, self.topic_id, self._revision)
        target = partition_of(queue, self._partitions)
        self._put(Role.HOP, target, (record.key, record.value, headers))

    def _undecodable(self, record: FetchedRecord, error: ProtocolError, wall_ms: int) -> None:
        """Send the record to the dead topic, with an event that belongs to no partition's step."""
        where = record.partition % self._partitions
        source = source_of(record, "")
        dead = undecodable_record(record, source, error, wall_ms)
        if self._cloud_events_of:
            dead = cloud_event(dead, self._cloud_events_of, UNDECODABLE)
        self._put(Role.DEAD, where, dead)
        line = undecodable_line(record, source, error, 0, wall_ms)
        self._put(Role.EVENTS, where, (None, line.encode(), []))

    def report_gap(self, gap: Gap, gaps: int, wall_ms: int) -> None:
        """Report records that can no longer be read (R112).

        Args:
            gap: what is missing.
            gaps: how many gaps this partition of the topic has had.
            wall_ms: the time.
        """
        line = gap_line(gap, gaps, 0, wall_ms)
        self._put(Role.EVENTS, gap.partition % self._partitions, (None, line.encode(), []))

    def _put(self, role: Role, partition: int, record: OutRecord) -> None:
        found = self._out.get((role, partition))
        if found is None:
            found = self._out[role, partition] = self._new_buffer()
        found.append(record)

    def decided_outputs(self) -> Collection[tuple[Role, int | None]]:
        """What `outputs` would return records for now: roles and partitions."""
        return self._out.keys()

    def outputs(self) -> Outputs[Buffer]:
        """Return the records to write, each topic's in order, and start a new batch."""
        out, self._out = self._out, {}
        return out
