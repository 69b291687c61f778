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
_CONSUMERS_DECODED = 64


class Past(NamedTuple):
    """What is known of a consumer beyond its being attached."""

    ended: int
    """How many of its deliveries have ended."""
    departure: int
    """Number of its last detach; 0 while attached."""


class _ConsumerHistory:
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

    __slots__ = ("_write_set", "_departed", "_past", "_queue", "_by_consumer", "departures")

    def __init__(self, write_set: WriteSet, queue: str, departures: tuple[int, int]) -> None:
        """`departures`: (the last number forgotten, the last one given)."""
        self._write_set = write_set
        self._queue = queue
        self._past = Rows(write_set, Kind.PAST, queue)
        self._departed = Rows(write_set, Kind.DEPARTED, queue)
        self._by_consumer: dict[str, _ConsumerHistory] = {}
        self.departures = departures

    def arrive(self, consumer: str) -> None:
        """It attached; what its name had before counts on."""
        known = self._history_of(consumer)
        known.past = _past(known)._replace(departure=0)

    def depart(self, consumer: str) -> None:
        """It detached; remember it as one of the last that did."""
        forgotten, given = self.departures
        given += 1
        known = self._history_of(consumer)
        known.past = _past(known)._replace(departure=given)
        self._departed.put_new(given, consumer)
        if given - forgotten > limits.DEPARTED_REMEMBERED:
            forgotten += 1
            self._forget_departure(forgotten)
        self.departures = (forgotten, given)

    def _forget_departure(self, number: int) -> None:
        name = self._departed.get(number)
        self._departed.delete(number)
        if name is not None and _past(self._history_of(name)).departure == number:
            self._erase_consumer(name)

    def remember(self, consumer: str, message_id: str) -> None:
        """A delivery of that message to that consumer is over."""
        known = self._history_of(consumer)
        past = _past(known)
        number = past.ended
        known.past = past._replace(ended=number + 1)
        page = number // PAGE
        if page not in known.pages:
            known.pages[page] = {}
            if page - _PAGES in known.pages:
                del known.pages[page - _PAGES]
                known.changed.add(page - _PAGES)
        known.pages[page][message_id] = False
        known.changed.add(page)

    def evicted(self, holders: Iterable[str], message_id: str) -> None:
        """The message, once held by these, was evicted."""
        for consumer in holders:
            known = self._history_of(consumer)
            page = known.page_of(message_id)
            if page is not None:
                known.pages[page][message_id] = True
                known.changed.add(page)

    def classify(self, consumer: str, message_id: str) -> Refusal:
        """Why there is nothing to settle (R103)."""
        known = self._by_consumer.get(consumer)
        if (known.past if known else self._past.get(consumer)) is None:
            return Refusal.BAD_COMMAND
        known = self._history_of(consumer)
        page = known.page_of(message_id)
        if page is None:
            return Refusal.UNKNOWN_DELIVERY
        return Refusal.EVICTED if known.pages[page][message_id] else Refusal.STALE_DELIVERY

    def save(self) -> None:
        """Write what has changed."""
        for consumer, known in self._by_consumer.items():
            if known.past is not None and self._past.get(consumer) != known.past:
                self._past.put(consumer, known.past)
            for number in sorted(known.changed):
                page = known.pages.get(number)
                if page is None:
                    known.rows.delete(number)
                else:
                    known.rows.put(number, tuple(page.items()))
            known.changed.clear()
        if len(self._by_consumer) > _CONSUMERS_DECODED:
            settled = [name for name, known in self._by_consumer.items() if not known.rows.is_dirty]
            for name in settled:
                if not self._by_consumer[name].rows.in_flight:
                    del self._by_consumer[name]

    def erase(self) -> None:
        """Delete all rows: the queue ends."""
        self.save()
        after = None
        while rows := self._past.scan(after, self._write_set.refill):
            for name, _ in rows:
                self._erase_consumer(name)
            after = rows[-1][0]
        forgotten, given = self.departures
        for number in range(forgotten + 1, given + 1):
            self._departed.delete(number)

    def _erase_consumer(self, name: str) -> None:
        known = self._history_of(name)
        for number in known.pages:
            known.rows.delete(number)
        known.pages.clear()
        known.changed.clear()
        known.past = None
        self._past.delete(name)

    def _history_of(self, consumer: str) -> _ConsumerHistory:
        known = self._by_consumer.get(consumer)
        if known is None:
            past: Past = self._past.get(consumer) or Past(0, 0)
            rows = Rows(self._write_set, Kind.ENDED, self._queue, consumer)
            known = self._by_consumer[consumer] = _ConsumerHistory(past, rows)
        return known


def _past(known: _ConsumerHistory) -> Past:
    return known.past or Past(0, 0)
