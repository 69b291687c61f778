"""Puts messages into the ring and the schedule, takes them out, and counts them.

Nothing here decides anything: every caller is an arrow of the graph in this package's header. Three
accounts go with each message: the bytes of its queue, its message group, and its id.

A *group* has a row while one of its messages is in the queue. Without a message it is idle: its
owner is remembered until `max_groups` others have become idle after it (R14, R116).

The *ids* of what came into a queue with a dedup window are remembered (R119). Only messages that
follow make it forget. Time alone does not: while a worker is down or behind, the repeats wait in
the log with the messages they repeat.
"""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import Consumer, Group, Message, timed_key
from ringfaust.core.queue import SCHEDULED, Queue
from ringfaust.core.sent_ids import PAGE, SentId, SentPage
from ringfaust.core.work import Work

_LOWEST = limits.PRIORITIES - 1

_FORGOTTEN_AT_ONCE = 2
"""Idle groups, and pages of ids. One would do. With two, the rows also become fewer after
`max_groups` was lowered, or the window shortened."""


def place(work: Work, queue: Queue, message: Message) -> None:
    """Make a message ready, at its position."""
    level = _LOWEST - message.priority
    # As `level_of`, but without the call: this is the hot path.
    (queue.levels.get(level) or queue.level(level)).put_new(message.position, message)
    queue.last_level = level
    queue.level_counts[level] += 1
    queue.counts.ready += 1
    if message.position <= queue.scanned[level]:
        work.weigh(limits.SCAN_COST_BYTES * len(queue.scans))
        for scan in queue.scans.values():
            scan.placed(level, message.position)
    if message.expires_at_ms:
        _watch_expiry(queue, message, level, message.position)


def unplace(queue: Queue, message: Message) -> None:
    """Take a ready message out of the ring."""
    level = _LOWEST - message.priority
    (queue.levels.get(level) or queue.level(level)).delete(message.position)
    queue.level_counts[level] -= 1
    queue.counts.ready -= 1
    if message.expires_at_ms:
        _unwatch_expiry(queue, message)


def schedule(queue: Queue, message: Message) -> None:
    """Store a message until its `due_ms` (R30)."""
    key = timed_key(message.due_ms, message.sequence)
    queue.scheduled.put_new(key, message)
    queue.counts.scheduled += 1
    if message.expires_at_ms:
        _watch_expiry(queue, message, SCHEDULED, key)


def unschedule(queue: Queue, message: Message) -> None:
    """Take a message out of the schedule."""
    queue.scheduled.delete(timed_key(message.due_ms, message.sequence))
    queue.counts.scheduled -= 1
    if message.expires_at_ms:
        _unwatch_expiry(queue, message)


def take_out(queue: Queue, message: Message) -> None:
    """Take a message out of the ring or, if it is not ready, out of the schedule."""
    if queue.is_ready(message):
        unplace(queue, message)
    else:
        unschedule(queue, message)


def weigh(queue: Queue, message: Message) -> int:
    """Count a message that enters the queue: its bytes, in its group, and in the dedup window.

    Returns:
        What the dedup window counts among the bytes of a step (R121).
    """
    queue.size_bytes += message.size_bytes
    if not message.persistent:
        queue.non_persistent += 1
    if message.group:
        _enter_group(queue, message)
    return _remember_id(queue, message) if queue.dedups else 0


def unweigh(queue: Queue, message: Message) -> None:
    """Uncount a message that leaves the queue."""
    queue.size_bytes -= message.size_bytes
    if not message.persistent:
        queue.non_persistent -= 1
    if message.group:
        _leave_group(queue, message)


def _watch_expiry(queue: Queue, message: Message, level: int, key: int) -> None:
    queue.expiry.put_new(timed_key(message.expires_at_ms, message.sequence), (level, key))
    queue.expiring += 1


def _unwatch_expiry(queue: Queue, message: Message) -> None:
    queue.expiry.delete(timed_key(message.expires_at_ms, message.sequence))
    queue.expiring -= 1


# --- message groups ------------------------------------------------------------------------------


