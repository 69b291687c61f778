"""Packs records into Kafka's record batches (message format 2) as they are added.

No record is kept as Python objects until the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from ringfaust.core import effects as e
from ringfaust.protocol import encoder
from ringfaust.protocol.outputs import dispatched_record, evicted_record
from ringfaust.protocol.records import OutRecord

Append = Callable[[bytearray, int, Any, int], bool]
"""As `encoder.append_record`."""
_APPEND_RECORD: Final = encoder.append_record
_APPEND_ROW: Final = encoder.append_row
_APPEND_EVICTED: Final = encoder.append_evicted
_APPEND_DISPATCHED: Final = encoder.append_dispatched
"""mypyc looks up the names of another module at each use."""

BATCH_HEADER_BYTES = 61
"""What precedes the records of a batch."""


class RecordBatch:
    """The records of one batch, behind room for its header."""

    def __init__(self) -> None:
        self.data = bytearray(BATCH_HEADER_BYTES)
        self.count = 0


class RecordBatches:
    """Records for one topic, in as many batches as they need."""

    def __init__(self, batch_bytes: int) -> None:
        """`batch_bytes`: a batch is closed before it becomes larger, unless by one record."""
        self._batch_bytes = batch_bytes
        self._last = RecordBatch()
        self.batches = [self._last]

    def __len__(self) -> int:
        return sum([batch.count for batch in self.batches])

    def append(self, record: OutRecord, /) -> None:
        """Pack one more record."""
        self.add(_APPEND_RECORD, record)

    def append_rows(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Pack records without headers: keys and values."""
        for row in rows:
            self.add(_APPEND_ROW, row)

    def add(self, append: Append, content: Any) -> None:
        """Pack a record that a function of `encoder` appends."""
        last = self._last
        if not append(last.data, last.count, content, self._batch_bytes):
            self._last = last = RecordBatch()
            self.batches.append(last)
            append(last.data, 0, content, self._batch_bytes)
        last.count += 1


class RecordBuffer(Protocol):
    """Collects the output records of a batch for one topic: a list, or `RecordBatches`."""

    def append(self, record: OutRecord, /) -> None:
        """Add a record."""

    def __len__(self) -> int:
        """The number of records."""


def append_evicted(buffer: RecordBuffer, effect: e.Evicted) -> None:
    """Add the record of an evicted message."""
    if isinstance(buffer, RecordBatches):
        buffer.add(_APPEND_EVICTED, effect)
    else:
        buffer.append(evicted_record(effect))


def append_dispatched(buffer: RecordBuffer, effect: e.Dispatched) -> None:
    """Add the record of a delivery."""
    if isinstance(buffer, RecordBatches):
        buffer.add(_APPEND_DISPATCHED, effect)
    else:
        buffer.append(dispatched_record(effect))
