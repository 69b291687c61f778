"""The contracts in docs/contracts/ are current, and every record of the scenarios obeys them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from jsonschema import Draft202012Validator

from ringfaust.config.worker import WorkerConfig
from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.contracts import EVENTS, Answered
from ringfaust.protocol.control import MODELS
from ringfaust.protocol.events import WRITERS, done_line, event_tail
from ringfaust.protocol.outputs import refused_send_record, reply_record
from ringfaust.protocol.records import Role
from ringfaust.testing.scenario.memory import MemoryScenarioHost
from ringfaust.testing.scenario.player import play
from ringfaust.testing.scenario.reading import load
from tests.contracts.validating import CONTRACTS as FOLDER
from tests.contracts.validating import Validating, schema
from tests.docs.test_protocol import EFFECTS

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))
TYPES = {model.core: name for name, model in MODELS.items() if hasattr(model, "core")}


@pytest.mark.parametrize("name", ["control", "replies", "events"])
def test_the_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


def test_the_asyncapi_document_describes_every_public_topic() -> None:
    document = json.loads((FOLDER / "asyncapi.json").read_text("utf-8"))
    assert document["asyncapi"] == "3.0.0"
    ours = {str(role) for role in Role} - {Role.CHANGELOG, Role.HOP}
    assert set(document["channels"]) == ours
    for name, channel in document["channels"].items():
        expected = "{topic}" if name == Role.PRODUCER else WorkerConfig().topic(name)
        assert channel["address"] == expected
        payload = channel["messages"]["record"].get("payload")
        assert payload is None or "type" in payload or (FOLDER / payload["$ref"]).is_file()
    for operation in document["operations"].values():
        *_, channel_name = operation["channel"]["$ref"].split("/")
        assert channel_name in document["channels"]


@pytest.mark.parametrize("value", [
    {"type": "attach", "queue": "q"},
    {"type": "attach", "queue": "q", "consumer": "c", "credit": -1},
    {"type": "purge", "queue": "q", "all": True},
    {"type": "fly"},
])  # fmt: skip
def test_a_wrong_command_is_refused(value: dict[str, Any]) -> None:
    assert not Draft202012Validator(schema("control")).is_valid(value)


def test_the_replies_on_the_page_of_the_protocol_are_valid() -> None:
    """They show each kind of answer."""
    page = (FOLDER.parent / "protocol.md").read_text("utf-8")
    shown = [json.loads(line) for line in page.splitlines() if line.startswith('{"v":1,"ok":')]
    for reply in shown:
        Draft202012Validator(schema("replies")).validate(reply)
    kinds = {frozenset(reply["answer"]) for reply in shown if "answer" in reply}
    assert len(kinds) == len(get_args(get_type_hints(Answered)["answer"]))


def test_a_wrong_reply_or_event_is_refused() -> None:
    assert not Draft202012Validator(schema("replies")).is_valid({"v": 1, "ok": False})
    line = {"step": 1, "event": "due", "queue": "q", "time_ms": 1, "by": "tick"}
    assert not Draft202012Validator(schema("events")).is_valid(line)


def control_record(command: Any) -> dict[str, Any] | None:
    """The command as a client writes it, without fields that have their defaults; None: a send."""
    kind = TYPES.get(type(command))
    if kind is None or kind == "tick":
        return None
    defaults = command._field_defaults
    record = {
        name: value for name, value in command._asdict().items()
        if name not in defaults or value != defaults[name]
    }  # fmt: skip
    if "acked" in record:
        record["acked"] = [
            {k: v for k, v in each._asdict().items() if k not in ("xid", "owner")}
            for each in record["acked"]
        ]
    return dict(json.loads(json.dumps({"type": kind, "v": 1, "reply": "r", **record})))


def test_every_record_of_the_scenarios_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """All scenarios on the memory host: commands, replies and events."""
    control, replies, events = map(Validating, ("control", "replies", "events"))
    step_of = MemoryHost.step
    seen: set[str] = set()

    def step(host: MemoryHost, command: c.Command, now_ms: int) -> Any:
        done = step_of(host, command, now_ms)
        tail = event_tail(max(now_ms, 0), "in/0/1")
        for effect in done.all_effects:
            line = json.loads(WRITERS[type(effect)](effect, 1) + tail)
            seen.add(line["event"])
            events(line)
        record = control_record(command)
        if record is not None and not _is_meant_to_be_wrong(done.refusal):
            control(record)
            events(json.loads(done_line(1, record["type"], tail)))
        if done.refusal is None:
            replies(json.loads(reply_record("r", None)[1]))
        elif record is not None:
            replies(json.loads(reply_record("r", done.refusal)[1]))
        else:
            replies(json.loads(refused_send_record("m", done.refusal, "in/0/1")[1]))
        return done

    monkeypatch.setattr(MemoryHost, "step", step)
    for path in SCENARIOS:
        play(load(path), MemoryScenarioHost())
    assert control.count > 500 and events.count > 1_000
    for effect in EFFECTS:  # of which the scenarios lack two: a message was lost, or moved
        line = json.loads(WRITERS[type(effect)](effect, 1) + event_tail(1, "tick"))
        seen.add(line["event"])
        events(line)
    assert seen == set(EVENTS) - {"unreadable", "gap", "misplaced", "done"}


def _is_meant_to_be_wrong(refusal: e.Refused | None) -> bool:
    """Scenarios also try commands that no schema admits, such as a credit of -1."""
    return refusal is not None and refusal.reason == "bad_command"
