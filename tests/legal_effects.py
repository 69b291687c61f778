"""Asserts that each effect of an engine is one that `protocol/lifecycle.py` declares.

conftest.py gives one to every memory host, which the scenarios in memory and the tests of the
engine use. The partitions of the model tests have one, too.
"""

from __future__ import annotations

import json
from enum import EnumType
from typing import Any, get_args

from ringfaust.core.commands import Command
from ringfaust.core.engine import Step
from ringfaust.core.state import State
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.events import WRITERS, event_tail
from ringfaust.protocol.lifecycle import BY, EVENT, EVENTS, STEP, TIME, Field, Kind, Line
from ringfaust.testing.accounts.event_accounts import EventAccounts

_TYPES: dict[Kind, type] = {
    Kind.TEXT: str, Kind.LONG: int, Kind.INT: int, Kind.SIGNED: int, Kind.FLAG: bool,
    Kind.SETTINGS: dict, Kind.COUNTS: dict,
}  # fmt: skip


class LegalEffects:
    """Follows one engine. What is not committed before a crash has not happened."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._flying = 0
        """How many of the lines the last commit that began has."""
        self._durable = 0
        self._accounts = EventAccounts(_fail)
        self._steps = 0
        self._changed: set[str] = set()
        """Queues whose counts have not been compared yet."""

    def take(self, step: Step, state: State) -> None:
        """Check the effects of a step."""
        self._steps += 1
        for effect in step.all_effects:
            text = WRITERS[type(effect)](effect, self._steps) + event_tail(0, str(self._steps))
            line = json.loads(text)
            check_fields(line)
            self._lines.append(line)
            self._accounts.take(0, line)
            self._changed.add(line.get("queue", ""))
        self._changed |= {queue.name for queue in state.changed_queues}

    def begin_commit(self, state: State) -> None:
        """What has happened so far is about to become durable. Compare the counts."""
        self._flying = len(self._lines)
        for name in self._changed:
            queue = state.queues.get(name)
            if queue is not None:
                counts = self._accounts.queue(name).counts
                assert queue.counts.as_dict() == counts.as_dict(), f"{name}: {counts} by effects"
        self._changed.clear()

    def committed(self) -> None:
        """It is durable."""
        self._durable = self._flying

    def crash(self) -> None:
        """Forget what is not durable."""
        self._accounts = EventAccounts(_fail)
        del self._lines[self._durable :]
        self._flying = self._durable
        for line in self._lines:
            self._accounts.take(0, line)


def check_fields(line: Line) -> None:
    """Assert that a line has the declared fields, in order and of the declared types."""
    declared = (STEP, EVENT, *EVENTS[line["event"]].fields, TIME, BY)
    assert [*line] == [field.name for field in declared if field.name in line], line
    for field in declared:
        if field.name in line:
            assert _admits(field, line[field.name]), (field.name, line)
        else:
            assert field.optional, (field.name, line)


def _admits(field: Field, value: Any) -> bool:
    """Whether a value is of the field's type."""
    if value is None:
        return field.nullable
    if field.values is not None and value not in values_of(field.values):
        return False
    if field.kind in (Kind.LONG, Kind.INT) and int(value) < 0:
        return False
    return type(value) is _TYPES[field.kind]


def values_of(kind: Any) -> list[str]:
    """The values of an enumeration, of a literal type, or of a union of such."""
    if isinstance(kind, EnumType):
        return list(kind)
    parts = get_args(kind)
    return [value for part in parts for value in values_of(part)] if parts else [kind]


def _fail(text: str, queue: str) -> None:
    raise AssertionError(text)


def watch_memory_hosts() -> None:
    """Check the effects of every memory host from now on."""
    engine_step, engine_look = MemoryHost.step, MemoryHost.look

    def watched(host: MemoryHost, done: Step) -> Step:
        found: LegalEffects = vars(host).setdefault("legal_effects", LegalEffects())
        found.take(done, host.state)
        found.begin_commit(host.state)
        return done

    def step(host: MemoryHost, command: Command, now_ms: int) -> Step:
        return watched(host, engine_step(host, command, now_ms))

    def look(host: MemoryHost) -> Step:
        return watched(host, engine_look(host))

    MemoryHost.step = step  # type: ignore[method-assign, assignment]
    MemoryHost.look = look  # type: ignore[method-assign, assignment]
