"""How deliveries come back: dead, expired, evicted, scheduled or ready again (R20-R24, R40)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from zlib import crc32

from ringfaust.core import effects as e
from ringfaust.core import limits, new
from ringfaust.core.model import Consumer, DeadReason, Delivery, EvictReason, Message, cost_bytes
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.delivering import end
from ringfaust.core.transitions.leaving import (
    leave_dead,
    leave_evicted,
    leave_expired,
    leave_lost,
)
from ringfaust.core.transitions.placing import place, schedule
from ringfaust.core.work import Work


def requeue(
    work: Work,
    queue: Queue,
    deliveries: Iterable[Delivery],
    *,
    delayed: bool,
    delay_ms: int | None = None,
    clean: bool = False,
    alone: bool = False,
    acked: Container[int] = (),
) -> None:
    """Return a set of deliveries, newest first (R20-R24, R40). Dispatch comes after the set.

    Args:
        work: of the step.
        queue: where they return to.
        deliveries: the set.
        delayed: a redelivery delay applies.
        delay_ms: this delay instead of the queue's; uncapped.
        clean: the attempt is taken back, as the consumer detached cleanly.
        alone: it is a single release.
        acked: numbers of those that were acked in the transaction that is rolled back.
    """
    policy = queue.policy
    staying = []
    for held in policy.ending_order(deliveries):
        was_tried = policy.was_tried(clean, delayed, held.number in acked)
        delivery = _ended(work, queue, held, was_tried=was_tried)
        if delivery is None:
            continue
        if policy.ends_set_first:
            staying.append(delivery)
            continue
        wait_ms = _wait_ms(queue, delivery, delayed, delay_ms)
        _return(work, queue, delivery, wait_ms, tested=not wait_ms)
    ranked = list(enumerate(staying, 1))
    for rank, delivery in ranked[::-1]:  # C2
        wait_ms = _wait_ms(queue, delivery, delayed, delay_ms)
        _return(work, queue, delivery, wait_ms, tested=not alone, rank=rank)  # C3, C8


def requeue_held(
    work: Work,
    queue: Queue,
    consumers: Iterable[Consumer],
    *,
    delayed: bool,
    clean: bool = False,
    last: int | None = None,
) -> bool:
    """Return what consumers hold, as one set: as much of it as fits into this transaction.

    Args:
        work: of the step.
        queue: where it returns to.
        consumers: who holds it.
        delayed: as for `requeue`, and so is `clean`.
        clean: see there.
        last: the last delivery to return; None: all.

    Returns:
        False if some of it is left (R114).
    """
    numbers = queue.returning(consumers, last)
    if queue.policy.ends_set_first:
        numbers.sort()
    return requeue_some(work, queue, numbers, delayed=delayed, clean=clean) == len(numbers)


def requeue_some(
    work: Work,
    queue: Queue,
    numbers: Sequence[int],
    *,
    delayed: bool,
    clean: bool = False,
    acked: Container[int] = (),
) -> int:
    """Return as many deliveries of a set as fit into this transaction.

    Args:
        work: of the step.
        queue: where they return to.
        numbers: those that are left of the set, in the order in which they end.
        delayed: as for `requeue`, and so are `clean` and `acked`.
        clean: see there.
        acked: see there.

    Returns:
        How many have returned (R114).
    """
    if queue.policy.ends_set_first:  # C2: the whole set ends before the first is placed
        held = []
        for number in numbers:
            work.spend(0)
            held.append(queue.deliveries.get(number))
        requeue(work, queue, held, delayed=delayed, clean=clean, acked=acked)  # type: ignore[arg-type]
        return len(numbers)
    for done, number in enumerate(numbers):
        if not work.has_room:
            return done
        delivery: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        work.spend(0)
        requeue(work, queue, [delivery], delayed=delayed, clean=clean, acked=acked)
    return len(numbers)


def _ended(work: Work, queue: Queue, held: Delivery, *, was_tried: bool) -> Delivery | None:
    """End a delivery; None if its message leaves the queue with it (R40, R82)."""
    end(work, queue, held)
    message = held.message
    work.left_bytes -= cost_bytes(message)
    if not was_tried:
        message = message._replace(attempts=message.attempts - 1)
    delivery = held._replace(message=message)
    if message.is_bodyless:
        leave_lost(work, queue, message)
    elif 0 <= queue.spec.max_attempts <= message.attempts:
        leave_dead(work, queue, delivery, DeadReason.UNDELIVERABLE, "")
    elif queue.policy.has_expired(message.expires_at_ms, work.now):
        leave_expired(work, queue, message, delivery.number)
    else:
        return delivery
    return None


def _wait_ms(queue: Queue, delivery: Delivery, delayed: bool, delay_ms: int | None) -> int:
    """How long the message waits before it is ready again (R40)."""
    if not delayed:
        return 0
    return _redelivery_delay_ms(queue, delivery.message) if delay_ms is None else delay_ms


def _return(
    work: Work, queue: Queue, delivery: Delivery, wait_ms: int, *, tested: bool, rank: int = 0
) -> None:
    """Put a message back into the ring or, if it has to wait, into the schedule (R21, R40).

    `rank`: its place among those that return with it (C2).
    """
    message = delivery.message
    if tested and 0 <= queue.spec.ring_size <= queue.counts.ready:
        leave_evicted(work, queue, message, EvictReason.RETURN_OVERFLOW, "")
    elif wait_ms:
        position = queue.policy.waiting_position(message, rank)
        message = message._replace(position=position, due_ms=work.now + wait_ms)
        schedule(queue, message)
        work.state.wake_by(queue, message.due_ms)
        work.effects.append(e.Returned(queue.name, delivery, message, message.due_ms))
    else:
        position = queue.policy.returned_position(message, queue.level_of(message))
        message = new.at_position(message, position)
        place(queue, message)
        work.effects.append(e.Returned(queue.name, delivery, message, 0))
    if message.expires_at_ms:
        work.state.wake_by(queue, message.expires_at_ms)


def _redelivery_delay_ms(queue: Queue, message: Message) -> int:
    """R40: delay × multiplier^(attempt−1) ± jitter, capped, in whole ms, rounded down."""
    spec = queue.spec
    if not spec.redelivery_delay:
        return 0
    cap = spec.redelivery_delay_max if spec.redelivery_delay_max >= 0 else limits.TIME_MS // 2
    try:
        growth = spec.redelivery_multiplier ** max(message.attempts - 1, 0)
        delay = spec.redelivery_delay * growth
    except OverflowError:
        return cap
    if spec.redelivery_jitter:
        draw = crc32(f"{message.id}/{message.attempts}".encode()) / 0xFFFFFFFF
        delay *= 1.0 + spec.redelivery_jitter * (2.0 * draw - 1.0)
    return int(min(delay, cap))
