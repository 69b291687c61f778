"""Encode effects as records: dispatched, evicted, dead and replies.

The producer's key, value and headers come first and unchanged; ringfaust's headers follow. See
docs/protocol.md for each header.
"""

from __future__ import annotations

import json
from typing import Any

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.model import PLAIN, DeadReason, Message, Refusal, time_of
from ringfaust.errors import ProtocolError
from ringfaust.protocol import headers as h
from ringfaust.protocol.control import VERSION, OrderRecord, read_control, reply_of
from ringfaust.protocol.records import FetchedRecord, OutRecord, Payload, place_of

_PRIORITY = tuple((h.PRIORITY, b"%d" % priority) for priority in range(limits.PRIORITIES))


def _headers(queue: str, message: Message, payload: Payload) -> list[tuple[str, bytes]]:
    """The producer's headers, and those that every output has."""
    headers = [
        *payload.headers,
        (h.QUEUE, queue.encode()),
        (h.ID, message.id.encode()),
        (h.SEQUENCE, b"%d" % message.sequence),
        _PRIORITY[message.priority],
        (h.ENQUEUED_MS, b"%d" % message.enqueued_ms),
        (h.SOURCE, payload.source.encode()),
    ]
    if message.group:
        headers.append((h.GROUP, message.group.encode()))
    return headers


def dispatched_record(effect: e.Dispatched) -> OutRecord:
    """The record of a delivery, for its consumer."""
    delivery = effect.delivery
    message = delivery.message
    payload: Payload = message.payload
    headers = _headers(effect.queue, message, payload)
    headers += (
        (h.CONSUMER, delivery.consumer.encode()),
        (h.DELIVERY, b"%d" % delivery.number),
        (h.ATTEMPT, b"%d" % message.attempts),
        (h.HANDOVERS, b"%d" % message.handovers),
    )
    if message.handovers > 1:
        headers.append((h.REDELIVERED, b"1"))
    if message.expires_at_ms:
        headers.append((h.EXPIRES_AT_MS, b"%d" % message.expires_at_ms))
    if not message.persistent:
        headers.append((h.DELIVERY_MODE, b"non_persistent"))
    return payload.key, payload.value, headers


def evicted_record(effect: e.Evicted) -> OutRecord:
    """The record of an evicted message (R6), with as much payload as `evicted_payload` says."""
    queue, message, reason, cause, ring_size, ready, at_ms, form = effect
    payload: Payload = message.payload
    if form != "full":
        key = payload.key if form == "reference" else None
        payload = payload._replace(key=key, value=None, headers=())
    headers = _headers(queue, message, payload)
    headers += (
        (h.REASON, reason.encode()),
        (h.CAUSE, cause.encode()),
        (h.RING_SIZE, b"%d" % ring_size),
        (h.READY, b"%d" % ready),
        (h.TIME_MS, b"%d" % at_ms),
        (h.AGE_MS, b"%d" % (at_ms - message.enqueued_ms)),
        (h.HANDOVERS, b"%d" % message.handovers),
    )
    return payload.key, payload.value, headers


def dead_record(effect: e.Dead | e.Expired, now_ms: int) -> OutRecord:
    """The record of a dead or expired message (R42)."""
    message = effect.message
    payload: Payload = message.payload
    expired = isinstance(effect, e.Expired)
    reason = DeadReason.EXPIRED if expired else effect.reason  # type: ignore[union-attr]
    text = "" if expired else effect.text  # type: ignore[union-attr]
    headers = _headers(effect.queue, message, payload)
    headers += (
        (h.REASON, reason.encode()),
        (h.TEXT, text.encode()),
        (h.TIME_MS, b"%d" % now_ms),
        (h.ATTEMPT, b"%d" % message.attempts),
        (h.HANDOVERS, b"%d" % message.handovers),
        (h.CONSUMER, effect.consumer.encode()),
        (h.POSITION, _position(message)),
    )
    return payload.key, payload.value, headers


def _position(message: Message) -> bytes:
    """Where the message stood among the ready ones of its priority (§1); none if never ready."""
    if not message.position:
        return b"none"
    if message.position >= PLAIN:
        return b"plain/%d" % message.sequence
    due_ms = min(
        time_of(message.position), message.due_ms
    )  # with Artemis only the second is a time
    return b"due/%d/%d" % (due_ms, message.sequence)


def source_of(record: FetchedRecord, repartition_topic: str) -> str:
    """The producer's record, as topic/partition/offset: this one, or the one that it is a copy of.

    A record on the hop topic that does not name its source counts as its own.
    """
    place = place_of(record)
    if record.topic != repartition_topic:
        return place
    source = (dict(record.headers).get(h.SOURCE) or b"").decode(errors="replace")
    topic, *numbers = source.rsplit("/", 2)
    is_place = topic and len(numbers) == 2 and all(map(str.isdecimal, numbers))
    return source if is_place and len(source) <= limits.ID_CHARS else place


def undecodable_record(
    record: FetchedRecord, source: str, error: ProtocolError, now_ms: int
) -> OutRecord:
    """The record of an undecodable record. An oversized one has only a reference to its source.

    It keeps all headers but the owner of a transaction, which is a secret (ADR 49).
    """
    too_large = error.reason == "too_large"
    kept = [pair for pair in record.headers if pair[0] != h.XID_OWNER]
    headers = [
        *(() if too_large else kept),
        (h.SOURCE, source.encode()),
        (h.REASON, error.reason.encode()),
        (h.TEXT, str(error).encode()),
        (h.TIME_MS, b"%d" % now_ms),
    ]
    return (None, None, headers) if too_large else (record.key, record.value, headers)


def undecodable_line(
    record: FetchedRecord, source: str, error: ProtocolError, step: int, now_ms: int
) -> str:
    """The line of an undecodable record on the events topic. `source`: the producer's record."""
    by = place_of(record)
    line = {
        "step": step, "event": "unreadable", **({"source": source} if source != by else {}),
        "reason": error.reason, "text": str(error), "time_ms": now_ms, "by": by,
    }  # fmt: skip
    return json.dumps(line, separators=(",", ":"))


def reply_record(
    reply: str, refused: e.Refused | None, answer: dict[str, Any] | None = None
) -> OutRecord:
    """The reply to a control command, or to one delivery of it, with its `reply` as the key."""
    body: dict[str, Any] = {"v": VERSION, "ok": True}
    if refused is not None:
        body = _refusal(refused)
        if refused.delivery:
            body["delivery"] = refused.delivery
    if answer is not None:
        body["answer"] = answer
    value = json.dumps(body, separators=(",", ":")).encode()
    return reply.encode(), value, []


def skipped_record(command: bytes | None, text: str) -> OutRecord | None:
    """The reply to a control command that is skipped (R123); None if nobody waits for one.

    An order was answered by the partition that had stopped.
    """
    try:
        is_order = isinstance(read_control(command), OrderRecord)
    except ProtocolError:
        is_order = False
    reply = "" if is_order else reply_of(command)
    return reply_record(reply, e.Refused("", Refusal.BAD_COMMAND, "", text)) if reply else None


def refused_send_record(message_id: str, refused: e.Refused, by: str) -> OutRecord:
    """The reply to a refused send, with the message's id as the key (R62).

    `by`: the record that caused the send, as in events.
    """
    body = _refusal(refused) | {"queue": refused.queue, "by": by}
    return message_id.encode(), json.dumps(body, separators=(",", ":")).encode(), []


def _refusal(refused: e.Refused) -> dict[str, Any]:
    return {
        "v": VERSION, "ok": False, "reason": refused.reason, "about": refused.about,
        "text": refused.text,
    }  # fmt: skip
