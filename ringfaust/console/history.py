"""What charts show of the time before the console was started, from the status topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ringfaust.client.status_rows import QueueStatus, WorkerStatus
from ringfaust.console.points import STEP_MS, WORKER_SILENT_MS, Point
from ringfaust.times import wall_ms

_MOST_ROWS = 50_000
"""Rows that are kept: about 15 MB."""
_Numbers = tuple[int, float, float, float]
_NOTHING: _Numbers = (0, 0.0, 0.0, 0.0)


class _Row(NamedTuple):
    time_ms: int
    queue: str
    partition: int
    numbers: _Numbers


class History:
    """Collects the rows of queues and workers, in the order of the topic."""

    def __init__(self, since_ms: int) -> None:
        """`since_ms`: when the charts begin, in ms since 1970."""
        self._since_ms = since_ms
        self._rows: deque[_Row] = deque()
        self._before: dict[tuple[int, str], _Numbers] = {}
        """What was before the rows."""
        self._heard: list[int] = []
        """When workers said something."""
        self._next: dict[int, int] = {}

    def note(self, partition: int, offset: int, row: QueueStatus | WorkerStatus | None) -> None:
        """Take a record of the topic; None: one that is neither of a queue nor of a worker."""
        if offset != self._next.get(partition, offset):
            # The topic was compacted up to here: what happened before has lost some of its rows.
            while self._rows:
                self._forget()
        self._next[partition] = offset + 1
        if isinstance(row, WorkerStatus):
            self._heard.append(row.time_ms)
        elif row is not None:
            rates = row.rates
            numbers = (row.counts.ready, rates.added, rates.acked, rates.evicted)
            self._rows.append(_Row(row.time_ms, row.queue, row.partition, numbers))
            while self._rows and (
                len(self._rows) > _MOST_ROWS or self._rows[0].time_ms < self._since_ms
            ):
                self._forget()

    def _forget(self) -> None:
        row = self._rows.popleft()
        self._before[row.partition, row.queue] = row.numbers

    def points(self, queue: str = "") -> Iterator[Point]:
        """The points of one queue; without a name, of all together."""
        if not self._rows:
            return
        rows = sorted(self._rows)
        heard = deque(sorted(self._heard))
        now = {key: each for key, each in self._before.items() if queue in ("", key[1])}
        totals = [sum(column) for column in zip(_NOTHING, *now.values(), strict=True)]
        # A clock that is wrong has made rows of long ago, or of years to come.
        at_ms, heard_ms, number = max(rows[0].time_ms, self._since_ms), 0, 0
        end_ms = min(max(rows[-1].time_ms, heard[-1] if heard else 0), wall_ms())
        while at_ms <= end_ms:
            while number < len(rows) and rows[number].time_ms <= at_ms:
                row = rows[number]
                number += 1
                if queue in ("", row.queue):
                    key = row.partition, row.queue
                    for column, (new, old) in enumerate(
                        zip(row.numbers, now.get(key, _NOTHING), strict=True)
                    ):
                        totals[column] += new - old
                    now[key] = row.numbers
            while heard and heard[0] <= at_ms:
                heard_ms = heard.popleft()
            if at_ms - heard_ms <= WORKER_SILENT_MS:
                yield Point(at_ms / 1000, int(totals[0]), *(max(each, 0.0) for each in totals[1:]))
            else:
                yield Point(at_ms / 1000)
            at_ms += STEP_MS
