"""What is remembered of ended deliveries, so that a late settle gets its reason (R103).

For each consumer, attached or not, the history has the message ids of its last ended deliveries (at
least `ENDED_REMEMBERED`), and for each whether the message was evicted since. They are stored in
pages of `PAGE` ids, so that an ack costs a share of one row instead of one or two rows of its own.
The consumers that detached longest ago are forgotten first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfaust.core import limits
from ringfaust.core.create import create
from ringfaust.core.model import Refusal
from ringfaust.core.table import Kind, Rows, WriteSet

PAGE: Final = 100
"""Message ids in a page."""
PAGES = limits.ENDED_REMEMBERED // PAGE + 1
"""Pages kept of one consumer."""
_CONSUMERS_DECODED = 64


class Past(NamedTuple):
    """What is stored of a consumer that has ever attached."""

    ended: int
    """How many of its deliveries have ended."""
    departure: int
    """The number of its last detach; 0 while it is attached."""


_PAST: Final = Past


class ConsumerHistory:
    """The ended deliveries of one consumer, decoded."""

    __slots__ = ("changed", "pages", "past", "rows")

    def __init__(self, past: Past, rows: Rows) -> None:
        self.past: Past | None = past
        """None: it was forgotten in this batch."""
        self.rows = rows
        self.pages: dict[int, dict[str, bool]] = {
            number: dict(page) for number, page in rows.scan(None, PAGES + 1)
        }
        """By page number: message id → evicted since."""
        self.changed: set[int] = set()
        """Numbers of the pages that are not stored yet."""

    def page_of(self, message_id: str) -> int | None:
        """The newest page that contains the message."""
        return next(
            (n for n in sorted(self.pages, reverse=True) if message_id in self.pages[n]), None
        )

    def change(self, page: int) -> int:
        """Have a page stored with this batch; returns its bytes if it was not changed before."""
        if page in self.changed:
            return 0
        self.changed.add(page)
        return 2 * len("".join(self.pages[page]).encode(errors="replace"))  # about as JSON


class SettlementHistory:
    """The ended deliveries of one queue."""

    __slots__ = ("_by_consumer", "_departed", "_past", "_queue", "_write_set", "departures")

    def __init__(self, write_set: WriteSet, queue: str, departures: tuple[int, int]) -> None:
        self._write_set = write_set
        self._queue = queue
        self._by_consumer: dict[str, ConsumerHistory] = {}
        self._past: Rows | None = None
        self._departed: Rows | None = None
        self.departures = departures
        """The last detach that was forgotten, and the last one."""

    @property
    def past(self) -> Rows:
        """Consumers that have ever attached, by name."""
        table = self._past
        if table is None:
            table = self._past = Rows(self._write_set, Kind.PAST, self._queue)
        return table

    @property
    def departed(self) -> Rows:
        """Names of detached consumers, by the number of the detach."""
        table = self._departed
        if table is None:
            table = self._departed = Rows(self._write_set, Kind.DEPARTED, self._queue)
        return table

    def of(self, consumer: str) -> ConsumerHistory:
        """The history of one consumer, decoded."""
        known = self._by_consumer.get(consumer)
        return known or self._decode(consumer, self.past.get(consumer) or Past(0, 0))

    def _decode(self, consumer: str, past: Past) -> ConsumerHistory:
        rows = Rows(self._write_set, Kind.ENDED, self._queue, consumer)
        known = self._by_consumer[consumer] = ConsumerHistory(past, rows)
        return known

    def _remembered(self, consumer: str) -> ConsumerHistory | None:
        """The history of a consumer; None: it never attached, or is forgotten."""
        known = self._by_consumer.get(consumer)
        if known is not None:
            return None if known.past is None else known
        past = self.past.get(consumer)
        return None if past is None else self._decode(consumer, past)

    def classify(self, consumer: str, message_id: str) -> Refusal:
        """Why a consumer has no open delivery of this message (R103)."""
        known = self._remembered(consumer)
        if known is None:
            return Refusal.BAD_COMMAND
        page = known.page_of(message_id)
        if page is None:
            return Refusal.UNKNOWN_DELIVERY
        return Refusal.EVICTED if known.pages[page][message_id] else Refusal.STALE_DELIVERY

    # --- what transitions have it remember -------------------------------------------------------

    def arrive(self, consumer: str) -> None:
        """A consumer attached. What is remembered under its name stays valid."""
        known = self.of(consumer)
        known.past = (known.past or Past(0, 0))._replace(departure=0)

    def depart(self, consumer: str) -> None:
        """A consumer detached. It is remembered until enough others have detached after it."""
        forgotten, given = self.departures
        given += 1
        known = self.of(consumer)
        known.past = (known.past or Past(0, 0))._replace(departure=given)
        self.departed.put_new(given, consumer)
        if given - forgotten > limits.DEPARTED_REMEMBERED:
            forgotten += 1
            self._forget_departure(forgotten)
        self.departures = (forgotten, given)

    def _forget_departure(self, number: int) -> None:
        name = self.departed.get(number)
        self.departed.delete(number)
        if name is not None:
            past = self.of(name).past
            if past is not None and past.departure == number:
                self._erase_consumer(name)

    def remember(self, consumer: str, message_id: str) -> int:
        """A delivery of that message to that consumer has ended.

        Returns:
            Bytes of the page that is written because of it; 0: the batch has changed it before.
        """
        known = self.of(consumer)
        past = known.past or Past(0, 0)
        known.past = create(_PAST, past.ended + 1, past.departure)
        page = past.ended // PAGE
        entries = known.pages.get(page)
        if entries is None:
            entries = known.pages[page] = {}
            if page - PAGES in known.pages:
                del known.pages[page - PAGES]
                known.changed.add(page - PAGES)
        entries[message_id] = False
        return known.change(page)

    def mark_evicted(self, holders: Iterable[str], message_id: str) -> int:
        """A message that these consumers once held was evicted. Returns bytes as `remember`.

        One that is forgotten stays so: in memory it may still be known, which must not matter.
        """
        size_bytes = 0
        for consumer in holders:
            known = self._remembered(consumer)
            if known is None:
                continue
            page = known.page_of(message_id)
            if page is not None:
                known.pages[page][message_id] = True
                size_bytes += known.change(page)
        return size_bytes

    def erase(self) -> None:
        """Delete all rows: the queue is deleted."""
        self.save()
        for name, _ in self.past.scan_all(None, self._write_set.refill):
            self._erase_consumer(name)
        forgotten, given = self.departures
        for number in range(forgotten + 1, given + 1):
            self.departed.delete(number)

    def _erase_consumer(self, name: str) -> None:
        known = self.of(name)
        for number in known.pages:
            known.rows.delete(number)
        known.pages.clear()
        known.changed.clear()
        known.past = None
        self.past.delete(name)

    def save(self) -> None:
        """Store what has changed."""
        if not self._by_consumer:
            return
        for consumer, known in self._by_consumer.items():
            if known.past is not None and self.past.get(consumer) != known.past:
                self.past.put(consumer, known.past)
            for number in sorted(known.changed):
                page = known.pages.get(number)
                if page is None:
                    known.rows.delete(number)
                else:
                    known.rows.put(number, tuple(page.items()))
            known.changed.clear()
        if len(self._by_consumer) > _CONSUMERS_DECODED:
            stored = [name for name, known in self._by_consumer.items() if not known.rows.is_dirty]
            for name in stored:
                if not self._by_consumer[name].rows.in_flight:
                    del self._by_consumer[name]
