"""Whether a queue takes a message. Everything here only reads and weighs (R43, R60, R119)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.model import AckMode, Message, Refusal, plain_position
from ringfaust.core.new import unsent
from ringfaust.core.queue import Queue
from ringfaust.core.work import Work


def turned_away(queue: Queue, send: c.Send) -> e.Refused | None:
    """Why the queue does not take the message, whatever room it has; None: it may."""
    return _looping(queue, send) or _repeated(queue, send)


def _looping(queue: Queue, send: c.Send) -> e.Refused | None:
    """The refusal of a message that was redriven too often, or None (R43)."""
    most = queue.spec.max_redrives
    if not 0 <= most < send.redrives:
        return None
    text = f"it was redriven {send.redrives - 1} times; max_redrives is {most}"
    return e.Refused(queue.name, Refusal.BAD_COMMAND, send.id, text)


def _repeated(queue: Queue, send: c.Send) -> e.Refused | None:
    """The refusal of a message that the queue has received before, or None (R119).

    A redrive proves itself by the sequence of the message that was lost: if the queue has received
    none of that id since, it comes in (ADR 46).
    """
    if not queue.dedups or not send.payload.is_named(send.id):
        return None
    window_ms = queue.spec.dedup_window
    first = queue.sent_ids().find(send.id)
    if first is None or send.sent_ms >= first.sent_ms + window_ms:
        return None
    if send.redrive_of == f"{queue.name}/{first.sequence}":
        return None
    text = (
        f"a message of this id came {max(send.sent_ms - first.sent_ms, 0)} ms before, with "
        f"sequence {first.sequence}; dedup_window is {window_ms} ms"
    )
    return e.Refused(queue.name, Refusal.DUPLICATE, send.id, text)


def beyond_limits(work: Work, queue: Queue, send: c.Send) -> Refusal | None:
    """Why the queue sends the message to the dead topic instead, or None (R60)."""
    spec = queue.spec
    size_bytes = send.size_bytes
    if 0 <= spec.max_message_bytes < size_bytes:
        return Refusal.TOO_LARGE
    if spec.when_full == "block" and 0 <= spec.max_bytes < size_bytes:
        return Refusal.TOO_LARGE  # it would block the queue for ever
    if spec.when_full != "reject_newest":
        return None
    messages, total_bytes = queue.counts.messages + 1, queue.size_bytes + size_bytes
    if queue.exceeds(messages, total_bytes):
        gone = _would_leave(work, queue, send)
        if gone is None or queue.exceeds(messages - 1, total_bytes - gone.size_bytes):
            return Refusal.QUEUE_FULL
    return None


def _would_leave(work: Work, queue: Queue, send: c.Send) -> Message | None:
    """Which message would leave because of this send, before the limits are tested."""
    sequence = queue.sequence + 1
    message = unsent(send)._replace(
        sequence=sequence, position=plain_position(sequence), expires_at_ms=0, due_ms=0
    )
    if queue.policy.has_expired(send.expires_at_ms, work.now):
        return message
    if send.due_ms > work.now:
        return None
    if "dispatch" not in queue.paused:
        work.weigh(queue.match_cost(message))
        if (taker := queue.taker(message)) is not None:
            return message if taker.ack_mode is AckMode.NONE else None
    if not 0 <= queue.spec.ring_size <= queue.counts.ready:
        return None
    return queue.victim_with(message)
