"""What the console knows of the whole application: held in memory once, sorted and searched."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ringfaust.client.status_rows import QueueRates, QueueStatus, StoppedPartition, WorkerStatus
from ringfaust.console.history import History
from ringfaust.console.points import POINTS, STEP_MS, WORKER_SILENT_MS, Point
from ringfaust.core.model import COUNTS, Counts
from ringfaust.times import wall_ms

PAGE_QUEUES = 50
"""Queues of one page."""
_SHARE = 10
"""A look at all queues may take this part of the time: with more queues, looks become rarer."""
BROKERS_SILENT_MS = 4_000
"""Brokers, which are asked every second, are silent if they have not answered for so long."""
_WATCHED = 64
"""Queues whose past is kept, for a chart: those that were looked at last."""
_ORDERS = 8
"""Sorted lists that are kept until the next look."""
_UNBALANCED = 10


class StatusSource(Protocol):
    """What the board reads: a `StatusReader`."""

    @property
    def is_truncated(self) -> bool:
        """Whether there are more queues than it knows."""
        ...

    @property
    def heard_ms(self) -> int:
        """When the brokers last answered, in ms since 1970."""
        ...

    def queue(self, name: str) -> QueueStatus | None:
        """One queue; None if it is not known."""
        ...

    def queues(self) -> list[QueueStatus]:
        """All queues. May be called in any thread."""
        ...

    def workers(self) -> list[WorkerStatus]:
        """All workers. May be called in any thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All queues together."""

    queues: int
    consumers: int
    paused: int
    full: int
    counts: Counts
    rates: QueueRates
    evicted_by: Mapping[str, int]
    size_bytes: int
    unbalanced: tuple[str, ...]
    """Queues whose counts do not add up (R100): the first ten."""
    unheard: int
    """Queues of partitions whose worker is silent: in the counts as they were last, and in neither
    `rates` nor `unbalanced`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesPage:
    """A page of queues that match a search."""

    rows: Sequence[QueueStatus]
    found: int
    number: int
    """From 1."""
    pages: int


def fill(row: QueueStatus) -> float:
    """How full its ring is, from 0 to 1; 0: it has no ring."""
    return min(row.counts.ready / row.ring_size, 1.0) if row.ring_size > 0 else 0.0


_Key = Callable[[QueueStatus], tuple[float | str, ...]]
SORTS: Mapping[str, _Key] = {
    "name": lambda row: (row.queue,),
    "ready": lambda row: (row.counts.ready,),
    "fill": lambda row: (fill(row), row.counts.ready),
    "held": lambda row: (row.counts.delivering,),
    "scheduled": lambda row: (row.counts.scheduled,),
    "in": lambda row: (row.rates.added, row.counts.added),
    "out": lambda row: (row.rates.acked, row.counts.acked),
    "evicted": lambda row: (row.rates.evicted, row.counts.evicted),
    "dead": lambda row: (row.counts.dead,),
    "age": lambda row: (-row.oldest_ms if row.oldest_ms else float("-inf"),),
    "consumers": lambda row: (row.consumers,),
}
"""By what queues can be sorted."""

FILTERS: Mapping[str, Callable[[QueueStatus], bool]] = {
    "all": lambda row: True,
    "full": lambda row: 0 < row.ring_size <= row.counts.ready,
    "evicting": lambda row: row.rates.evicted > 0,
    "paused": lambda row: bool(row.paused),
    "unread": lambda row: row.counts.ready > 0 and not row.consumers,
}
"""Which queues can be shown."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Why figures are old."""

    since_ms: int
    """When the last news came, in ms since 1970; 0: none has come."""
    text: str
    """Who is silent, in a sentence without its end."""


