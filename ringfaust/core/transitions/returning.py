"""How deliveries come back: dead, expired, evicted, scheduled or ready again (R20-R24, R40)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from zlib import crc32

from ringfaust.core import effects as e
from ringfaust.core import limits, new
from ringfaust.core.model import Consumer, DeadReason, Delivery, EvictReason, Message, cost_bytes
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.delivering import end
from ringfaust.core.transitions.leaving import leave_dead, leave_evicted, leave_expired, leave_lost
from ringfaust.core.transitions.placing import place, schedule
from ringfaust.core.work import Work


def requeue(
    work: Work,
    queue: Queue,
    held: Delivery,
    *,
    delayed: bool,
    delay_ms: int | None = None,
    clean: bool = False,
    acked: bool = False,
    rank: int = 0,
) -> None:
    """Return one delivery (R20-R24, R40). Dispatch comes after the set that it belongs to.

    Args:
        work: of the step.
        queue: where it returns to.
        held: the delivery.
        delayed: a redelivery delay applies.
        delay_ms: this delay instead of the queue's; uncapped.
        clean: the attempt is taken back, as the consumer detached cleanly.
        acked: it was acked in the transaction that is rolled back.
        rank: its place among those that return with it (C2); 0: it is released alone.
    """
    policy = queue.policy
    was_tried = policy.was_tried(clean, delayed, acked)
    delivery = _ended(work, queue, held, was_tried=was_tried)
    if delivery is None:
        return
    wait_ms = 0
    if delayed:
        wait_ms = _redelivery_delay_ms(queue, delivery.message) if delay_ms is None else delay_ms
    is_tested = rank > 0 if policy.ends_set_first else not wait_ms  # C3, C8
    _return(work, queue, delivery, wait_ms, tested=is_tested, rank=rank or 1)


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
    return not requeue_some(work, queue, numbers, delayed=delayed, clean=clean)


def requeue_some(
    work: Work,
    queue: Queue,
    numbers: Sequence[int],
    *,
    delayed: bool,
    clean: bool = False,
    acked: Container[int] = (),
) -> Sequence[int]:
    """Return as many deliveries of a set as fit into this transaction.

    Args:
        work: of the step.
        queue: where they return to.
        numbers: those that are left of the set, in the order in which they end.
        delayed: as for `requeue`, and so is `clean`.
        clean: see there.
        acked: those of them that were acked in the transaction that is rolled back.

    Returns:
        Those that are still left (R114).
    """
    if queue.policy.ends_set_first:
        ended = _end_leaving(work, queue, numbers, delayed, clean=clean, acked=acked)
        return _return_last_first(work, queue, *ended, delayed=delayed, clean=clean, acked=acked)
    for done, number in enumerate(numbers):
        if not work.has_room:
            return numbers[done:]
        held: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        work.spend(0)
        requeue(work, queue, held, delayed=delayed, clean=clean, acked=number in acked)
    return ()


def _return_last_first(
    work: Work,
    queue: Queue,
    staying: list[int],
    unchecked: Sequence[int],
    *,
    delayed: bool,
    clean: bool,
    acked: Container[int],
) -> Sequence[int]:
    """Return those of a set that stay, once the others have ended; those that are left (C2)."""
    while staying and not unchecked and work.has_room:
        rank, number = len(staying), staying.pop()
        held: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        work.spend(0)
        requeue(
            work, queue, held, delayed=delayed, clean=clean, acked=number in acked, rank=rank
        )  # fmt: skip
    work.checked = staying[-1] if staying else 0
    return [*staying, *unchecked]


def _end_leaving(
    work: Work,
    queue: Queue,
    numbers: Sequence[int],
    delayed: bool,
    *,
    clean: bool,
    acked: Container[int],
) -> tuple[list[int], Sequence[int]]:
    """End those of a set that leave the queue, before the first of the others is placed (C2).

    As the others stay deliveries until they are placed, the next transaction can go on with them.

    Returns:
        Those that return, and those not looked at yet because the transaction is full.
    """
    checked, work.checked = work.checked, 0
    known = numbers.index(checked) + 1 if checked in numbers else 0
    staying = list(numbers[:known])
    for done in range(known, len(numbers)):
        if not work.has_room:
            return staying, numbers[done:]
        number = numbers[done]
        held: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        work.spend(cost_bytes(held.message))
        was_tried = queue.policy.was_tried(clean, delayed, number in acked)
        if _returns(work, queue, _tried(held.message, was_tried)):
            staying.append(number)
        else:
            _ended(work, queue, held, was_tried=was_tried)
    return staying, ()


def _tried(message: Message, was_tried: bool) -> Message:
    """A message whose delivery ends; without the attempt if that does not count (R40)."""
    return message if was_tried else message._replace(attempts=message.attempts - 1)


def _returns(work: Work, queue: Queue, message: Message) -> bool:
    """Whether it stays in the queue when its delivery ends (R40, R82)."""
    is_dead = 0 <= queue.spec.max_attempts <= message.attempts
    has_expired = queue.policy.has_expired(message.expires_at_ms, work.now)
    return not (message.is_bodyless or is_dead or has_expired)


def _ended(work: Work, queue: Queue, held: Delivery, *, was_tried: bool) -> Delivery | None:
    """End a delivery; None if its message leaves the queue with it (R40, R82)."""
    end(work, queue, held)
    work.left_bytes -= cost_bytes(held.message)
    message = _tried(held.message, was_tried)
    delivery = held._replace(message=message)
    if _returns(work, queue, message):
        return delivery
    if message.is_bodyless:
        leave_lost(work, queue, message, delivery.number)
    elif 0 <= queue.spec.max_attempts <= message.attempts:
        leave_dead(work, queue, delivery, DeadReason.UNDELIVERABLE, "")
    else:
        leave_expired(work, queue, message, delivery.number)
    return None


def _return(
    work: Work, queue: Queue, delivery: Delivery, wait_ms: int, *, tested: bool, rank: int
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
        position, looked_bytes = queue.policy.returned_position(message, queue.level_of(message))
        work.weigh(looked_bytes)
        message = new.at_position(message, position)
        place(work, queue, message)
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
