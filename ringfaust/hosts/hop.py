"""The first half of the hop: a producers' record on its way to the partition of its queue. No I/O.

A host feeds it the records of one partition of a topic and writes what comes out, with the position
behind them, in one transaction. The rest of the way is `road`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from ringfaust.errors import WireError
from ringfaust.hosts.road import G, Outputs
from ringfaust.wire.home import home_partition
from ringfaust.wire.output import unreadable_record
from ringfaust.wire.record import InRecord, OutRecord, Role
from ringfaust.wire.route import LOG_APPEND_TIME, Route, hop_headers, queue_namer
from ringfaust.wire.unreadable import refuse_giant, unreadable_line


class Hop(Generic[G]):
    """For one partition of one topic; `take` fills it, `outputs` empties it."""

    def __init__(
        self,
        route: Route,
        partitions: int,
        max_record_bytes: int,
        position: int,
        gather: Callable[[], G],
    ) -> None:
        """`partitions`: how many ours are. `gather`: gives an empty place for records."""
        self.position = position
        """The next offset. A record before it is a repeat."""
        self._queue_of = queue_namer(route.queue)
        self._partitions = partitions
        self._max_record_bytes = max_record_bytes
        self._gather = gather
        self._out: Outputs[G] = {}

    def take(self, records: Iterable[InRecord], wall_ms: int) -> None:
        """Forward the records, in order. They may be repeats; those do nothing."""
        for record in records:
            if record.offset < self.position:
                continue
            self.position = record.offset + 1
            try:
                refuse_giant(record, self._max_record_bytes)
                self._forward(record, wall_ms)
            except WireError as error:
                self._unreadable(record, error, wall_ms)

    def _forward(self, record: InRecord, wall_ms: int) -> None:
        queue = self._queue_of(record)
        is_broker_time = record.timestamp_type == LOG_APPEND_TIME
        headers = hop_headers(record, queue, record.timestamp if is_broker_time else wall_ms)
        home = home_partition(queue, self._partitions)
        self._put(Role.HOP, home, (record.key, record.value, headers))

    def _unreadable(self, record: InRecord, error: WireError, wall_ms: int) -> None:
        """To the dead topic, with a line among the events that is no step of any partition."""
        where = record.partition % self._partitions
        self._put(Role.DEAD, where, unreadable_record(record, error, wall_ms))
        line = unreadable_line(record, error, 0, wall_ms)
        self._put(Role.EVENTS, where, (None, line.encode(), []))

    def _put(self, role: Role, partition: int, record: OutRecord) -> None:
        found = self._out.get((role, partition))
        if found is None:
            found = self._out[role, partition] = self._gather()
        found.append(record)

    def outputs(self) -> Outputs[G]:
        """The records to write, each topic's in order; it is empty then."""
        out, self._out = self._out, {}
        return out
