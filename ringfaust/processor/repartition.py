"""The first half of the hop: a producers' record on its way to the partition of its queue. No I/O.

A host feeds it the records of one partition of a topic and writes what comes out, with the position
behind them, in one transaction. The rest of the way is `road`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from ringfaust.errors import ProtocolError
from ringfaust.processor.processor import G, Outputs
from ringfaust.protocol.outputs import undecodable_record
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import InRecord, OutRecord, Role
from ringfaust.protocol.routes import LOG_APPEND_TIME, Route, hop_headers, queue_namer
from ringfaust.protocol.undecodable import refuse_oversized, undecodable_line


class Repartitioner(Generic[G]):
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
                refuse_oversized(record, self._max_record_bytes)
                self._forward(record, wall_ms)
            except ProtocolError as error:
                self._unreadable(record, error, wall_ms)

    def _forward(self, record: InRecord, wall_ms: int) -> None:
        queue = self._queue_of(record)
        is_broker_time = record.timestamp_type == LOG_APPEND_TIME
        headers = hop_headers(record, queue, record.timestamp if is_broker_time else wall_ms)
        home = partition_of(queue, self._partitions)
        self._put(Role.HOP, home, (record.key, record.value, headers))

    def _unreadable(self, record: InRecord, error: ProtocolError, wall_ms: int) -> None:
        """To the dead topic, with a line among the events that is no step of any partition."""
        where = record.partition % self._partitions
        self._put(Role.DEAD, where, undecodable_record(record, error, wall_ms))
        line = undecodable_line(record, error, 0, wall_ms)
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
