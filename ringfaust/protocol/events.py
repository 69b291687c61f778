"""The events topic: one line of JSON for each transition, in the order they were applied.

A record holds many lines (newline-delimited JSON), so an event costs only a share of a record.
`lifecycle` declares the fields. Those of the frequent events are written here by hand, for speed; a
test compares them with the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

from ringfaust.core import effects as e
from ringfaust.core.model import Delivery, Message
from ringfaust.protocol.lifecycle import EVENTS

LINES_PER_RECORD = 400
"""About 80 kB: any consumer can take such a record, and a batch has few of them."""

RECORD_CHARS = 1_000_000
"""Longest record. Lines may have long names, ids and texts; all are ASCII."""

_QUOTED: Final[dict[str, str]] = {}
_QUOTED_MOST = 10_000


def _quoted_name(name: str) -> str:
    """A queue's name as JSON, cached: the same few names recur."""
    found = _QUOTED.get(name)
    if found is None:
        if len(_QUOTED) >= _QUOTED_MOST:
            _QUOTED.clear()
        found = _QUOTED[name] = quoted(name)
    return found


def record_texts(lines: list[str]) -> Iterator[str]:
    """Join lines into records. The lines of a step share a record if they fit.

    So the first and last step of a record tell a reader whether it may be a repeat.
    """
    begin = 0
    while begin < len(lines):
        end = min(begin + LINES_PER_RECORD, len(lines))
        if end < len(lines):
            end = _before_step(lines, begin, end)
        yield from _joined(lines[begin:end])
        begin = end


def _before_step(lines: list[str], begin: int, end: int) -> int:
    """Where the step of the line at `end` begins, or `end` if it begins no later than `begin`."""
    step = lines[end].partition(",")[0] + ","
    cut = end
    while cut > begin and lines[cut - 1].startswith(step):
        cut -= 1
    return cut if cut > begin else end


def _joined(lines: list[str]) -> Iterator[str]:
    """One record, or several if the lines are long."""
    text = "\n".join(lines)
    if len(text) <= RECORD_CHARS or len(lines) == 1:
        yield text
    else:
        half = len(lines) // 2
        yield from _joined(lines[:half])
        yield from _joined(lines[half:])


def event_tail(now_ms: int, by: str) -> str:
    """Time and cause, which end every line of a step."""
    return f',"time_ms":{now_ms},"by":{quoted(by)}}}'


def done_line(step: int, kind: str, tail: str) -> str:
    """The line of a completed control command. Audits see by it which commands were executed."""
    return f'{{"step":{step},"event":"done","command":{quoted(kind)}' + tail


def _about(event: str, queue: str, message: Message, step: int) -> str:
    return (
        f'{{"step":{step},"event":"{event}","queue":{_quoted_name(queue)},'
        f'"sequence":{message.sequence},"id":{quoted(message.id)}'
    )


def _due(effect: e.Due, step: int) -> str:
    return _about("due", effect.queue, effect.message, step) + f',"due_ms":{effect.message.due_ms}'


def _added(effect: e.Added | e.Scheduled, step: int) -> str:
    message = effect.message
    name = "added" if type(effect) is e.Added else "scheduled"
    line = (
        f'{{"step":{step},"event":"{name}","queue":{_quoted_name(effect.queue)},'
        f'"sequence":{message.sequence},"id":{quoted(message.id)},'
        f'"source":{quoted(message.payload.source)},"enqueued_ms":{message.enqueued_ms},'
        f'"priority":{message.priority},"size_bytes":{message.size_bytes}'
    )
    if message.due_ms:
        line += f',"due_ms":{message.due_ms}'
    if message.expires_at_ms:
        line += f',"expires_at_ms":{message.expires_at_ms}'
    if message.group:
        line += f',"group":{quoted(message.group)}'
    return line


