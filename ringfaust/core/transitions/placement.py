"""Puts messages into the tables of ready and scheduled messages, and takes them out."""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import Message, timed_key
from ringfaust.core.queue import SCHEDULED, Queue
from ringfaust.core.transitions import groups, sent_ids

_LOWEST = limits.PRIORITIES - 1


def place(queue: Queue, message: Message) -> None:
    """Make a message ready, at its position."""
    level = _LOWEST - message.priority
    # As `level_of`, but without the call: this is the hot path.
    (queue.levels.get(level) or queue.level(level)).put_new(message.position, message)
    queue.last_level = level
    queue.level_counts[level] += 1
    queue.counts.ready += 1
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


def weigh(queue: Queue, message: Message) -> None:
    """Count a message that enters the queue: its bytes, in its group, and in the dedup window."""
    queue.size_bytes += message.size_bytes
    if not message.persistent:
        queue.non_persistent += 1
    if message.group:
        groups.enter(queue, message)
    if queue.dedups:
        sent_ids.remember(queue, message)


def unweigh(queue: Queue, message: Message) -> None:
    """Uncount a message that leaves the queue."""
    queue.size_bytes -= message.size_bytes
    if not message.persistent:
        queue.non_persistent -= 1
    if message.group:
        groups.leave(queue, message)


def _watch_expiry(queue: Queue, message: Message, level: int, key: int) -> None:
    queue.expiry.put_new(timed_key(message.expires_at_ms, message.sequence), (level, key))
    queue.expiring += 1


def _unwatch_expiry(queue: Queue, message: Message) -> None:
    queue.expiry.delete(timed_key(message.expires_at_ms, message.sequence))
    queue.expiring -= 1