def _enter_group(queue: Queue, message: Message) -> None:
    """A message of a group enters the queue."""
    row: Group = queue.groups.get(message.group) or Group(0, 0)
    if row.idle:
        queue.idle_groups.delete(row.idle)
        queue.idle -= 1
    queue.groups.put(message.group, Group(row.owner, row.messages + 1))


def _leave_group(queue: Queue, message: Message) -> None:
    """A message of a group leaves the queue."""
    row: Group = queue.groups.get(message.group) or Group(0, 0)
    # Messages from before groups were counted are in no count.
    messages = row.messages - (message.sequence >= queue.counted_from)
    if messages:
        queue.groups.put(message.group, row._replace(messages=messages))
    elif queue.owner_of(row) is None:
        _forget_group(queue, message.group)
    elif not row.idle:
        _become_idle(queue, message.group, row)


def _become_idle(queue: Queue, group: str, row: Group) -> None:
    queue.last_idle = number = queue.last_idle + 1
    queue.idle += 1
    queue.idle_groups.put_new(number, group)
    queue.groups.put(group, Group(row.owner, 0, number))
    for _ in range(_FORGOTTEN_AT_ONCE):
        oldest = queue.idle_groups.first()
        if oldest is None or queue.idle <= queue.spec.max_groups:
            return
        _forget_group(queue, oldest[1])


def _forget_group(queue: Queue, group: str) -> None:
    row: Group | None = queue.groups.get(group)
    queue.groups.delete(group)
    if row is not None and row.idle:
        queue.idle_groups.delete(row.idle)
        queue.idle -= 1


def set_group_owner(queue: Queue, group: str, consumer: Consumer) -> None:
    """The consumer that got the group's first message gets the others as well (R14)."""
    row: Group = queue.groups.get(group) or Group(0, 0)
    queue.groups.put(group, row._replace(owner=consumer.order))


def erase_groups(work: Work, queue: Queue) -> bool:
    """Delete all rows: the queue is deleted.

    Returns:
        False if the transaction is full before that (R114).
    """
    for group, _ in queue.groups.scan_all(None, queue.write_set.refill):
        if not work.has_room:
            return False
        work.spend(limits.NAME_COST_BYTES * len(group))
        _forget_group(queue, group)
    return True


# --- the dedup window ----------------------------------------------------------------------------


def _remember_id(queue: Queue, message: Message) -> int:
    """A message came in. If its producer gave it no id, no other message can repeat it.

    Returns:
        Bytes of the page that its id is written to; 0: this batch writes that already.
    """
    if not message.payload.is_named(message.id):
        return 0
    sent_ms = message.enqueued_ms
    ids = queue.sent_ids()
    forgotten, number = queue.sent_bounds
    page: SentPage = ids.pages.get(number // PAGE) or SentPage(0, ())
    is_written = number // PAGE in ids.pages.born or number // PAGE in ids.pages.changed
    last_ms = max(page.last_ms, sent_ms)
    ids.by_id.put(message.id, SentId(number, sent_ms, message.sequence))
    ids.pages.put(number // PAGE, SentPage(last_ms, (*page.ids, message.id)))
    queue.sent_bounds = (forgotten, number + 1)
    if (number + 1) % PAGE == 0:
        _forget_old_ids(queue, sent_ms)
    return 0 if is_written else limits.TEXT_COST_BYTES * sum([len(each) for each in page.ids])


def _forget_old_ids(queue: Queue, now_ms: int) -> None:
    """A page is full: forget the oldest that are outside the window or too many."""
    for _ in range(_FORGOTTEN_AT_ONCE):
        forgotten, remembered = queue.sent_bounds
        oldest: SentPage = queue.sent_ids().pages.get(forgotten // PAGE)  # type: ignore[assignment]
        is_old = oldest.last_ms + queue.spec.dedup_window <= now_ms
        if not is_old and remembered - forgotten <= limits.SENT_IDS:
            return
        forget_ids(queue)


def forget_ids(queue: Queue) -> tuple[str, ...]:
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
