"""The arrows out of a queue other than by an ack: evicted, expired, dead, lost, removed, moved out.

What is called `leave_…` records the way out of a message that is in no table any more. Most of them
write its body once more, so they count its bytes (R121).
"""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core import effects as e
from ringfaust.core import limits, new
from ringfaust.core.model import DeadReason, Delivery, EvictReason, Message, cost_bytes
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.placing import take_out, unplace, unschedule, unweigh
from ringfaust.core.work import Work


def evict(work: Work, queue: Queue, message: Message, reason: EvictReason, cause: str) -> None:
    """Evict a ready message; one that has expired leaves as expired (R3).

    `cause`: the id of the message that needs the space, or empty.
    """
    unplace(queue, message)
    expires_at_ms = message.expires_at_ms
    if expires_at_ms and queue.policy.has_expired(expires_at_ms, work.now):
        leave_expired(work, queue, message)
    else:
        leave_evicted(work, queue, message, reason, cause)


def leave_evicted(
    work: Work, queue: Queue, message: Message, reason: EvictReason, cause: str
) -> None:
    """Record the eviction of a message that is in no table any more (R6)."""
    unweigh(queue, message)
    work.left_bytes -= cost_bytes(message)
    queue.counts.evicted += 1
    if message.holders:
        work.weigh(queue.history.mark_evicted(message.holders, message.id))
    spec = queue.spec
    work.effects.append(
        new.evicted(
            queue.name, message, reason, cause, spec.ring_size, queue.counts.ready,
            work.now, spec.evicted_payload,
        )
    )  # fmt: skip


def evict_down_to(work: Work, queue: Queue, ready: int, reason: EvictReason) -> bool:
    """Evict ready messages, lowest position first, until so many are left (R5, R90).

    Returns:
        False if the transaction is full before that (R114).
    """
    while queue.counts.ready > ready:
        if not work.has_room:
            return False
        work.spend(0)
        evict(work, queue, queue.lowest(), reason, "")
    return True


def expire(work: Work, queue: Queue) -> None:
    """Expire messages before a command, by (time, sequence), as many as one command may (R50)."""
    if queue.expiring:
        expire_in(work, [queue])


def expire_in(work: Work, queues: Iterable[Queue]) -> None:
    """The same in several queues, one after the other: as many as one command may, in all."""
    last_bytes, left = work.left_bytes - limits.EXPIRE_BYTES, limits.SWEEP_AT_ONCE
    for queue in queues:
        while left and work.left_bytes > last_bytes and _expire_next(work, queue):
            left -= 1


def expire_until(work: Work, queue: Queue, most: int) -> int:
    """Expire up to `most` messages, until the transaction is full (R32, R121); how many left."""
    done = 0
    while done < most and work.has_room and _expire_next(work, queue):
        done += 1
    return done


def _expire_next(work: Work, queue: Queue) -> bool:
    """Expire the message that expired first; False if there is none."""
    found = queue.first_expired(work.now)
    if found is None:
        return False
    message, is_scheduled = found
    if is_scheduled:
        unschedule(queue, message)
    else:
        unplace(queue, message)
    work.spend(0)
    leave_expired(work, queue, message)
    return True


def leave_expired(work: Work, queue: Queue, message: Message, delivery: int = 0) -> None:
    """Record that a message expired (R50); `delivery`: the one that ended with it, or 0."""
    unweigh(queue, message)
    work.left_bytes -= cost_bytes(message)
    queue.counts.expired += 1
    last_holder = message.holders[-1] if message.holders else ""
    work.effects.append(e.Expired(queue.name, message, last_holder, delivery))


def leave_dead(work: Work, queue: Queue, delivery: Delivery, reason: DeadReason, text: str) -> None:
    """Send a message to the dead topic (R42)."""
    unweigh(queue, delivery.message)
    work.left_bytes -= cost_bytes(delivery.message)
    queue.counts.dead += 1
    work.effects.append(e.Dead(queue.name, delivery.message, reason, delivery.consumer, text))


def lose(work: Work, queue: Queue, message: Message) -> None:
    """Drop a ready or scheduled message whose body a crash has taken (R82)."""
    take_out(queue, message)
    leave_lost(work, queue, message)


def leave_lost(work: Work, queue: Queue, message: Message, delivery: int = 0) -> None:
    """Record that a crash has taken a message (R82); `delivery`: the one that ended with it."""
    unweigh(queue, message)
    queue.counts.lost += 1
    work.effects.append(e.Lost(queue.name, message, delivery))


def remove(work: Work, queue: Queue, message: Message) -> None:
    """Remove a ready or scheduled message for an operator (R34, R90)."""
    take_out(queue, message)
    unweigh(queue, message)
    queue.counts.removed += 1
    work.effects.append(e.Removed(queue.name, message))


def move_out(work: Work, queue: Queue, message: Message, target: Queue) -> None:
    """Remove a ready or scheduled message that an operator moves to another queue (R90)."""
    take_out(queue, message)
    unweigh(queue, message)
    queue.counts.moved_out += 1
    work.effects.append(e.MovedOut(queue.name, message, target.name))
