"""Answer questions about a partition: its queues, messages, transactions and configuration.

Nothing here changes a queue. An answer never exceeds `REPLY_BYTES`, and no question looks at more
than `MOST_MESSAGES`, their `MOST_BYTES` or `MOST_QUEUES`: what is left is asked for with the
answer's `next`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from heapq import merge
from itertools import groupby
from typing import Any

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.catalog import Configuration
from ringfaust.core.model import Consumer, Counts, Delivery, Message, Refusal, cost_bytes
from ringfaust.core.patterns import Pattern
from ringfaust.core.queue import Queue
from ringfaust.core.selector import check_selector
from ringfaust.core.state import State
from ringfaust.errors import BadSelector
from ringfaust.protocol import control
from ringfaust.protocol import outputs as output
from ringfaust.protocol.listing import list_queue
from ringfaust.protocol.records import OutRecord, Payload

REPLY_BYTES = 1_000_000
"""Largest reply."""

MOST_MESSAGES = 10_000
"""Most messages that one question looks at."""

MOST_BYTES = limits.STEP_BYTES
"""Bytes of these, with what their headers count. It is exceeded by one message at most."""

MOST_QUEUES = 1_000
"""Most queues that one question looks at: the event loop runs before the next one (R122)."""
_KEY_BYTES = 10_000
_HEADERS_BYTES = 10_000
"""How much of a key, and of all headers, `browse` returns. JSON may need six characters a byte."""

Answer = dict[str, Any]


def answer_query(
    asked: control.QueryRecord,
    state: State,
    now_ms: int,
    accepts_sends: Callable[[str], bool],
    configuration: Configuration | None,
) -> OutRecord:
    """Return the reply to a question.

    Args:
        asked: the question.
        state: the partition's state. Its time is that of the last change, which may be long ago.
        now_ms: the time of the question.
        accepts_sends: tells whether a queue accepts sends now (R60, R90).
        configuration: the one in use; None: it is not known.
    """
    refused: e.Refused | None = None
    answer: Answer | None = None
    if isinstance(asked, control.ListQueuesRecord):
        answer = _list_queues(asked, state)
    elif isinstance(asked, control.ListXidsRecord):
        answer = _list_xids(asked, state)
    elif isinstance(asked, control.ShowConfigurationRecord):
        answer = configuration._asdict() if configuration else {"revision": 0, "document": None}
    elif isinstance(asked, control.ListRecord | control.BrowseRecord):
        queue = state.queue(asked.queue)
        if queue is None:
            text = f"no queue {asked.queue!r} in this partition"
            refused = e.Refused(asked.queue, Refusal.UNKNOWN_QUEUE, asked.queue, text)
        elif isinstance(asked, control.ListRecord):
            return _list(asked, queue, state, now_ms, accepts_sends)
        else:
            try:
                answer = _browse(asked, queue)
            except BadSelector as error:
                refused = e.Refused(asked.queue, Refusal.BAD_SELECTOR, asked.queue, str(error))
    return output.reply_record(asked.reply, refused, answer)


# --- one queue ------------------------------------------------------------------------------------


def _list(
    asked: control.ListRecord, queue: Queue, state: State, now_ms: int,
    accepts_sends: Callable[[str], bool],
) -> OutRecord:  # fmt: skip
    limit = asked.limit
    about = {
        "pulled": accepts_sends(queue.name),
        "exists": state.exists(queue.name),
        "settings": asdict(queue.spec),
        "own": dict(queue.settings),
        "own_since_ms": dict(queue.set_ms),
        "paused": list(queue.paused),
        "bytes": queue.size_bytes,
        "oldest_ms": queue.lowest().enqueued_ms if queue.counts.ready else 0,
    }
    while True:
        answer = (
            list_queue(queue, limit, MOST_BYTES)
            | about
            | _consumers(asked.after, queue, limit, now_ms)
        )
        reply = output.reply_record(asked.reply, None, answer)
        if limit == 0 or len(reply[1] or b"") <= REPLY_BYTES:
            return reply
        limit //= 2  # the counts show that there is more


def _consumers(after: str, queue: Queue, limit: int, now_ms: int) -> Answer:
    """The consumers behind `after`, in attach order."""
    left = [each for each in queue.consumers.values() if each.order > int(after or 0)]
    found: list[Consumer] = []
    selectors_bytes = 0
    for each in left[:limit]:
        if selectors_bytes > REPLY_BYTES:
            break
        found.append(each)
        selectors_bytes += len(each.selector)
    last = str(found[-1].order) if found else after or "0"
    entries = [
        {
            "consumer": consumer.name,
            "active": consumer.active,
            "priority": consumer.priority,
            "ack_mode": consumer.ack_mode,
            "credit": consumer.credit,
            "credit_bytes": consumer.credit_bytes,
            "unsettled": consumer.in_flight,
            "unsettled_bytes": consumer.held_bytes,
            "session": consumer.session,
            "selector": consumer.selector,
            "silent_ms": max(now_ms - consumer.seen_ms, 0),
        }
        for consumer in found
    ]
    return {"consumers": entries, "next": last if len(left) > len(found) else None}


def _browse(asked: control.BrowseRecord, queue: Queue) -> Answer:
    selector = check_selector(asked.selector) if asked.selector else None
    found: list[Answer] = []
    size_bytes = looked_bytes = 0
    last = ""
    for looked, (position, message, delivery) in enumerate(_messages(asked, queue), start=1):
        if not (asked.message and message.id != asked.message) and (
            selector is None or selector.matches(message)
        ):
            entry = _entry(message, delivery, asked.body_bytes)
            size_bytes += len(json.dumps(entry)) + 1
            if found and size_bytes > REPLY_BYTES - 1_000:
                return {"messages": found, "next": last}
            found.append(entry)
        last = position
        looked_bytes += cost_bytes(message) + (selector.cost_of(message) if selector else 0)
        is_enough = looked == MOST_MESSAGES or looked_bytes >= MOST_BYTES
        if len(found) >= asked.limit or is_enough:
            return {"messages": found, "next": last}
    return {"messages": found, "next": None}


def _messages(
    asked: control.BrowseRecord, queue: Queue
) -> Iterator[tuple[str, Message, Delivery | None]]:
    """The messages in that state behind `after`, each with its position, in order."""
    after = [int(part) for part in asked.after.split("/") if part]
    if asked.state == "ready":
        start = (after[0], after[1]) if len(after) > 1 else None
        for (level, position), message in queue.in_order_after(start):
            yield f"{level}/{position}", message, None
    elif asked.state == "scheduled":
        for key, message in queue.scheduled.walk(after[0] if after else None):
            yield str(key), message, None
    else:
        for number, delivery in queue.deliveries.walk(after[0] if after else None):
            yield str(number), delivery.message, delivery


def _entry(message: Message, delivery: Delivery | None, body_bytes: int) -> Answer:
    payload: Payload = message.payload
    entry: Answer = {
        "id": message.id,
        "sequence": message.sequence,
        "priority": message.priority,
        "enqueued_ms": message.enqueued_ms,
        "expires_at_ms": message.expires_at_ms,
        "due_ms": message.due_ms,
        "group": message.group,
        "attempts": message.attempts,
        "handovers": message.handovers,
        "bytes": message.size_bytes,
        "persistent": message.persistent,
        "source": payload.source,
        "key": _text(payload.key, min(body_bytes, _KEY_BYTES)),
        "value": _text(payload.value, body_bytes),
        "headers": _headers(payload),
    }
    if delivery is not None:
        entry |= {
            "consumer": delivery.consumer,
            "delivery": delivery.number,
            "handed_ms": delivery.handed_ms,
            "xid": delivery.xid,
        }
    return entry


def _headers(payload: Payload) -> Answer:
    """The producer's headers, as many as fit into `_HEADERS_BYTES`."""
    found: Answer = {}
    room = _HEADERS_BYTES
    for name, value in payload.headers:
        room -= len(name) + len(value or b"")
        if room < 0:
            break
        found[name] = _text(value, _HEADERS_BYTES)
    return found


