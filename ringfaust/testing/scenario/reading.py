"""Reads and checks scenario files. An error names file, line and reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from ringfaust.config.documents import FILE_BYTES, StrictLoader, fields_at, shown
from ringfaust.core.address import address_of, queue_name
from ringfaust.core.settings import FIELD_NAMES, QueueSpec
from ringfaust.errors import BadSetting, RingfaustError, suggestion
from ringfaust.testing.scenario.grammar import (
    LONGEST_MS,
    STEPS,
    Declarations,
    Expect,
    Scenario,
    ScenarioStep,
)

_Place = Sequence[str | int]
"""The path to a node of the document: keys and indexes."""


class BadScenario(RingfaustError):
    """A scenario file is not valid. The text gives file, line and reason."""


class _Fault(Exception):
    """What is wrong at one place of the document."""

    def __init__(self, place: _Place, reason: str) -> None:
        self.place = place
        self.reason = reason


def load(path: Path) -> Scenario:
    """Read one scenario file.

    Raises:
        BadScenario: the file cannot be read, is not YAML, or does not follow the grammar.
    """
    try:
        if path.stat().st_size > FILE_BYTES:
            raise BadScenario(f"{path}:1: larger than {FILE_BYTES:,} bytes")
        loader = StrictLoader(path.read_text(encoding="utf-8"))
        tree = loader.get_single_node()
        raw = loader.construct_document(tree) if tree else None
    except OSError as error:
        raise BadScenario(f"{path}:1: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadScenario(f"{path}:1: not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        # An error of exactly this type comes from our loader: the file is YAML, but not valid.
        what = "" if type(error) is yaml.MarkedYAMLError else "not YAML: "
        raise BadScenario(f"{path}:{line}: {what}{error.problem}") from None
    except yaml.YAMLError as error:
        reason = str(error).partition("\n")[0]
        raise BadScenario(f"{path}:1: not YAML: {reason}") from None
    except RecursionError:
        raise BadScenario(f"{path}:1: nested too deeply") from None
    try:
        return _scenario(raw, tree, path.stem)
    except _Fault as fault:
        line = _line_of(tree, fault.place)
        raise BadScenario(f"{path}:{line}: {fault.reason}") from None


def _scenario(raw: Any, tree: Any, name: str) -> Scenario:
    if not isinstance(raw, dict) or not isinstance(raw.get("steps"), list):
        raise _Fault((), "a scenario is a map with a list of steps")
    steps = [_step(entry, index, tree) for index, entry in enumerate(raw["steps"])]
    try:
        scenario = Scenario.model_validate({**raw, "steps": steps})
    except ValidationError as error:
        raise _fault((), Scenario, error) from None
    if scenario.id != name:
        raise _Fault(("id",), f"the id is {shown(scenario.id)}; it must be the file's name")
    _check_settings(scenario)
    _check_times(scenario.steps)
    _check_sessions(scenario.steps)
    _check_states(scenario)
    return scenario


def _step(entry: Any, index: int, tree: Any) -> ScenarioStep:
    here: _Place = ("steps", index)
    if not isinstance(entry, dict):
        raise _Fault(here, "a step is a map with one key, and optionally expect")
    kinds = [name for name in entry if name != "expect"]
    if len(kinds) != 1:
        raise _Fault(here, f"a step has one key besides expect, not {shown(kinds)}")
    kind = kinds[0]
    what = entry[kind]
    if kind == "advance":
        if not isinstance(what, dict):
            what = {"ms": what}
        if type(what.get("ms")) is not int or what["ms"] < 0:
            reason = f"advance takes whole milliseconds, 0 or more, not {shown(what.get('ms'))}"
            raise _Fault((*here, kind), reason)
    if kind not in STEPS:
        raise _Fault(here, f"unknown step {shown(kind)}; the steps are {', '.join(STEPS)}")
    if kind == "state" and "expect" in entry:
        raise _Fault((*here, "expect"), "a state has no effects to expect")
    try:
        what = STEPS[kind].model_validate(what)
    except ValidationError as error:
        raise _fault((*here, kind), STEPS[kind], error) from None
    try:
        expect = Expect.model_validate(entry.get("expect", {}))
    except ValidationError as error:
        raise _fault((*here, "expect"), Expect, error) from None
    return ScenarioStep(kind=kind, what=what, expect=expect, line=_line_of(tree, here))


def _fault(here: _Place, model: type[BaseModel], error: ValidationError) -> _Fault:
    """Return the first error that pydantic found; `here` is the place of the model."""
    errors = error.errors(include_url=False, include_context=False)
    # Report an unknown name first: a misspelled name is also missing.
    first = min(errors, key=lambda each: each["type"] != "extra_forbidden")
    within = [part for part in first["loc"] if part != "[key]"]
    place = (*here, *within)
    named = ".".join(part for part in place if isinstance(part, str) and part != "steps")
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        said = f"unknown; {suggestion(str(within[-1]), fields_at(model, within[:-1]))}"
    elif first["type"] not in ("missing", "value_error"):
        said += f", not {shown(first['input'])}"
    return _Fault(place, f"{named}: {said}" if named else said)


def _check_settings(scenario: Scenario) -> None:
    """Check the values of known settings. With unknown ones, the file is skipped."""
    tables: dict[_Place, dict[str, dict[str, Any]]] = {
        ("queues",): scenario.queues,
        ("settings",): scenario.settings,
    }
    for address, each in scenario.addresses.items():
        tables["addresses", address, "subscriptions"] = each.subscriptions
    for place, entries in tables.items():
        for queue, fields in entries.items():
            compat = {"compat": "artemis"} if fields.get("compat") == "artemis" else {}
            for name in fields.keys() & set(FIELD_NAMES):
                try:
                    QueueSpec().with_fields({name: fields[name], **compat})
                except BadSetting as error:
                    raise _Fault((*place, queue, name), str(error)) from None


def _check_times(steps: Sequence[ScenarioStep]) -> None:
    now_ms = 0
    for index, step in enumerate(steps):
        now_ms += step.what.ms if step.kind == "advance" else 0
        if now_ms > LONGEST_MS:
            raise _Fault(("steps", index), f"the clock would pass {LONGEST_MS} ms")


def _check_sessions(steps: Sequence[ScenarioStep]) -> None:
    """Refuse sessions that Kafka cannot put in order; see `_SessionCheck`."""
    check = _SessionCheck()
    for index, step in enumerate(steps):
        if reason := check.take(step):
            raise _Fault(("steps", index), reason)


def _check_states(scenario: Scenario) -> None:
    """Refuse a state of a queue that nothing has named: of one that is misspelled all is 0."""
    names: set[str] = set()
    for declared in (scenario, *(step.what for step in scenario.steps)):
        if isinstance(declared, Declarations):
            names |= declared.queues.keys()
            for address, each in declared.addresses.items():
                names |= {queue_name(address, name) for name in each.subscriptions}
    for index, step in enumerate(scenario.steps):
        queue = getattr(step.what, "queue", None) or ""
        if step.kind == "state" and queue not in names:
            known = suggestion(queue, sorted(names - {""}))
            reason = f"nothing before this uses the queue {shown(queue)}; {known}"
            raise _Fault(("steps", index, "state", "queue"), reason)
        if step.kind == "create_queue":
            queue = queue_name(step.what.address, queue)
        names |= {queue, getattr(step.what, "to", queue)}


class _SessionCheck:
    """Follows the sessions of a file as the player and its client do.

    A session writes its sends and settles to different topics, between which Kafka keeps no order.
    So one session may not both send to a queue and settle on it. A settle takes effect at the
    commit, so its consumer must still hold the delivery by then: it may not detach or recover.
    """

    def __init__(self) -> None:
        self._queue_of: dict[str, str] = {}
        """By consumer: the queue of its last attach, which is where it settles."""
        self._sent: dict[str, set[str]] = {}
        """By open session: the queues and addresses it has sent to."""
        self._settled: dict[str, set[tuple[str, str, str]]] = {}
        """By open session: the queue, consumer and message id of each pending settle."""

    def take(self, step: ScenarioStep) -> str:
        """Take the next step; the reason why it is not valid, or an empty string."""
        what, session = step.what, getattr(step.what, "session", None) or ""
        if step.kind == "attach":
            if step.expect.refused:
                self._queue_of.setdefault(what.consumer, what.queue)
            else:
                self._queue_of[what.consumer] = what.queue
        elif step.kind == "begin" and session:
            self._sent.setdefault(session, set())
            self._settled.setdefault(session, set())
        elif step.kind in ("commit", "rollback"):
            self._sent.pop(session, None)
            self._settled.pop(session, None)
        elif step.kind == "send" and session in self._sent:
            self._sent[session].add(what.queue or what.address)
            return self._mixed_up(session)
        elif step.kind == "ack" and session in self._settled:
            self._settle(session, what.consumer, what.ids)
            return self._mixed_up(session)
        elif step.kind in ("detach", "recover") and self._is_pending(what.consumer):
            return f"{what.consumer} has an ack pending in a session: it cannot {step.kind}"
        return ""

    def _settle(self, session: str, consumer: str, ids: Sequence[str]) -> None:
        queue = self._queue_of.get(consumer, "")
        if queue:  # else the consumer never attached, and the settle is refused
            settles = {(queue, consumer, message_id) for message_id in ids}
            # The client refuses a second settle of a delivery (R103).
            self._settled[session] |= settles.difference(*self._settled.values())

    def _is_pending(self, consumer: str) -> bool:
        attached = (self._queue_of.get(consumer, ""), consumer)
        return any(settle[:2] == attached for settle in set().union(*self._settled.values()))

    def _mixed_up(self, session: str) -> str:
        settled = {queue for queue, _, _ in self._settled[session]}
        both = self._sent[session] & (settled | {address_of(queue) for queue in settled})
        return f"session {session} both sends to {min(both)} and settles on it" if both else ""


def _line_of(tree: Any, place: _Place) -> int:
    """The line of a place, or of the nearest thing around it."""
    node, line = tree, 1
    for part in place:
        found = next((value for key, value in _children(node) if key == part), None)
        if found is None:
            break
        node, line = found
    return line


def _children(node: Any) -> Iterator[tuple[str | int, tuple[Any, int]]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, (value, key.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield index, (value, value.start_mark.line + 1)
