"""Message groups: their owners, and how many of their messages are in the queue (R14, R116).

A group has a row while one of its messages is in the queue. Without a message it is *idle*: its
owner is remembered until `max_groups` others have become idle after it.
"""

from __future__ import annotations

from ringfaust.core.model import Consumer, Group, Message
from ringfaust.core.queue import Queue

_FORGOTTEN_AT_ONCE = 2
"""One would do. With two, the rows also become fewer after `max_groups` was lowered."""


def enter(queue: Queue, message: Message) -> None:
    """A message of a group enters the queue."""
    row: Group = queue.groups.get(message.group) or Group(0, 0)
    if row.idle:
        queue.idle_groups.delete(row.idle)
        queue.idle -= 1
    queue.groups.put(message.group, Group(row.owner, row.messages + 1))


def leave(queue: Queue, message: Message) -> None:
    """A message of a group leaves the queue."""
    row: Group = queue.groups.get(message.group) or Group(0, 0)
    # Messages from before groups were counted are in no count.
    messages = row.messages - (message.sequence >= queue.counted_from)
    if messages:
        queue.groups.put(message.group, row._replace(messages=messages))
    elif queue.owner_of(row) is None:
        _forget(queue, message.group)
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
        _forget(queue, oldest[1])


def _forget(queue: Queue, group: str) -> None:
    row: Group | None = queue.groups.get(group)
    queue.groups.delete(group)
    if row is not None and row.idle:
        queue.idle_groups.delete(row.idle)
        queue.idle -= 1


def set_owner(queue: Queue, group: str, consumer: Consumer) -> None:
    """The consumer that got the group's first message gets the others as well (R14)."""
    row: Group = queue.groups.get(group) or Group(0, 0)
    queue.groups.put(group, row._replace(owner=consumer.order))


def erase(queue: Queue) -> None:
    """Delete all rows: the queue is deleted."""
    for group in queue.all_groups():
        _forget(queue, group)
