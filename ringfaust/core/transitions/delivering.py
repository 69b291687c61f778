"""The arrows from ready to a consumer and, by an ack or a reject, out of the queue."""

from __future__ import annotations

from typing import Any, Final

from ringfaust.core import limits, new
from ringfaust.core.model import (
    WINDOW,
    AckMode,
    Consumer,
    DeadReason,
    Delivery,
    Message,
    Stage,
    cost_bytes,
)
from ringfaust.core.queue import Place, Queue
from ringfaust.core.scan import NOWHERE, Scan
from ringfaust.core.transitions.leaving import leave_dead, leave_expired
from ringfaust.core.transitions.placing import set_group_owner, unplace, unweigh
from ringfaust.core.work import Work

_NONE: Final = AckMode.NONE
"""mypyc looks up the members of an enum at each use."""

DISPATCH, MEET = "dispatch", "meet expired"
"""Stages of commands: they hand out what is ready, and expire what is at the head."""

# --- dispatch --------------------------------------------------------------------------------


def offer(work: Work, queue: Queue, message: Message) -> bool:
    """Deliver this ready message if a consumer can take it. True if one did."""
    if "dispatch" in queue.paused:
        return False
    work.weigh(queue.match_cost(message))
    if (consumer := queue.taker(message)) is None:
        return False
    _deliver(work, queue, message, consumer)
    return True


def dispatch(work: Work, queue: Queue) -> None:
    """Deliver what can go, in order; a message that cannot go blocks no other (R14)."""
    if "dispatch" in queue.paused or not queue.counts.ready:
        return
    work.weigh(limits.LOOK_COST_BYTES * len(queue.consumers))
    if queue.has_open_consumer() or (queue.expiring and queue.policy.expires_when_met):
        if not work.is_full:
            _dispatch(work, queue, None)
        else:
            work.stages.append(Stage(DISPATCH, queue.name))


