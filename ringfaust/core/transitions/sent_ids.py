"""Remembers the ids of the messages that come into a queue with a dedup window (R119).

Only messages that follow make it forget. Time alone does not: while a worker is down or behind, the
repeats wait in the log with the messages they repeat.
"""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import Message
from ringfaust.core.queue import Queue
from ringfaust.core.sent_ids import PAGE, SentId, SentPage

_PAGES_AT_ONCE = 2
"""One would do. With two, the rows also become fewer after the window was shortened."""


def remember(queue: Queue, message: Message) -> None:
    """A message came in. If its producer gave it no id, no other message can repeat it."""
    if not message.payload.is_named(message.id):
        return
    sent_ms = message.enqueued_ms
    ids = queue.sent_ids()
    forgotten, number = queue.sent_bounds
    page: SentPage = ids.pages.get(number // PAGE) or SentPage(0, ())
    last_ms = max(page.last_ms, sent_ms)
    ids.by_id.put(message.id, SentId(number, sent_ms, message.sequence))
    ids.pages.put(number // PAGE, SentPage(last_ms, (*page.ids, message.id)))
    queue.sent_bounds = (forgotten, number + 1)
    if (number + 1) % PAGE == 0:
        _forget_old(queue, sent_ms)


def _forget_old(queue: Queue, now_ms: int) -> None:
    """A page is full: forget the oldest that are outside the window or too many."""
    for _ in range(_PAGES_AT_ONCE):
        forgotten, remembered = queue.sent_bounds
        oldest: SentPage = queue.sent_ids().pages.get(forgotten // PAGE)  # type: ignore[assignment]
        is_old = oldest.last_ms + queue.spec.dedup_window <= now_ms
        if not is_old and remembered - forgotten <= limits.SENT_IDS:
            return
        forget_page(queue)


def forget_page(queue: Queue) -> tuple[str, ...]:
    """Forget the oldest page; returns its ids."""
    ids = queue.sent_ids()
    forgotten, remembered = queue.sent_bounds
    number = forgotten // PAGE
    page: SentPage = ids.pages.get(number)  # type: ignore[assignment]
    ids.pages.delete(number)
    for each in page.ids:
        row = ids.find(each)
        if row is not None and row.number // PAGE == number:  # else it has come again since
            ids.by_id.delete(each)
    forgotten = min((number + 1) * PAGE, remembered)
    queue.sent_bounds = (0, 0) if forgotten == remembered else (forgotten, remembered)
    return page.ids
