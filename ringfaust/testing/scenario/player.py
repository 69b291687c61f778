"""Plays a scenario on a host, and compares what happens with what the file expects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ringfaust.core import commands as c
from ringfaust.core.address import queue_name
from ringfaust.core.model import HELD_STATES
from ringfaust.core.settings import stored_names
from ringfaust.protocol.control import OPERATOR_COMMANDS
from ringfaust.protocol.headers import PROPERTIES
from ringfaust.protocol.records import Payload
from ringfaust.testing.scenario import grammar as g


class ObservedEffect(NamedTuple):
    """One effect, as a host reports it."""

    kind: str
    """dispatched, acked, returned, evicted, expired, dead or refused."""
    id: str
    consumer: str = ""
    reason: str = ""
    again: bool = False
    """Whether a dispatched message is redelivered."""


@dataclass(frozen=True, slots=True)
class QueueListing:
    """What a queue holds: message ids by state, and its counters."""

    ready: list[str]
    delivering: dict[str, list[str]]
    scheduled: list[str]
    counts: dict[str, int]


class ScenarioHost(Protocol):
    """A host on which the player runs a scenario. Times are the scenario's."""

    def start(self, scenario: g.Scenario) -> None:
        """Create the scenario's queues."""

    def do(self, commands: Sequence[c.Command], session: str) -> list[ObservedEffect]:
        """Execute the commands of a step in their order, or buffer them in an open session."""

    def begin(self, session: str) -> list[ObservedEffect]:
        """Open a session's transaction."""

    def redrive(self, source: str, message_id: str, queue: str) -> list[ObservedEffect]:
        """Redrive a message from `source`: `evicted` or `dead` (R43)."""

    def commit(self, session: str) -> list[ObservedEffect]:
        """Commit a session's transaction."""

    def rollback(self, session: str) -> list[ObservedEffect]:
        """Roll back a session's transaction."""

    def advance(self, now_ms: int, heard_ms: int) -> list[ObservedEffect]:
        """Set the clock to `now_ms`, then sweep; clients were heard until `heard_ms` (R110)."""

    def crash(self) -> list[ObservedEffect]:
        """Lose everything that is not durable, and start again."""

    def listing(self, queue: str) -> QueueListing:
        """Return what a queue holds."""

    def finish(self) -> None:
        """Clean up after the last step, and check that no output is left over."""


@dataclass(slots=True)
class Difference(Exception):
    """A step did not do what the file expects. `line` is 0 until the player fills it in."""

    line: int
    what: str
    expected: Any
    happened: Any
    step: str = field(default="")


def play(scenario: g.Scenario, host: ScenarioHost) -> None:
    """Play all steps of a scenario.

    Raises:
        Difference: the first step that does not do what the file expects.
    """
    player = _Player(scenario, host)
    line, kind = 1, "start"
    try:
        host.start(scenario)
        for step in scenario.steps:
            line, kind = step.line, step.kind
            player.step(step)
    except Difference as difference:
        difference.line = difference.line or line
        difference.step = kind
        with suppress(Difference):
            host.finish()
        raise
    _finish(host, line)


def _finish(host: ScenarioHost, line: int) -> None:
    try:
        host.finish()
    except Difference as difference:
        difference.line = line
        difference.step = "after the last step"
        raise


