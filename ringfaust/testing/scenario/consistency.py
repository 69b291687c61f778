"""Do the topics of a worker agree? Events are the truth; outputs and replies must say the same."""

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
_SAID_TWICE: Mapping[str, Mapping[str, str]] = {
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
    "unreadable": {"reason": h.REASON, "text": h.TEXT, "by": h.SOURCE},
}  # fmt: skip
"""By event: what the line and the header of the record say alike."""


def check_consistency(output: WorkerOutput) -> None:
    """Compare event by event with the records, and with the replies.

    Raises:
        Difference: they differ.
    """
    for role, records in output.outputs.items():
        lines = [line for line in output.lines if ROLE_OF.get(line["event"]) is role]
        told = [_told(line) for line in lines]
        found = [_found(line["event"], each) for line, each in zip(lines, records, strict=False)]
        if told != found or len(lines) != len(records):
            more = [f"and {dict(each.headers)}" for each in records[len(lines) :]]
            raise Difference(0, f"{role} topic, by the events", told, [*found, *more])
    _check_redelivered(output)
    for by, body in output.replies.items():
        _check_reply(output, by, body)
    for line, body in output.told:
        said = {name: line[name] for name in ("reason", "about", "text", "queue", "by")}
        if body != {"v": 1, "ok": False, **said}:
            raise Difference(0, "reply to a refused send", said, body)


def _told(line: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(line[name]) for name in _SAID_TWICE[line["event"]]}


def _found(event: str, record: Any) -> dict[str, str]:
    said = {name: value.decode() for name, value in record.headers}
    return {name: said.get(header, "(none)") for name, header in _SAID_TWICE[event].items()}


def _check_redelivered(output: WorkerOutput) -> None:
    for record in output.outputs[Role.DISPATCHED]:
        said = dict(record.headers)
        if (said[h.HANDOVERS] != b"1") != (h.REDELIVERED in said):
            raise Difference(0, "redelivered", f"by handovers {said[h.HANDOVERS]!r}", said)
        value = record.value or b""
        if value != filled(said[h.ID].decode(), len(value)):
            raise Difference(0, "value", said[h.ID], value)


def _check_reply(output: WorkerOutput, by: str, body: Mapping[str, Any]) -> None:
    """`by`: the control record that asked for this reply."""
    lines = [line for line in output.lines if line["by"] == by]
    if any(line["event"] == "done" for line in lines):
        lines = []  # a send that it has brought may be refused, and alone
    told = [(line["reason"], line["about"]) for line in lines if line["event"] == "refused"]
    told += [(Refusal.BAD_COMMAND, "") for line in lines if line["event"] == "unreadable"]
    found = [] if body["ok"] else [(body["reason"], body["about"])]
    if told != found:
        raise Difference(0, "reply", f"as the events tell: refused {told}", body)


def observed_effects(output: WorkerOutput, plain: Callable[[str], str]) -> list[ObservedEffect]:
    """What the player wants to know of it. `plain`: gives a name as it stands in the file."""
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