def _text(raw: bytes | None, most_bytes: int) -> Answer | None:
    """Bytes for JSON: the beginning as text if it is UTF-8, otherwise as base64."""
    if raw is None:
        return None
    start = raw[:most_bytes]
    try:
        # A cut may split a character: its bytes are left out.
        text = start.decode(errors="strict" if len(start) == len(raw) else "ignore")
        if len(start) < len(raw) and len(start) - len(text.encode()) > _CHARACTER_BYTES:
            raise ValueError
        return {"text": text, "bytes": len(raw)}
    except ValueError:
        return {"base64": base64.b64encode(start).decode(), "bytes": len(raw)}


_CHARACTER_BYTES = 3
"""The most bytes of a UTF-8 character that a cut can leave behind."""


# --- transactions ---------------------------------------------------------------------------------


def _list_xids(asked: control.ListXidsRecord, state: State) -> Answer:
    found: list[Answer] = []
    size_bytes = 0
    last = asked.after or "0"
    for number, xid in state.xids.walk(int(last)):
        entry = xid._asdict()
        del entry["owner"]  # a secret: it lets others join
        size_bytes += len(json.dumps(entry)) + 1
        if len(found) >= asked.limit or size_bytes > REPLY_BYTES - 1_000:
            return {"xids": found, "next": last}
        found.append(entry)
        last = str(number)
    return {"xids": found, "next": None}