class _Player:
    def __init__(self, scenario: g.Scenario, host: ScenarioHost) -> None:
        self.host = host
        self.now_ms = self.heard_ms = 0
        self.queue_of: dict[str, str] = {}
        """By consumer: the queue of its last attach, even if it has detached since."""
        self.some_queue = next(iter(scenario.queues), "")

    def step(self, step: g.ScenarioStep) -> None:
        """Execute a step and check its effects."""
        if step.kind == "state":
            self._check_state(step)
        else:
            _check_effects(step, list(self._effects(step)))

    def _effects(self, step: g.ScenarioStep) -> Iterator[ObservedEffect]:
        host, what = self.host, step.what
        if step.kind == "advance":
            self.now_ms += what.ms
            self.heard_ms = self.now_ms if what.heard else self.heard_ms
            yield from host.advance(self.now_ms, self.heard_ms)
        elif step.kind == "crash":
            yield from host.crash()
        elif step.kind in ("begin", "commit", "rollback") and what.session is not None:
            yield from getattr(host, step.kind)(what.session)
        elif step.kind == "redrive":
            for message_id in what.ids:
                yield from host.redrive(what.from_, message_id, what.queue)
        elif step.kind == "attach":
            effects = host.do([self._attach(what)], "")
            if not any(effect.kind == "refused" for effect in effects):
                self.queue_of[what.consumer] = what.queue
            self.queue_of.setdefault(what.consumer, what.queue)
            yield from effects
        else:
            session = getattr(what, "session", "") if step.kind in ("send", "ack") else ""
            yield from host.do(self._commands(step.kind, what), session or "")

    def _commands(self, kind: str, what: Any) -> Sequence[c.Command]:
        if kind == "send":
            return [self._send(what, message_id) for message_id in what.ids]
        if kind == "configure" and what.address is not None:
            return [c.ConfigureAddress(what.address, dict(what.model_extra or {}))]
        if kind == "configure":
            return [c.Configure(what.queue, stored_names(what.model_extra or {}))]
        if kind == "create_queue":
            name = queue_name(what.address, what.queue)
            return [c.CreateQueue(name, stored_names(what.model_extra or {}))]
        if kind == "apply":
            return [c.Apply(what.revision, what.document(), "scenario")]
        if kind == "begin":
            return [c.Begin(what.xid, what.owner, what.timeout_ms)]
        if kind in _XID_COMMANDS:
            return [_XID_COMMANDS[kind](what.xid)]
        if kind in OPERATOR_COMMANDS:
            return [OPERATOR_COMMANDS[kind](**dict(what))]
        return self._consumer_commands(kind, what)

    def _consumer_commands(self, kind: str, what: Any) -> Sequence[c.Command]:
        name = what.consumer
        queue = self.queue_of.get(name, self.some_queue)
        if kind == "credit":
            return [c.Credit(queue, name, what.add)]
        if kind == "detach":
            return [c.Detach(queue, name)]
        if kind == "recover":
            return [c.Recover(queue, name)]
        if kind == "ack":
            xid = {"xid": what.xid, "owner": what.owner} if what.xid else {}
            return [c.Ack(queue, name, message_id, **xid) for message_id in what.ids]
        if kind == "release":
            return [c.Release(queue, name, i, delay_ms=what.delay_ms) for i in what.ids]
        return [c.Reject(queue, name, message_id, text=what.text) for message_id in what.ids]

    def _attach(self, what: g.AttachStep) -> c.Attach:
        return c.Attach(
            what.queue, what.consumer, what.credit, what.priority, what.ack_mode, what.session,
            what.selector,
        )  # fmt: skip

    def _send(self, what: g.SendStep, message_id: str) -> c.Send:
        now = self.now_ms
        payload = _payload(what, message_id)
        return c.Send(
            what.queue or what.address or "",
            message_id,
            now,
            priority=what.priority,
            due_ms=max(now + what.delay_ms, 0) if what.delay_ms is not None else 0,
            expires_at_ms=now + what.ttl_ms if what.ttl_ms is not None and what.ttl_ms > 0 else 0,
            group=what.group,
            size_bytes=len(payload.value or b"") + sum(len(n) + len(v) for n, v in payload.headers),
            payload=payload,
            persistent=what.persistent,
            xid=what.xid or "",
            owner=what.owner if what.xid else "",
        )

    def _check_state(self, step: g.ScenarioStep) -> None:
        want: g.StateStep = step.what
        have = self.host.listing(want.queue)
        for state in HELD_STATES:
            wanted, found = getattr(want, state), getattr(have, state)
            if wanted is not None and wanted != found:
                raise Difference(step.line, state, wanted, found)
        for name, number in want.counts.items():
            if have.counts.get(name) != number:
                raise Difference(step.line, f"counts.{name}", number, have.counts.get(name))


def _payload(what: g.SendStep, message_id: str) -> Payload:
    """Return a record with the properties as header and the id, padded to the size, as value."""
    headers: tuple[tuple[str, bytes], ...] = ()
    if what.properties:
        headers = ((PROPERTIES, json.dumps(what.properties).encode()),)
    size = len(message_id.encode())
    if what.bytes is not None:
        size = max(what.bytes - sum(len(name) + len(value) for name, value in headers), 0)
    return Payload(None, filled(message_id, size), headers, "")


def filled(message_id: str, size_bytes: int) -> bytes:
    """Return the value of a record in scenarios: the message id, padded or cut to the size."""
    return message_id.encode().ljust(size_bytes, b".")[:size_bytes]


_XID_COMMANDS: dict[str, Any] = {
    "prepare": c.Prepare,
    "commit": c.Commit,
    "rollback": c.RollbackXid,
}


def _check_effects(step: g.ScenarioStep, effects: list[ObservedEffect]) -> None:
    expect = step.expect
    by_kind: dict[str, list[ObservedEffect]] = {}
    for effect in effects:
        by_kind.setdefault(effect.kind, []).append(effect)
    dispatched = by_kind.get("dispatched", [])
    if expect.dispatched is not None:
        found: dict[str, list[str]] = {}
        for effect in dispatched:
            found.setdefault(effect.consumer, []).append(effect.id)
        _compare(step, "dispatched", expect.dispatched, found)
    if expect.redelivered is not None:
        again = [effect.id for effect in dispatched if effect.again]
        _compare(step, "redelivered", expect.redelivered, again)
    for kind in ("acked", "returned", "expired"):
        wanted = getattr(expect, kind)
        if wanted is not None:
            _compare(step, kind, wanted, [effect.id for effect in by_kind.get(kind, [])])
    for kind in ("evicted", "dead", "refused"):
        _compare_losses(step, kind, getattr(expect, kind), by_kind.get(kind, []))


def _compare(step: g.ScenarioStep, kind: str, wanted: Any, found: Any) -> None:
    if wanted != found:
        raise Difference(step.line, kind, wanted, found)


def _compare_losses(
    step: g.ScenarioStep, kind: str, wanted: list[g.ExpectedLoss], found: list[ObservedEffect]
) -> None:
    shown = [f"{effect.id}: {effect.reason}" for effect in found]
    fits = len(wanted) == len(found) and all(
        want.id in (None, effect.id) and want.reason in (None, effect.reason)
        for want, effect in zip(wanted, found, strict=True)
    )
    if not fits:
        asked = [f"{want.id or '*'}: {want.reason or '*'}" for want in wanted]
        raise Difference(step.line, kind, asked, shown)
