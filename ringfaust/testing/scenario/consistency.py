"""Checks that the topics of a worker agree: outputs and replies must match the events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ringfaust.core.model import Refusal
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.testing.scenario.channel import ROLE_OF, WorkerOutput
from ringfaust.testing.scenario.player import Difference, ObservedEffect, filled

_ABOUT = {"queue": h.QUEUE, "id": h.ID, "sequence": h.SEQUENCE}
_HELD = {"consumer": h.CONSUMER, "attempt": h.ATTEMPT, "handovers": h.HANDOVERS}
_SAME_IN_BOTH: Mapping[str, Mapping[str, str]] = {
    "dispatched": {**_ABOUT, **_HELD, "delivery": h.DELIVERY},
    "evicted": {
        **_ABOUT, "reason": h.REASON, "cause": h.CAUSE, "ready": h.READY, "time_ms": h.TIME_MS,
        "ring_size": h.RING_SIZE, "age_ms": h.AGE_MS, "handovers": h.HANDOVERS,
    },
    "dead": {
        **_ABOUT, "reason": h.REASON, "consumer": h.CONSUMER, "attempt": h.ATTEMPT,
        "text": h.TEXT, "time_ms": h.TIME_MS,
    },
    "expired": {**_ABOUT, "consumer": h.CONSUMER, "time_ms": h.TIME_MS},
    "unreadable": {"reason": h.REASON, "text": h.TEXT, "source": h.SOURCE},
}  # fmt: skip
"""By event: the fields of the event and the headers of the output record that hold the same."""


def check_consistency(output: WorkerOutput) -> None:
    """Compare the events of a step with its output records and replies.

    Raises:
        Difference: they do not agree.
    """
    for role, records in output.outputs.items():
        lines = [line for line in output.lines if ROLE_OF.get(line["event"]) is role]
        expected = [_expected(line) for line in lines]
        found = [_found(line["event"], each) for line, each in zip(lines, records, strict=False)]
        if expected != found or len(lines) != len(records):
            more = [f"and {dict(each.headers)}" for each in records[len(lines) :]]
            raise Difference(0, f"{role} topic, by the events", expected, [*found, *more])
    _check_redelivered(output)
    for by, body in output.replies.items():
        _check_reply(output, by, body)
    for line, body in output.refused_sends:
        headers = {name: line[name] for name in ("reason", "about", "text", "queue", "by")}
        if body != {"v": 1, "ok": False, **headers}:
            raise Difference(0, "reply to a refused send", headers, body)


def _expected(line: Mapping[str, Any]) -> dict[str, str]:
    named = {"source": line["by"], **line}  # an unreadable record is its own source
    return {name: str(named[name]) for name in _SAME_IN_BOTH[line["event"]]}


def _found(event: str, record: Any) -> dict[str, str]:
    headers = {name: value.decode() for name, value in record.headers}
    return {name: headers.get(header, "(none)") for name, header in _SAME_IN_BOTH[event].items()}


def _check_redelivered(output: WorkerOutput) -> None:
    for record in output.outputs[Role.DISPATCHED]:
        headers = dict(record.headers)
        if (headers[h.HANDOVERS] != b"1") != (h.REDELIVERED in headers):
            raise Difference(0, "redelivered", f"by handovers {headers[h.HANDOVERS]!r}", headers)
        value = record.value or b""
        if value != filled(headers[h.ID].decode(), len(value)):
            raise Difference(0, "value", headers[h.ID], value)


def _check_reply(output: WorkerOutput, by: str, body: Mapping[str, Any]) -> None:
    """Compare a reply with the events. `by` is the position of the command's record."""
    lines = [line for line in output.lines if line["by"] == by]
    if any(line["event"] == "done" for line in lines):
        lines = []  # the command was executed; only a send that it contains was refused
    expected = [(line["reason"], line["about"]) for line in lines if line["event"] == "refused"]
    expected += [(Refusal.BAD_COMMAND, "") for line in lines if line["event"] == "unreadable"]
    found = [] if body["ok"] else [(body["reason"], body["about"])]
    if expected != found:
        raise Difference(0, "reply", f"as in the events: refused {expected}", body)


def observed_effects(output: WorkerOutput, plain: Callable[[str], str]) -> list[ObservedEffect]:
    """Return the effects of a step for the player. `plain` turns a full name into the file's."""
    return [seen for line in output.lines if (seen := _seen(line, plain)) is not None]


def _seen(line: Mapping[str, Any], plain: Callable[[str], str]) -> ObservedEffect | None:
    match line["event"]:
        case "dispatched":
            return ObservedEffect(
                "dispatched", line["id"], line["consumer"], again=line["handovers"] > 1
            )
        case "acked" | "returned" | "expired" as kind:
            return ObservedEffect(kind, line["id"], line["consumer"])
        case "evicted" | "dead" as kind:
            return ObservedEffect(kind, line["id"], reason=line["reason"])
        case "refused":
            return ObservedEffect("refused", plain(line["about"]), reason=line["reason"])
        case "unreadable":
            return ObservedEffect("refused", line["by"], reason=Refusal.BAD_COMMAND)
    return None
