"""The look for lost bodies, which comes first whenever a partition is opened (R82).

It reads the messages of all queues that have one that is not persistent, in as many transactions as
that takes (R121). How far it has come is not stored: after a crash it begins again.
"""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import Looked, cost_bytes
from ringfaust.core.transitions.leaving import lose
from ringfaust.core.work import Work

_SCHEDULED = limits.PRIORITIES
"""In a place, instead of a level: the schedule, which comes last."""


def look(work: Work) -> None:
    """Drop what a crash has taken, as much as fits into this transaction."""
    work.looked = _look(work, work.looked or Looked(""))


def _look(work: Work, looked: Looked) -> Looked | None:
    after, place = looked
    if place is not None and (place := _look_at(work, after, place)) is not None:
        return Looked(after, place)
    for name, row in work.state.queue_rows.scan_all(after, limits.REFILL):
        work.weigh(limits.ROW_COST_BYTES)
        if row.non_persistent and (place := _look_at(work, name, (0, None))) is not None:
            return Looked(name, place)
        if not work.has_room:
            return Looked(name)
    return None


def _look_at(work: Work, name: str, place: tuple[int, int | None]) -> tuple[int, int | None] | None:
    """Look at the messages of a queue behind a place; the next place, or None at the end."""
    is_new, lost = name not in work.state.queues, False
    queue = work.state.queue(name)
    assert queue is not None, "it has a row"
    for level in range(place[0], _SCHEDULED + 1):
        if level > place[0]:
            place = (level, None)
        if not (queue.counts.scheduled if level == _SCHEDULED else queue.level_counts[level]):
            continue
        table = queue.scheduled if level == _SCHEDULED else queue.level(level)
        for key, message in table.walk(place[1]):
            if not work.has_room:
                return place
            work.spend(0 if message.is_bodyless else cost_bytes(message))
            place = (level, key)
            if message.is_bodyless:
                if not work.effects:
                    work.keep()
                work.state.use(queue)
                lose(work, queue, message)
                lost = True
    if is_new and not lost:
        work.state.forget_queue(queue)
    return None
