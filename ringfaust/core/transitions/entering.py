"""The arrows into a queue: sends, the limits that they meet, and messages that come due."""

from __future__ import annotations

from typing import Final

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import new
from ringfaust.core.admission import beyond_limits
from ringfaust.core.model import (
    DeadReason,
    EvictReason,
    Message,
    Refusal,
    Stage,
    cost_bytes,
    plain_position,
)
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.delivering import dispatch, meet_expired, offer
from ringfaust.core.transitions.leaving import evict, expire, leave_evicted, leave_expired
from ringfaust.core.transitions.placing import forget_ids, place, schedule, unschedule, weigh
from ringfaust.core.work import Work

_OVERFLOW: Final = EvictReason.OVERFLOW
"""mypyc looks up the members of an enum at each use."""

LIMITS, DUE = "limits", "due"
"""Stages of commands: a send brings its queue within the limits, a sweep makes messages due."""


def enter(work: Work, queue: Queue, send: c.Send) -> None:
    """Add a sent message (R1, R2, R30, R33, R50, R60).

    The order is that of every command: expire, do, dispatch, ring, limits. Only the message that
    was sent is offered to consumers, and at most one leaves a full ring.
    """
    work.state.use(queue)
    now = work.now
    if queue.expiring:
        expire(work, queue)
    if queue.is_limited and (why := beyond_limits(work, queue, send)) is not None:
        _refuse(work, queue, send, why)
        return
    queue.sequence = sequence = queue.sequence + 1
    queue.counts.added += 1
    due_ms = send.due_ms
    if due_ms:
        due_ms = queue.policy.due_ms(due_ms, now)
    message = new.new_message(
        send.id, sequence, 0 if due_ms else plain_position(sequence), send.priority,
        send.sent_ms, send.expires_at_ms, due_ms, send.group, 0, 0, (), send.size_bytes,
        send.payload, send.persistent, False,
    )  # fmt: skip
    work.weigh(weigh(queue, message))
    if send.expires_at_ms:
        if queue.policy.has_expired(send.expires_at_ms, now):
            work.effects.append(e.Added(queue.name, message))
            leave_expired(work, queue, message)
            return
        work.state.wake_by(queue, send.expires_at_ms)
    if due_ms:
        work.effects.append(e.Scheduled(queue.name, message))
        if due_ms > now:
            schedule(queue, message)
            work.state.wake_by(queue, due_ms)
        else:
            come_due(work, queue, message)  # C7
    else:
        place(work, queue, message)
        work.effects.append(new.added(queue.name, message))
        ring_size = queue.spec.ring_size
        was_taken = queue.consumers and offer(work, queue, message)
        if not was_taken and 0 <= ring_size < queue.counts.ready:
            evict(work, queue, queue.victim(), _OVERFLOW, message.id)
        if queue.expiring and queue.policy.expires_when_met:
            meet_expired(work, queue)
    if queue.is_limited:
        _keep_limits(work, queue, message)


def forget_sent(work: Work, queue: Queue) -> bool:
    """Forget the ids of all messages that came in (R119).

    Returns:
        False if the transaction is full before that (R114).
    """
    while queue.sent_bounds != (0, 0):
        if not work.has_room:
            return False
        for message_id in forget_ids(queue):
            work.spend(len(message_id))
    return True


# --- limits ----------------------------------------------------------------------------------


def _refuse(work: Work, queue: Queue, send: c.Send, refusal: Refusal) -> None:
    """Send the message to the dead topic instead of adding it (R42, R60, R100)."""
    queue.counts.refused += 1
    spec = queue.spec
    if refusal is Refusal.TOO_LARGE:
        reason = DeadReason.TOO_LARGE
        most = spec.max_message_bytes if spec.max_message_bytes >= 0 else spec.max_bytes
        text = f"{send.size_bytes} bytes; this queue takes messages of at most {most}"
    else:
        reason = DeadReason.LIMIT
        text = (
            f"the queue is full: {queue.counts.messages} messages, {queue.size_bytes} bytes "
            f"(max_messages {spec.max_messages}, max_bytes {spec.max_bytes})"
        )
    message = new.unsent(send)
    work.effects.append(e.Refused(queue.name, refusal, send.id, text))
    work.effects.append(e.Dead(queue.name, message, reason, "", text))


