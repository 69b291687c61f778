"""What the status topic has of the queues of one partition, and which rows it lacks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Set
from functools import lru_cache
from typing import NamedTuple

from ringfaust.core.address import address_of
from ringfaust.core.model import Counts
from ringfaust.core.queue import QueueRow
from ringfaust.core.settings import QueueSpec
from ringfaust.core.table import Kind
from ringfaust.kafka.status_topic import StatusRow
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.status import (
    RATES,
    QueueState,
    queue_key,
    read_key,
    read_queue_state,
    settings_text,
    write_queue_status,
)
from ringfaust.worker.partition.work import PartitionWork

_FOREIGN = 0
"""The mark of a row that is to be written again whatever it says."""


class _Active(NamedTuple):
    """A queue whose row was written a moment ago."""

    at_s: float
    counts: Counts
    has_rates: bool


class PartitionStatus:
    """Compares the queues of one partition with their rows.

    A queue gets a row when a commit has changed it (`changed`), or when the count finds that its
    row is not right (`look`, `end_pass`). `next_row` returns the rows one by one.
    """

    def __init__(self, work: PartitionWork, partitions: int, has_room: Callable[[], bool]) -> None:
        """Know nothing of the topic yet.

        Args:
            work: the partition.
            partitions: how many the application has.
            has_room: whether the worker may publish one more queue.
        """
        self.work = work
        self.queues = 0
        """How many the partition has, as they were counted last."""
        self._partitions = partitions
        self._has_room = has_room
        self._marks: dict[str, int] = {}
        """The hash of what the topic has, by queue."""
        self._waiting: OrderedDict[str, None] = OrderedDict()
        """The queues that wait for a row, the first for longest."""
        self._active: dict[str, _Active] = {}
        work.numbers.rates = {}
        self._seen: set[str] = set()
        """The queues that the count has found in this pass."""
        self._revision = -1
        """Of the configuration that `_declared` is from."""
        self._declared: Set[str] = frozenset()
        """The queues that the configuration names: they are published even if they are unused.
        They exist in every partition until their first message; one of them publishes them."""
        self._note_declared()

    @property
    def published(self) -> int:
        """How many queues have a row."""
        return len(self._marks)

    @property
    def waiting(self) -> int:
        """How many queues wait for a row."""
        return len(self._waiting)

    # --- which rows are not right ----------------------------------------------------------------

    def load(self, rows: Iterable[StatusRow]) -> None:
        """Note what the topic has."""
        for key, value in rows:
            what = read_key(key)
            if what is None or what[0] != "queue":
                continue
            name = what[1]
            if value is None:
                self._marks.pop(name, None)
            elif name in self._marks or self._has_room():
                self._marks[name] = _mark_of(value)

    def _is_home(self, name: str) -> bool:
        return partition_of(address_of(name) or name, self._partitions) == self.work.number

    def _note_declared(self) -> None:
        """Note what the configuration declares, if that is another one than before (R128)."""
        state = self.work.state
        revision = state.configuration.revision if state.configuration else 0
        if revision == self._revision:
            return
        self._revision, before = revision, self._declared
        self._declared = frozenset(filter(self._is_home, state.catalog.declared_names()))
        self.changed(self._declared ^ before)

    def changed(self, names: Iterable[str]) -> None:
        """Note that these queues may have changed."""
        for name in names:
            self._waiting.setdefault(name)

    def look(self, rows: Collection[tuple[str, QueueRow]]) -> None:
        """Compare some stored queues with their rows: all of them come in each pass."""
        self._seen.update(name for name, _ in rows)
        self.changed(
            name
            for name, row in rows
            if (name in self._marks or self._has_room())
            and self._marks.get(name) != hash(self._state(name, row))
        )

    def end_pass(self) -> None:
        """Find the rows of queues that are gone: the pass has seen the others."""
        self.queues = len(self._seen)
        self.changed(self._marks.keys() - self._seen - self._declared)
        self._seen = set()

    def tick(self, now_s: float) -> None:
        """Find the rows whose rates are over, and what a new configuration declares."""
        self._note_declared()
        quiet = [
            name
            for name, active in self._active.items()
            if name not in self._waiting and active.at_s < now_s
        ]
        for name in quiet:
            if self._active[name].has_rates:
                self.changed([name])
            else:
                del self._active[name]
                self.work.numbers.rates.pop(name, None)

    # --- rows ------------------------------------------------------------------------------------

    def next_row(self, now_s: float) -> StatusRow | None:
        """The row of the queue that has waited for longest; None: its row is right.

        `waiting` must not be 0.
        """
        name, _ = self._waiting.popitem(last=False)
        row: QueueRow | None = self.work.state.write_set.store.get((Kind.QUEUE, "", 0, name))
        if row is None and name not in self._declared:
            self._active.pop(name, None)
            self.work.numbers.rates.pop(name, None)
            return None if self._marks.pop(name, None) is None else (queue_key(name), None)
        state = self._state(name, row)
        before = self._active.get(name)
        counts = Counts(*state.counts)
        rates = _rates(counts, before, now_s)
        mark = hash(state)
        is_right = self._marks.get(name) == mark and not rates
        if is_right and not (before and before.has_rates):
            return None
        if name not in self._marks and not self._has_room():
            return None
        self._marks[name] = mark
        self._active[name] = _Active(now_s, counts, bool(rates))
        if rates:
            self.work.numbers.rates[name] = rates
        else:
            self.work.numbers.rates.pop(name, None)
        value = write_queue_status(
            state,
            partition=self.work.number,
            time_ms=self.work.wall_ms(),
            oldest_ms=self._oldest_ms(name, row) if row is not None and counts.ready else 0,
            rates=rates,
            evicted_by=self._evicted_by(name),
        )
        return queue_key(name), value

    def _state(self, name: str, row: QueueRow | None) -> QueueState:
        spec = self.work.state.catalog.spec_of_stored(name, row.settings if row else {})
        if row is None:
            return QueueState(Counts().stored(), (), 0, 0, _settings(spec))
        counts = Counts(*row.counts).stored()
        paused = tuple(sorted(row.paused))
        return QueueState(counts, paused, row.attached, row.size_bytes, _settings(spec))

    def _oldest_ms(self, name: str, row: QueueRow) -> int:
        """The send time of the oldest ready message, without decoding a queue that is not."""
        queue = self.work.state.queues.get(name)
        if queue is not None:
            return queue.lowest().enqueued_ms if queue.counts.ready else 0
        store = self.work.state.write_set.store
        firsts = [
            message
            for level, count in enumerate(row.level_counts)
            if count
            for _, message in store.scan(Kind.RING, name, level, None, 1)
        ]
        oldest = min(firsts, key=lambda message: message.position, default=None)
        return 0 if oldest is None else int(oldest.enqueued_ms)

    def _evicted_by(self, name: str) -> dict[str, int]:
        evicted = self.work.numbers.evicted
        return {reason: n for reason, found in evicted.items() if (n := found.get(name, 0))}


def _mark_of(value: bytes) -> int:
    try:
        state, has_rates = read_queue_state(value)
    except ValueError:
        return _FOREIGN
    return _FOREIGN if has_rates else hash(state)


def _rates(counts: Counts, before: _Active | None, now_s: float) -> dict[str, float]:
    """A second, since the row before; empty if that is long ago, or nothing has happened."""
    if before is None or now_s <= before.at_s:
        return {}
    passed_s = now_s - before.at_s
    found = {
        name: round((getattr(counts, name) - getattr(before.counts, name)) / passed_s, 1)
        for name in RATES
    }
    return {name: rate for name, rate in found.items() if rate > 0}


_KNOWN_SETTINGS = 1_000


@lru_cache(_KNOWN_SETTINGS)
def _settings(spec: QueueSpec) -> str:
    return settings_text(spec.set_fields())