# --- all queues -----------------------------------------------------------------------------------


def _list_queues(asked: control.ListQueuesRecord, state: State) -> Answer:
    pattern = Pattern(asked.pattern)
    found: list[Answer] = []
    size_bytes = looked_bytes = 0
    last = asked.after
    for looked, name in enumerate(_names(state, asked.after), start=1):
        if pattern.matches(name.split(".")):
            looked_bytes += state.catalog.cost_of(name)
            entry = _summary(state, name)
            size_bytes += len(json.dumps(entry)) + 1
            if size_bytes > REPLY_BYTES - 1_000:
                return {"queues": found, "next": last}
            found.append(entry)
        last = name
        if len(found) >= asked.limit or looked == MOST_QUEUES or looked_bytes >= MOST_BYTES:
            return {"queues": found, "next": last}
    return {"queues": found, "next": None}


def _names(state: State, after: str) -> Iterator[str]:
    """The names of all queues behind `after`, in order.

    Besides the stored queues there are those that the batch has changed, and those that the
    configuration declares by name.
    """
    changed = {queue.name for queue in state.changed_queues}
    others = {name for name in (*state.catalog.declared_names(), *changed) if name > after}
    stored = (name for name, _ in state.queue_rows.scan_all(after or None, MOST_QUEUES))
    return (name for name, _ in groupby(merge(sorted(others), stored)))


def _summary(state: State, name: str) -> Answer:
    queue = state.queues.get(name)
    if queue is not None:
        counts, spec, paused, attached = (
            queue.counts, queue.spec, queue.paused, len(queue.consumers),
        )  # fmt: skip
    else:
        row = state.queue_rows.get(name)
        spec = state.catalog.spec_of_stored(name, row.settings if row else {})
        counts = Counts(*row.counts) if row else Counts()
        paused, attached = (row.paused, row.attached) if row else ((), 0)
    return {
        "queue": name,
        "address": address_of(name),
        "counts": {field: count for field, count in counts.as_dict().items() if count},
        "ring_size": spec.ring_size,
        "paused": list(paused),
        "consumers": attached,
    }
