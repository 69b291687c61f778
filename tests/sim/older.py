"""A worker of the version before this one: it supports only the first feature level (R129).

It runs today's code, which at that level has to behave as its own did. What it would not have
understood is checked here: rows in a later format, stages of a command that it could not continue
with, and the command that raises the level.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ringfaust.core.table import Kind
from ringfaust.errors import UnknownRowVersion
from ringfaust.protocol.records import FetchedRecord
from tests.sim.disk import VirtualStore
from tests.sim.queue_book import demand

_VERSIONS: dict[int, int] = {Kind.QUEUE: 2, Kind.OPERATION: 2, Kind.UNFINISHED: 2, Kind.XID: 2}
"""The newest version that version 0.2.0 reads of a kind of row; 1 of the others."""
_STAGES = {
    "accept many", "ack", "attach", "cancel_scheduled", "commit", "copy", "delete", "deliver_now",
    "dispatch", "due", "fit", "hold rest", "keep less", "leases", "leave", "limits", "meet expired",
    "move", "publish", "purge", "remove", "return", "return session", "sweep", "take up", "undo",
    "undo all",
}  # fmt: skip
"""What version 0.2.0 can continue with."""
_RAISE = b'"raise_level"'
_FIRST, _LAST = 0x81, 0xBF
_WITH_MESSAGE, _END_OF_JSON = 0x82, b"\0"


class OlderStore(VirtualStore):
    """A store whose rows version 0.2.0 reads."""

    def get(self, key: bytes) -> bytes | None:
        raw = super().get(key)
        if raw is not None:
            _check_row(key, raw)
        return raw

    def items_from(self, key: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for found, raw in super().items_from(key, end):
            _check_row(found, raw)
            yield found, raw


def _check_row(key: bytes, raw: bytes) -> None:
    """Check that version 0.2.0 reads the row.

    Raises:
        UnknownRowVersion: it refuses the state of the partition, because of its level.
        Wrong: it would not know that it does not understand what it reads.
    """
    kind = key[0]
    if raw and _FIRST <= raw[0] <= _LAST:
        version, known = raw[0] - _FIRST + 1, _VERSIONS.get(kind, 1)
        if kind == Kind.CLOCK and version > known:
            raise UnknownRowVersion(Kind.CLOCK.name, version, known)
        demand(version <= known, "level 1 has no version", version, "of the row", key)
    if kind == Kind.UNFINISHED:
        body = raw[1:].partition(_END_OF_JSON)[0] if raw[0] == _WITH_MESSAGE else raw[1:]
        stages = {stage for stage, *_ in json.loads(body)[0]}
        demand(stages <= _STAGES, "level 1 has no stages", stages - _STAGES)


def as_older_reads(record: FetchedRecord) -> FetchedRecord:
    """The record as version 0.2.0 understands it: it has no command that raises a level."""
    value = record.value or b""
    if record.topic != "control" or _RAISE not in value:
        return record
    return record._replace(value=value.replace(_RAISE, b'"of a later version"'))