def _keep_limits(work: Work, queue: Queue, message: Message) -> None:
    """Bring the queue within its limits after a send (R60)."""
    when_full = queue.spec.when_full
    if when_full == "block":
        return  # an operator or a transaction has added it although the queue is full
    if not queue.exceeds(queue.counts.messages, queue.size_bytes):
        return
    if when_full == "drop_newest":
        _drop_newest(work, queue, message)
    else:
        stage = Stage(LIMITS, queue.name, (message.id,))
        if not work.defers(stage):
            limits_stage(work, queue, stage)


def limits_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Evict as much of what is beyond the limits as fits into this transaction (R114)."""
    work.state.use(queue)
    is_lowest = queue.spec.when_full == "drop_lowest_priority"
    while queue.counts.ready and queue.exceeds(queue.counts.messages, queue.size_bytes):
        if not work.has_room:
            work.stages.append(stage)
            return
        victim = queue.oldest_of_lowest_priority() if is_lowest else queue.lowest()
        work.spend(0)
        evict(work, queue, victim, EvictReason.LIMIT, stage.args[0])


def _drop_newest(work: Work, queue: Queue, message: Message) -> None:
    """Evict what was just sent, unless a consumer has it already (R4)."""
    if message.due_ms > work.now:
        unschedule(queue, message)
        leave_evicted(work, queue, message, EvictReason.LIMIT, message.id)
    elif message.due_ms:  # C7: if no consumer took it, it is at the head
        first = queue.level_of(message).first()
        if first is not None and first[1].sequence == message.sequence:
            evict(work, queue, first[1], EvictReason.LIMIT, message.id)
    elif queue.is_ready(message):
        evict(work, queue, message, EvictReason.LIMIT, message.id)


# --- time ------------------------------------------------------------------------------------


def come_due_until(work: Work, queue: Queue, most: int) -> int:
    """Make due messages ready, until about `most` were or the transaction is full (R32, R121).

    Returns:
        How many; with Artemis those that are due together, even if some of them are left (C4).
    """
    done = 0
    while done < most and not work.is_full and (due := queue.due_together(work.now)):
        _come_due_together(work, queue, due)
        done += len(due)
    return done


def due_stage(work: Work, queue: Queue, _: Stage) -> None:
    """Go on with what is due together (C4)."""
    work.state.use(queue)
    _come_due_together(work, queue, queue.due_together(work.now))


def _come_due_together(work: Work, queue: Queue, due: list[int]) -> None:
    """Make scheduled messages ready, as many as fit into this transaction (R121).

    Each is offered to consumers before the next is tested, with Artemis after all were (C4).
    """
    tests_batch = queue.policy.tests_due_batch
    for key in due:
        if not work.has_room:
            work.stages.append(Stage(DUE, queue.name))
            return
        message: Message = queue.scheduled.get(key)  # type: ignore[assignment]
        work.spend(cost_bytes(message))
        unschedule(queue, message)
        ready = _make_ready(work, queue, message)
        if ready and not tests_batch:
            offer(work, queue, ready)
    if tests_batch:
        dispatch(work, queue)


def deliver_now(work: Work, queue: Queue, message: Message) -> None:
    """Make a scheduled message due now (R34)."""
    if not queue.is_scheduled(message):  # it has expired in this step
        return
    unschedule(queue, message)
    come_due(work, queue, message._replace(due_ms=work.now))


def come_due(work: Work, queue: Queue, message: Message) -> None:
    """Test an unscheduled message against the ring, and make it ready if it has room (R31)."""
    ready = _make_ready(work, queue, message)
    if queue.policy.tests_due_batch:
        dispatch(work, queue)
    elif ready:
        offer(work, queue, ready)


def _make_ready(work: Work, queue: Queue, message: Message) -> Message | None:
    """Place a due message, unless the ring has no room for it (R31)."""
    if 0 <= queue.spec.ring_size <= queue.counts.ready:
        # A ring of size 0 (C10) has no other message to displace.
        if queue.spec.scheduled_when_full == "drop" or not queue.counts.ready:
            leave_evicted(work, queue, message, EvictReason.SCHEDULED_OVERFLOW, "")
            return None
        evict(work, queue, queue.lowest(), EvictReason.SCHEDULED_OVERFLOW, message.id)
    # Only now, when the ring has room: with Artemis the position depends on who is in it.
    position = queue.policy.due_position(message, queue.level_of(message))
    message = new.at_position(message, position)
    place(work, queue, message)
    work.effects.append(new.due(queue.name, message))
    return message
