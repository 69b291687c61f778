"""What is remembered of ended deliveries, so that who settles too late learns why (R103).

For each consumer, attached or gone, the message ids of its last ended deliveries (at least
ENDED_REMEMBERED), and for each whether the message was evicted since. They are stored in pages of
PAGE ids, so that an ack costs a share of one row and not a row or two of its own. Consumers that
left longest ago are forgotten first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ringfaust.core import limits
from ringfaust.core.model import Refusal
from ringfaust.core.table import Kind, Rows, WriteSet

PAGE = 100
_PAGES = limits.ENDED_REMEMBERED // PAGE + 1
_TRAILS_DECODED = 64


class Past(NamedTuple):
    """What is known of a consumer beyond its being attached."""

    ended: int
    """How many of its deliveries have ended."""
    departure: int
    """Number of its last detach; 0 while attached."""


class _Trail:
    """One consumer's ended deliveries, decoded."""

    __slots__ = ("changed", "pages", "past", "rows")

    def __init__(self, past: Past, rows: Rows) -> None:
        self.past: Past | None = past
        """None: it was forgotten in this batch."""
        self.rows = rows
        self.pages: dict[int, dict[str, bool]] = {
            number: dict(page) for number, page in rows.scan(None, _PAGES + 1)
        }
        """By page number: message id → evicted since."""
        self.changed: set[int] = set()

    def page_of(self, message_id: str) -> int | None:
        """The page that speaks for the message: the newest that has it."""
        return next(
            (n for n in sorted(self.pages, reverse=True) if message_id in self.pages[n]), None
        )


class SettlementHistory:
    """The ended deliveries of one queue."""

    __slots__ = ("_book", "_departed", "_past", "_queue", "_trails", "departures")

    def __init__(self, book: WriteSet, queue: str, departures: tuple[int, int]) -> None:
        """`departures`: (the last number forgotten, the last one given)."""
        self._book = book
        self._queue = queue
        self._past = Rows(book, Kind.PAST, queue)
        self._departed = Rows(book, Kind.DEPARTED, queue)
        self._trails: dict[str, _Trail] = {}
        self.departures = departures

    def arrive(self, consumer: str) -> None:
        """It attached; what its name had before counts on."""
        trail = self._trail(consumer)
        trail.past = _past(trail)._replace(departure=0)

    def depart(self, consumer: str) -> None:
        """It detached; remember it as one of the last that did."""
        forgotten, given = self.departures
        given += 1
        trail = self._trail(consumer)
        trail.past = _past(trail)._replace(departure=given)
        self._departed.put_new(given, consumer)
        if given - forgotten > limits.DEPARTED_REMEMBERED:
            forgotten += 1
            self._forget_departure(forgotten)
        self.departures = (forgotten, given)

    def _forget_departure(self, number: int) -> None:
        name = self._departed.get(number)
        self._departed.delete(number)
        if name is not None and _past(self._trail(name)).departure == number:
            self._erase_consumer(name)

    def remember(self, consumer: str, message_id: str) -> None:
        """A delivery of that message to that consumer is over."""
        trail = self._trail(consumer)
        past = _past(trail)
        number = past.ended
        trail.past = past._replace(ended=number + 1)
        page = number // PAGE
        if page not in trail.pages:
            trail.pages[page] = {}
            if page - _PAGES in trail.pages:
                del trail.pages[page - _PAGES]
                trail.changed.add(page - _PAGES)
        trail.pages[page][message_id] = False
        trail.changed.add(page)

    def evicted(self, holders: Iterable[str], message_id: str) -> None:
        """The message, once held by these, was evicted."""
        for consumer in holders:
            trail = self._trail(consumer)
            page = trail.page_of(message_id)
            if page is not None:
                trail.pages[page][message_id] = True
                trail.changed.add(page)

    def judge(self, consumer: str, message_id: str) -> Refusal:
        """Why there is nothing to settle (R103)."""
        known = self._trails.get(consumer)
        if (known.past if known else self._past.get(consumer)) is None:
            return Refusal.BAD_COMMAND
        trail = self._trail(consumer)
        page = trail.page_of(message_id)
        if page is None:
            return Refusal.UNKNOWN_DELIVERY
        return Refusal.EVICTED if trail.pages[page][message_id] else Refusal.STALE_DELIVERY

    def save(self) -> None:
        """Write what has changed."""
        for consumer, trail in self._trails.items():
            if trail.past is not None and self._past.get(consumer) != trail.past:
                self._past.put(consumer, trail.past)
            for number in sorted(trail.changed):
                page = trail.pages.get(number)
                if page is None:
                    trail.rows.delete(number)
                else:
                    trail.rows.put(number, tuple(page.items()))
            trail.changed.clear()
        if len(self._trails) > _TRAILS_DECODED:
            settled = [name for name, trail in self._trails.items() if not trail.rows.is_dirty]
            for name in settled:
                if not self._trails[name].rows.flying:
                    del self._trails[name]

    def erase(self) -> None:
        """Delete all rows: the queue ends."""
        self.save()
        after = None
        while rows := self._past.scan(after, self._book.refill):
            for name, _ in rows:
                self._erase_consumer(name)
            after = rows[-1][0]
        forgotten, given = self.departures
        for number in range(forgotten + 1, given + 1):
            self._departed.delete(number)

    def _erase_consumer(self, name: str) -> None:
        trail = self._trail(name)
        for number in trail.pages:
            trail.rows.delete(number)
        trail.pages.clear()
        trail.changed.clear()
        trail.past = None
        self._past.delete(name)

    def _trail(self, consumer: str) -> _Trail:
        trail = self._trails.get(consumer)
        if trail is None:
            past: Past = self._past.get(consumer) or Past(0, 0)
            rows = Rows(self._book, Kind.ENDED, self._queue, consumer)
            trail = self._trails[consumer] = _Trail(past, rows)
        return trail


def _past(trail: _Trail) -> Past:
    return trail.past or Past(0, 0)