def _held(event: str, queue: str, delivery: Delivery, step: int) -> str:
    message = delivery.message
    return _about(event, queue, message, step) + (
        f',"consumer":{quoted(delivery.consumer)},"delivery":{delivery.number}'
        f',"attempt":{message.attempts},"handovers":{message.handovers}'
    )


def _returned(effect: e.Returned, step: int) -> str:
    line = _held("returned", effect.queue, effect.delivery, step)
    return line + f',"due_ms":{effect.due_ms}' if effect.due_ms else line


def _evicted(effect: e.Evicted, step: int) -> str:
    message = effect.message
    return (
        f'{{"step":{step},"event":"evicted","queue":{_quoted_name(effect.queue)},'
        f'"sequence":{message.sequence},"id":{quoted(message.id)}'
        f',"reason":"{effect.reason}","cause":{quoted(effect.cause)},"ready":{effect.ready}'
        f',"ring_size":{effect.ring_size},"age_ms":{effect.at_ms - message.enqueued_ms}'
        f',"handovers":{message.handovers}'
    )


def _expired(effect: e.Expired, step: int) -> str:
    return _about("expired", effect.queue, effect.message, step) + (
        f',"expires_at_ms":{effect.message.expires_at_ms},"consumer":{quoted(effect.consumer)}'
        f',"delivery":{effect.delivery}'
    )


def _lost(effect: e.Lost, step: int) -> str:
    delivery = f',"delivery":{effect.delivery}' if effect.delivery else ""
    return _about("lost", effect.queue, effect.message, step) + delivery


def _unrouted(effect: e.Unrouted, step: int) -> str:
    line = _about("unrouted", effect.queue, effect.message, step)
    return line + f',"source":{quoted(effect.message.payload.source)}'


def _dead(effect: e.Dead, step: int) -> str:
    message = effect.message
    # A refused message was never added, so no other line has its source.
    source = "" if message.sequence else f',"source":{quoted(message.payload.source)}'
    return _about("dead", effect.queue, message, step) + (
        f'{source},"reason":"{effect.reason}","consumer":{quoted(effect.consumer)}'
        f',"attempt":{message.attempts},"text":{quoted(effect.text)}'
    )


def _moved(effect: e.MovedOut, step: int) -> str:
    return _about("moved_out", effect.queue, effect.message, step) + f',"to":{quoted(effect.to)}'


def _plain(event: str) -> Callable[[Any, int], str]:
    """A writer for effects without a message: the declared fields as JSON."""
    names = [field.name for field in EVENTS[event].fields]

    def write(effect: Any, step: int) -> str:
        fields = "".join([f',"{name}":{json.dumps(getattr(effect, name))}' for name in names])
        return f'{{"step":{step},"event":"{event}"{fields}'

    return write


WRITERS: Final[dict[type, Callable[[Any, int], str]]] = {
    e.Added: _added,
    e.Scheduled: _added,
    e.Due: _due,
    e.Dispatched: lambda effect, step: _held("dispatched", effect.queue, effect.delivery, step),
    e.Acked: lambda effect, step: _held("acked", effect.queue, effect.delivery, step),
    e.Returned: _returned,
    e.Evicted: _evicted,
    e.Expired: _expired,
    e.Lost: _lost,
    e.Unrouted: _unrouted,
    e.Pending: _plain("pending"),
    e.Decided: _plain("decided"),
    e.Dead: _dead,
    e.Removed: lambda effect, step: _about("removed", effect.queue, effect.message, step),
    e.MovedOut: _moved,
    e.Attached: _plain("attached"),
    e.Detached: _plain("detached"),
    e.Configured: _plain("configured"),
    e.ConfiguredAddress: _plain("configured_address"),
    e.Paused: _plain("paused"),
    e.Applied: _plain("applied"),
    e.Deleted: _plain("deleted"),
    e.Refused: _plain("refused"),
}
"""For each effect: a function (effect, step) → its line without the `event_tail`."""