class Look:
    """All queues and workers at one time. Its methods may run in any thread."""

    def __init__(
        self,
        queues: Sequence[QueueStatus],
        workers: Sequence[WorkerStatus],
        *,
        heard_ms: int,
        is_truncated: bool,
    ) -> None:
        self.at_ms = wall_ms()
        self.workers = workers
        self.is_truncated = is_truncated
        self.heard_ms = heard_ms
        """When the brokers last answered."""
        self._owners = self._find_owners()
        self.rows = [row if self.hears(row) else _without_rates(row) for row in queues]
        self.totals = _totals(self.rows, self.hears)
        self.silence = self._find_silence()
        """Who is silent; None: brokers and all partitions with queues are heard."""
        self._orders: OrderedDict[tuple[str, str, str, bool], Sequence[QueueStatus]] = OrderedDict()

    @property
    def brokers_are_silent(self) -> bool:
        """Whether they have not answered for too long."""
        return self.at_ms - self.heard_ms > BROKERS_SILENT_MS

    def is_silent(self, worker: WorkerStatus) -> bool:
        """Whether a worker has said nothing for too long."""
        return self.at_ms - worker.time_ms > WORKER_SILENT_MS

    def _find_owners(self) -> dict[int, WorkerStatus]:
        """The worker of each partition whose worker is heard."""
        if self.brokers_are_silent:
            return {}
        heard = [each for each in self.workers if not self.is_silent(each)]
        heard.sort(key=lambda each: each.time_ms)  # a partition has moved to who spoke last
        return {partition: each for each in heard for partition in each.partitions}

    def hears(self, row: QueueStatus) -> bool:
        """Whether the worker of a queue is heard, so that its row says what is now."""
        return row.partition in self._owners

    @property
    def news_ms(self) -> int:
        """When a worker last said something, in ms since 1970; 0: never."""
        return max((each.time_ms for each in self.workers), default=0)

    def _find_silence(self) -> Silence | None:
        if self.brokers_are_silent:
            return Silence(self.heard_ms, "the Kafka brokers do not answer")
        silent = [each for each in self.workers if self.is_silent(each)]
        unheard = {each.partition for each in self.rows if not self.hears(each)}
        if self.workers and len(silent) == len(self.workers):
            return Silence(self.news_ms, "no worker says anything")
        if not self.workers and unheard:
            return Silence(0, "no worker says anything")
        if not unheard:
            return None
        lost = [each for each in silent if unheard.intersection(each.partitions)]
        since_ms = min((each.time_ms for each in lost), default=0)
        names = ", ".join(each.worker for each in lost[:3])
        who = f"{names} is silent, and nobody else has" if names else "no worker has"
        listed = ", ".join(map(str, sorted(unheard)[:10])) + (" …" if len(unheard) > 10 else "")
        return Silence(since_ms, f"{who} partition {listed}")

    def silence_of(self, partition: int) -> Silence | None:
        """Who is silent about a partition; None: its worker is heard."""
        return None if partition in self._owners else self.silence

    @property
    def live_workers(self) -> list[WorkerStatus]:
        """Those that are heard."""
        return [] if self.brokers_are_silent else [w for w in self.workers if not self.is_silent(w)]

    @property
    def stopped(self) -> list[StoppedPartition]:
        """The partitions that wait for an order (R123)."""
        return [stopped for each in self.live_workers for stopped in each.stopped]

    @property
    def lag(self) -> int | None:
        """Records that the workers have not read yet; None: no worker is heard."""
        if not self._owners:
            return None
        return sum(owner.lag.get(partition, 0) for partition, owner in self._owners.items())

    def page(
        self, *, search: str = "", show: str = "all", sort: str = "name",
        is_descending: bool = False, number: int = 1,
    ) -> QueuesPage:  # fmt: skip
        """A page of the queues whose names contain a text, in any case.

        Args:
            search: the text.
            show: one of `FILTERS`.
            sort: one of `SORTS`.
            is_descending: the largest first.
            number: which page, from 1; the last one if there are fewer.
        """
        found = self._ordered(search.lower(), show, sort, is_descending)
        pages = max(-(-len(found) // PAGE_QUEUES), 1)
        number = min(max(number, 1), pages)
        first = (number - 1) * PAGE_QUEUES
        rows = found[first : first + PAGE_QUEUES]
        return QueuesPage(rows=rows, found=len(found), number=number, pages=pages)

    def _ordered(
        self, search: str, show: str, sort: str, is_descending: bool
    ) -> Sequence[QueueStatus]:
        asked = (search, show, sort, is_descending)
        known = self._orders.get(asked)
        if known is not None:
            return known
        has = FILTERS[show]
        found: Iterable[QueueStatus] = self.rows
        if search:
            found = (row for row in found if search in row.queue.lower())
        if show != "all":
            found = filter(has, found)
        ordered = sorted(found, key=lambda row: row.queue)
        if sort != "name" or is_descending:
            ordered.sort(key=SORTS[sort], reverse=is_descending)
        self._orders[asked] = ordered
        if len(self._orders) > _ORDERS:
            self._orders.popitem(last=False)
        return ordered


def _without_rates(row: QueueStatus) -> QueueStatus:
    """Its rates are of a time that is over: nobody knows what they are now."""
    return replace(row, rates=QueueRates()) if any(row.rates) else row


def _totals(queues: Sequence[QueueStatus], hears: Callable[[QueueStatus], bool]) -> Totals:
    counts = [0] * len(COUNTS)
    rates = [0.0] * len(QueueRates._fields)
    evicted_by: dict[str, int] = {}
    unbalanced: list[str] = []
    unheard = 0
    for row in queues:
        for number, count in enumerate(row.counts.stored()):
            counts[number] += count
        if any(row.rates):
            for number, rate in enumerate(row.rates):
                rates[number] += rate
        for reason, count in row.evicted_by.items():
            evicted_by[reason] = evicted_by.get(reason, 0) + count
        if not hears(row):
            unheard += 1
        elif len(unbalanced) < _UNBALANCED and not row.counts.balanced:
            unbalanced.append(row.queue)
    return Totals(
        queues=len(queues),
        consumers=sum(row.consumers for row in queues),
        paused=sum(bool(row.paused) for row in queues),
        full=sum(map(FILTERS["full"], queues)),
        counts=Counts(*counts),
        rates=QueueRates(*rates),
        evicted_by=dict(sorted(evicted_by.items())),
        size_bytes=sum(row.size_bytes for row in queues),
        unbalanced=tuple(unbalanced),
        unheard=unheard,
    )


@dataclass(slots=True)
class Board:
    """Looks at the status again and again, and remembers enough for the charts."""

    source: StatusSource
    look: Look | None = None
    past: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS))
    """All queues together."""
    history: History | None = None
    """What was before the first look."""
    _watched: OrderedDict[str, deque[Point]] = field(default_factory=OrderedDict)
    _looked: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            began_s = time.monotonic()
            await self.look_now()
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(STEP_MS / 1000, _SHARE * took_s))

    async def look_now(self) -> Look:
        """Look once, in a thread: the event loop must not wait for many queues (R122)."""
        if self.look is None and self.history is not None:
            self.past.extend(self.history.points())
        look = self.look = await asyncio.to_thread(self._read)
        totals = look.totals
        is_whole, is_heard = not totals.unheard, bool(look.live_workers)
        self.past.append(_point(look.at_ms, totals.counts, totals.rates, is_whole, is_heard))
        for queue, past in self._watched.items():
            if (row := self.source.queue(queue)) is not None:
                is_heard = look.hears(row)
                past.append(_point(look.at_ms, row.counts, row.rates, is_heard, is_heard))
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()
        return look

    def _read(self) -> Look:
        queues, workers = self.source.queues(), self.source.workers()
        heard_ms, is_truncated = self.source.heard_ms, self.source.is_truncated
        return Look(queues, workers, heard_ms=heard_ms, is_truncated=is_truncated)

    async def next_look(self) -> Look:
        """Wait for the next look."""
        await self._looked.wait()
        assert self.look is not None
        return self.look

    async def first_look(self) -> Look:
        """The latest look; waits for the first one."""
        return self.look if self.look is not None else await self.next_look()

    def past_of(self, queue: str) -> deque[Point]:
        """The remembered points of a queue, which are collected from now on."""
        past = self._watched.pop(queue, None)
        if past is None:
            oldest_s = (wall_ms() - POINTS * STEP_MS) / 1000
            found = self.history.points(queue) if self.history else ()
            past = deque((each for each in found if each.time_s >= oldest_s), maxlen=POINTS)
            if past:  # from then until now the queue was not looked at
                past.append(Point(past[-1].time_s + STEP_MS / 1000))
            if len(self._watched) >= _WATCHED:
                self._watched.popitem(last=False)
        self._watched[queue] = past
        return past


def _point(
    at_ms: int, counts: Counts, rates: QueueRates, has_counts: bool, has_rates: bool
) -> Point:
    shown = (rates.added, rates.acked, rates.evicted) if has_rates else (None, None, None)
    return Point(at_ms / 1000, counts.ready if has_counts else None, *shown)
