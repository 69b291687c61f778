"""Records ended deliveries, so that a late settle gets its reason (R103)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ringfaust.core import limits
from ringfaust.core.create import create
from ringfaust.core.settlement_history import PAGE, PAGES, Past, SettlementHistory

_PAST: Final = Past


def arrive(history: SettlementHistory, consumer: str) -> None:
    """A consumer attached. What is remembered under its name stays valid."""
    known = history.of(consumer)
    known.past = (known.past or Past(0, 0))._replace(departure=0)


def depart(history: SettlementHistory, consumer: str) -> None:
    """A consumer detached. It is remembered until enough others have detached after it."""
    forgotten, given = history.departures
    given += 1
    known = history.of(consumer)
    known.past = (known.past or Past(0, 0))._replace(departure=given)
    history.departed.put_new(given, consumer)
    if given - forgotten > limits.DEPARTED_REMEMBERED:
        forgotten += 1
        _forget_departure(history, forgotten)
    history.departures = (forgotten, given)


def _forget_departure(history: SettlementHistory, number: int) -> None:
    name = history.departed.get(number)
    history.departed.delete(number)
    if name is not None:
        past = history.of(name).past
        if past is not None and past.departure == number:
            _erase_consumer(history, name)


def remember(history: SettlementHistory, consumer: str, message_id: str) -> None:
    """A delivery of that message to that consumer has ended."""
    known = history.of(consumer)
    past = known.past or Past(0, 0)
    known.past = create(_PAST, past.ended + 1, past.departure)
    page = past.ended // PAGE
    if page not in known.pages:
        known.pages[page] = {}
        if page - PAGES in known.pages:
            del known.pages[page - PAGES]
            known.changed.add(page - PAGES)
    known.pages[page][message_id] = False
    known.changed.add(page)


def mark_evicted(history: SettlementHistory, holders: Iterable[str], message_id: str) -> None:
    """A message that these consumers once held was evicted."""
    for consumer in holders:
        known = history.of(consumer)
        page = known.page_of(message_id)
        if page is not None:
            known.pages[page][message_id] = True
            known.changed.add(page)


def erase(history: SettlementHistory) -> None:
    """Delete all rows: the queue is deleted."""
    history.save()
    for name in history.all_consumers():
        _erase_consumer(history, name)
    forgotten, given = history.departures
    for number in range(forgotten + 1, given + 1):
        history.departed.delete(number)


def _erase_consumer(history: SettlementHistory, name: str) -> None:
    known = history.of(name)
    for number in known.pages:
        known.rows.delete(number)
    known.pages.clear()
    known.changed.clear()
    known.past = None
    history.past.delete(name)
