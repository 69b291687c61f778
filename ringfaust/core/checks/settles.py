"""Checks the commands that settle deliveries: ack, release, reject (R16, R23, R41)."""

from __future__ import annotations

from typing import Any, Final

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.checks.refusal import CommandRefused, bad, check_turn, known_queue
from ringfaust.core.checks.xids import find_own, too_many_operations
from ringfaust.core.create import create
from ringfaust.core.model import AckMode, Consumer, Delivery, Refusal, Stage
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.opening import covered
from ringfaust.core.transitions.settling import (
    ACCEPT,
    ACCEPT_ALL,
    ACCEPT_MANY,
    ALIVE,
    EXPIRE,
    REJECT,
    RELEASE,
)
from ringfaust.core.transitions.xids import HOLD_ACK
from ringfaust.core.work import Work

_STAGE: Final[Any] = Stage
_CLIENT: Final = AckMode.CLIENT
"""mypyc looks up the names of another module, and the members of an enum, at each use."""

_NO_DELIVERY = {
    Refusal.BAD_COMMAND: "no consumer of that name ever attached to this queue",
    Refusal.UNKNOWN_DELIVERY: "this consumer never held that message, or too long ago",
    Refusal.STALE_DELIVERY: "the delivery was settled or returned",
    Refusal.EVICTED: "the delivery returned, and the message was evicted since",
}


def ack(work: Work, ack: c.Ack) -> list[Stage]:
    """Settle a delivery as accepted; in mode `client` also all before it (R16)."""
    if ack.xid:
        return _ack_in_xid(work, ack)
    queue, consumer, delivery = _find_delivery(work, ack)
    if consumer.ack_mode is _CLIENT:
        return [Stage(ACCEPT_ALL, queue.name, (consumer, delivery.number))]
    return [create(_STAGE, ACCEPT, queue.name, (consumer, delivery))]


def _ack_in_xid(work: Work, ack: c.Ack) -> list[Stage]:
    """Hold an ack until its transaction is decided (R81)."""
    number, row = find_own(work, ack.xid, ack.owner)
    queue, consumer, delivery = _find_delivery(work, ack)
    settled = covered(work, queue, consumer, delivery.number)
    check_turn(work)
    if row.operations + len(settled) > limits.XID_OPERATIONS:
        raise too_many_operations(ack.xid)
    return [Stage(HOLD_ACK, queue.name, (number, consumer, delivery))]


def ack_many(work: Work, ack: c.AckMany) -> list[Stage]:
    """Settle several deliveries of a consumer as accepted; refuse those that have ended."""
    queue = known_queue(work, ack.queue)
    check_turn(work)
    consumer = queue.consumers.get(ack.consumer)
    found: dict[int, None] = {}
    for number, message_id in ack.deliveries:
        held = _held(consumer, message_id, number)
        if held and held not in found:
            found[held] = None
            continue
        reason = Refusal.STALE_DELIVERY
        if not held:
            reason = _why_not_held(work, queue, c.Ack(queue.name, ack.consumer, message_id, number))
        if reason is Refusal.BAD_COMMAND:
            raise CommandRefused(reason, message_id, _NO_DELIVERY[reason])
        text = _NO_DELIVERY[reason]
        names = len(queue.name) + len(message_id)
        work.spend(limits.REFUSAL_COST_BYTES + limits.NAME_COST_BYTES * names)
        work.effects.append(e.Refused(queue.name, reason, message_id, text, number))
    if consumer is None or not found:
        return []
    if consumer.ack_mode is _CLIENT:
        return [Stage(ACCEPT_ALL, queue.name, (consumer, max(found)))]
    return [
        Stage(ALIVE, queue.name, (consumer.name,)),
        Stage(EXPIRE, queue.name),
        Stage(ACCEPT_MANY, queue.name, (consumer.name, list(found))),
    ]


def release(work: Work, release: c.Release) -> list[Stage]:
    """Return one delivery (R23)."""
    if release.delay_ms is not None and not 0 <= release.delay_ms <= limits.TIME_MS:
        raise bad(release.message, f"delay_ms must be 0 or more, not {release.delay_ms}")
    queue, consumer, delivery = _find_delivery(work, release)
    return [Stage(RELEASE, queue.name, (consumer, delivery, release.delay_ms))]


def reject(work: Work, reject: c.Reject) -> list[Stage]:
    """Settle a delivery as dead (R41)."""
    queue, consumer, delivery = _find_delivery(work, reject)
    return [Stage(REJECT, queue.name, (consumer, delivery, reject.text))]


def _find_delivery(
    work: Work, settle: c.Ack | c.Release | c.Reject
) -> tuple[Queue, Consumer, Delivery]:
    """The delivery that a consumer settles.

    Raises:
        CommandRefused: there is none; with the reason that R103 names.
        InTurn: something comes before it.
    """
    queue = known_queue(work, settle.queue)
    check_turn(work)
    consumer = queue.consumers.get(settle.consumer)
    number = _held(consumer, settle.message, settle.delivery)
    if consumer is None or not number:
        reason = _why_not_held(work, queue, settle)
        raise CommandRefused(reason, settle.message, _NO_DELIVERY[reason])
    delivery: Delivery | None = queue.deliveries.get(number)
    assert delivery is not None
    return queue, consumer, delivery


def _held(consumer: Consumer | None, message_id: str, number: int) -> int:
    """The delivery of that message that the consumer may settle; 0: there is none.

    `number` 0: the oldest.
    """
    held = consumer.held.get(message_id) if consumer is not None else None
    if consumer is None or held is None:
        return 0
    if number:
        return number if number in held and number in consumer.positions else 0
    for each in held:
        if each in consumer.positions:  # it is not settled in a transaction
            return each
    return 0


def _why_not_held(work: Work, queue: Queue, settle: c.Ack | c.Release | c.Reject) -> Refusal:
    """Why a consumer may not settle this delivery (R103)."""
    consumer = queue.consumers.get(settle.consumer)
    numbers = consumer.held.get(settle.message, ()) if consumer else ()
    reason = queue.history.classify(settle.consumer, settle.message)
    is_held = settle.delivery in numbers if settle.delivery else bool(numbers)
    if is_held or _is_orphaned(work, queue, settle):
        return Refusal.STALE_DELIVERY  # settled in an undecided transaction
    return reason


def _is_orphaned(work: Work, queue: Queue, settle: c.Ack | c.Release | c.Reject) -> bool:
    """Tell whether a detached consumer has settled this in an undecided transaction (R81, R103)."""
    wanted = (settle.consumer, settle.message)
    if settle.delivery:
        return queue.orphans.get(settle.delivery) == wanted
    work.weigh(limits.LOOK_COST_BYTES * len(queue.orphans))
    return wanted in queue.orphans.values()