def dispatch_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Dispatch as much as fits into this transaction, behind the place in `args` (R114)."""
    work.state.use(queue)
    _dispatch(work, queue, stage.args or None)


def _dispatch(work: Work, queue: Queue, after: Any) -> None:
    if queue.has_open_consumer():
        place = _deliver_in_order(work, queue, after)
        if place is not None:
            work.stages.append(Stage(DISPATCH, queue.name, place))
            return
    if queue.expiring and queue.policy.expires_when_met:
        meet_expired(work, queue)


def meet_expired(work: Work, queue: Queue) -> None:
    """Expire the messages at the head, even if no consumer has credit (C1)."""
    if "dispatch" in queue.paused or not queue.consumers:
        return
    for message in queue.in_order():
        if not 0 < message.expires_at_ms <= work.now:
            return
        if work.is_full:
            work.stages.append(Stage(MEET, queue.name))
            return
        work.spend(0)
        _met(work, queue, message)


def meet_stage(work: Work, queue: Queue, _: Stage) -> None:
    """Go on with that (R121)."""
    work.state.use(queue)
    meet_expired(work, queue)


def _met(work: Work, queue: Queue, expired: Message) -> None:
    """Expire a message that dispatch has come to."""
    unplace(queue, expired)
    leave_expired(work, queue, expired)
    if queue.policy.expires_when_met:
        _skip_consumer(queue)


def _deliver_in_order(work: Work, queue: Queue, after: Any) -> Place | None:
    """Deliver in order, behind the place `after`. Return where this transaction is full."""
    first: int
    behind: int
    after = first, behind = after or (0, NOWHERE)
    for level, count in enumerate(queue.level_counts):
        if not count or level < first:
            continue
        begun = behind if level == first else NOWHERE
        position, is_cut = _deliver_level(work, queue, level, begun)
        if position != NOWHERE:
            after = (level, position)
        if is_cut:
            return after  # type: ignore[no-any-return]
    return None


def _deliver_level(work: Work, queue: Queue, level: int, after: int) -> tuple[int, bool]:
    """Deliver messages of one priority, behind the position `after`.

    Returns:
        The last position, and whether the transaction is full before the next one (R114).
    """
    # Whoever comes to an expired message has it leave (R50, C1): then nothing is skipped.
    skips = not queue.holds_expired(work.now)
    while scans := queue.open_scans():
        begun = after
        for message in queue.wanted(level, begun, scans if skips else []):
            if not work.has_room:
                _pass(queue, scans, level, begun, after)
                return after, True
            work.spend(cost_bytes(message) + queue.match_cost(message))
            position = message.position
            if 0 < message.expires_at_ms <= work.now:
                _met(work, queue, message)
            elif (consumer := queue.taker(message)) is not None:
                _deliver(work, queue, message, consumer)
                if not consumer.is_open():
                    after = position
                    break
            elif message.group:  # it may match, and wait for the owner of its group
                _pass(queue, scans, level, begun, after)
                scans = [scan for scan in scans if not scan.matches(message)]
            after = position
        else:
            _pass(queue, scans, level, begun, after)
            return after, False
        _pass(queue, scans, level, begun, after)
    return after, False


def _pass(queue: Queue, scans: list[Scan], level: int, begun: int, position: int) -> None:
    """What these scans match between the positions has been delivered."""
    for scan in scans:
        if scan.selector is None:  # it matches everything, so it never passes a place
            continue
        scan.passed(level, begun, position)
        queue.scanned[level] = max(queue.scanned[level], scan.upto[level])


def _deliver(work: Work, queue: Queue, message: Message, consumer: Consumer) -> None:
    """Deliver one ready message to one consumer (R10, R11, R14, R24)."""
    unplace(queue, message)
    if message.group and queue.owner(message.group) is None:
        set_group_owner(queue, message.group, consumer)
    _move_cursor(queue, consumer)
    message = new.held_by(message, consumer.name)
    work.state.deliveries = number = work.state.deliveries + 1
    delivery = new.new_delivery(number, consumer.name, message, work.now)
    work.effects.append(new.dispatched(queue.name, delivery))
    if consumer.ack_mode is _NONE:  # gone on dispatch; it uses no credit (R10, R16)
        work.weigh(queue.history.remember(consumer.name, message.id))
        _acked(work, queue, delivery)
    else:
        _open(queue, delivery, consumer)
        if consumer.name == WINDOW and queue.spec.window_lease:  # R12
            work.state.wake_by(queue, work.now + queue.spec.window_lease)


# --- settling --------------------------------------------------------------------------------


def acked(work: Work, queue: Queue, delivery: Delivery) -> None:
    """A consumer has accepted a delivery (R16)."""
    end(work, queue, delivery)
    _acked(work, queue, delivery)


def _acked(work: Work, queue: Queue, delivery: Delivery) -> None:
    unweigh(queue, delivery.message)
    queue.counts.acked += 1
    work.effects.append(new.acked(queue.name, delivery))


def rejected(work: Work, queue: Queue, delivery: Delivery, text: str) -> None:
    """A consumer has rejected a delivery, with its reason (R41)."""
    end(work, queue, delivery)
    leave_dead(work, queue, delivery, DeadReason.REJECTED, text)


def end(work: Work, queue: Queue, delivery: Delivery) -> None:
    """End a delivery, and remember it for late settles (R103)."""
    _close(queue, delivery)
    work.weigh(queue.history.remember(delivery.consumer, delivery.message.id))


# --- deliveries ----


def _open(queue: Queue, delivery: Delivery, consumer: Consumer) -> None:
    """Give a message that was taken out of the ring to a consumer; this uses one credit (R10)."""
    queue.deliveries.put_new(delivery.number, delivery)
    consumer.hold(delivery)
    queue.counts.delivering += 1


def _close(queue: Queue, delivery: Delivery) -> None:
    """End a delivery, for whatever reason. Its credit is free again (R10)."""
    if delivery.is_orphan:
        del queue.orphans[delivery.number]
    else:
        queue.consumers[delivery.consumer].let_go(delivery)
    queue.deliveries.delete(delivery.number)
    queue.counts.delivering -= 1


def settle_in_xid(queue: Queue, delivery: Delivery, xid: str) -> None:
    """Mark a delivery as settled in an undecided distributed transaction (R81)."""
    queue.deliveries.put(delivery.number, delivery._replace(xid=xid))
    queue.consumers[delivery.consumer].positions.pop(delivery.number, None)


def orphan_deliveries(work: Work, queue: Queue, consumer: Consumer) -> bool:
    """Keep what a leaving consumer has settled in undecided transactions (R81).

    Returns:
        False if the transaction is full before that (R114).
    """
    for number in sorted([each for numbers in consumer.held.values() for each in numbers]):
        if not work.has_room:
            return False
        delivery: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        work.spend(cost_bytes(delivery.message))
        consumer.let_go(delivery)
        queue.deliveries.put(number, delivery._replace(is_orphan=True))
        queue.orphans[number] = (consumer.name, delivery.message.id)
    return True


def _move_cursor(queue: Queue, consumer: Consumer) -> None:
    """Point the round-robin cursor of a consumer priority at the last receiver (R11)."""
    last, run = queue.cursors.get(consumer.priority, (0, 0))
    is_same_run = consumer.order == last and run < queue.spec.batch
    queue.cursors[consumer.priority] = (consumer.order, run + 1 if is_same_run else 1)


def _skip_consumer(queue: Queue) -> None:
    """Move the cursor past the consumer that met an expired message (C1, C12)."""
    priority, consumers = queue.consumers_by_priority[0]
    last, _ = queue.cursors.get(priority, (0, 0))
    following = next((each for each in consumers if each.order > last), consumers[0])
    queue.cursors[priority] = (following.order, queue.spec.batch)
