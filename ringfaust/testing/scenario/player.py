"""Plays a scenario on a host and compares what it did with what the file says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ringfaust.core import commands as c
from ringfaust.core.address import queue_name
from ringfaust.protocol.headers import PROPERTIES
from ringfaust.protocol.records import Payload
from ringfaust.testing.scenario import grammar as g


class ObservedEffect(NamedTuple):
    """One effect, as a host showed it."""

    kind: str
    """dispatched, acked, returned, evicted, expired, dead or refused."""
    id: str
    consumer: str = ""
    reason: str = ""
    again: bool = False
    """Of a dispatched: is it a redelivery?"""


@dataclass(frozen=True, slots=True)
class QueueListing:
    """What a queue holds."""

    ready: list[str]
    delivering: dict[str, list[str]]
    scheduled: list[str]
    counts: dict[str, int]


class ScenarioHost(Protocol):
    """What a host does for the player; times are the scenario's own."""

    def start(self, scenario: g.Scenario) -> None:
        """Make the scenario's queues."""

    def do(self, command: c.Command, session: str) -> list[ObservedEffect]:
        """Do one command now, or in an open session."""

    def begin(self, session: str) -> list[ObservedEffect]:
        """Open a session's transaction."""

    def redrive(self, source: str, message_id: str, queue: str) -> list[ObservedEffect]:
        """Send an evicted or dead message again; `source` says which of the two."""

    def commit(self, session: str) -> list[ObservedEffect]:
        """Commit it."""

    def rollback(self, session: str) -> list[ObservedEffect]:
        """Roll it back."""

    def advance(self, now_ms: int) -> list[ObservedEffect]:
        """Move the clock, then sweep."""

    def crash(self) -> list[ObservedEffect]:
        """Lose all that is not durable and start again."""

    def listing(self, queue: str) -> QueueListing:
        """What a queue holds."""

    def finish(self) -> None:
        """Clean up after the last step, and see that nothing is left over."""


@dataclass(slots=True)
class Difference(Exception):
    """A step did not do what the file says. A host that is at odds with itself leaves line 0."""

    line: int
    what: str
    expected: Any
    happened: Any
    step: str = field(default="")


def play(scenario: g.Scenario, host: ScenarioHost) -> None:
    """Play all steps.

    Raises:
        Difference: at the first step that differs.
    """
    play = _Player(scenario, host)
    line, doing = 1, "start"
    try:
        host.start(scenario)
        for step in scenario.steps:
            line, doing = step.line, step.kind
            play.step(step)
    except Difference as difference:
        difference.line = difference.line or line
        difference.step = doing
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
        self.now_ms = 0
        self.queue_of: dict[str, str] = {}
        """By consumer, also a detached one."""
        self.some_queue = next(iter(scenario.queues), "")

    def step(self, step: g.Step) -> None:
        """Do one step and check it."""
        if step.kind == "state":
            self._check_state(step)
        else:
            _check_effects(step, list(self._effects(step)))

    def _effects(self, step: g.Step) -> Iterator[ObservedEffect]:
        host, what = self.host, step.what
        if step.kind == "advance":
            self.now_ms += what
            yield from host.advance(self.now_ms)
        elif step.kind == "crash":
            yield from host.crash()
        elif step.kind in ("begin", "commit", "rollback") and what.session is not None:
            yield from getattr(host, step.kind)(what.session)
        elif step.kind == "redrive":
            for message_id in what.ids:
                yield from host.redrive(what.from_, message_id, what.queue)
        elif step.kind == "attach":
            seen = host.do(self._attach(what), "")
            if not any(effect.kind == "refused" for effect in seen):
                self.queue_of[what.consumer] = what.queue
            self.queue_of.setdefault(what.consumer, what.queue)
            yield from seen
        else:
            session = getattr(what, "session", "") if step.kind in ("send", "ack") else ""
            for command in self._commands(step.kind, what):
                yield from host.do(command, session or "")

    def _commands(self, kind: str, what: Any) -> Sequence[c.Command]:
        if kind == "send":
            return [self._send(what, message_id) for message_id in what.ids]
        if kind == "configure" and what.address is not None:
            return [c.ConfigureAddress(what.address, dict(what.model_extra or {}))]
        if kind == "configure":
            return [c.Configure(what.queue, dict(what.model_extra or {}))]
        if kind == "create_queue":
            name = queue_name(what.address, what.queue)
            return [c.CreateQueue(name, dict(what.model_extra or {}))]
        if kind in _XID_COMMANDS:
            return [_XID_COMMANDS[kind](what.xid)]
        if kind in ("pause", "resume"):
            return [_QUEUE_COMMANDS[kind](what.queue, what.what)]
        if kind == "purge":
            return [c.Purge(what.queue)]
        if kind in _QUEUE_COMMANDS:
            return [_QUEUE_COMMANDS[kind](what.queue, what.id)]
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
            return [c.Ack(queue, name, message_id, xid=what.xid or "") for message_id in what.ids]
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
        )

    def _check_state(self, step: g.Step) -> None:
        want: g.StateStep = step.what
        have = self.host.listing(want.queue)
        for name in ("ready", "delivering", "scheduled"):
            wanted, found = getattr(want, name), getattr(have, name)
            if wanted is not None and wanted != found:
                raise Difference(step.line, name, wanted, found)
        for name, number in want.counts.items():
            if have.counts.get(name) != number:
                raise Difference(step.line, f"counts.{name}", number, have.counts.get(name))


def _payload(what: g.SendStep, message_id: str) -> Payload:
    """The record: its properties, and its id as value, filled up to the size it shall have."""
    headers: tuple[tuple[str, bytes], ...] = ()
    if what.properties:
        headers = ((PROPERTIES, json.dumps(what.properties).encode()),)
    size = len(message_id.encode())
    if what.bytes is not None:
        size = max(what.bytes - sum(len(name) + len(value) for name, value in headers), 0)
    return Payload(None, filled(message_id, size), headers, "")


def filled(message_id: str, size_bytes: int) -> bytes:
    """The value of a record in scenarios: the message's id in so many bytes."""
    return message_id.encode().ljust(size_bytes, b".")[:size_bytes]


_XID_COMMANDS: dict[str, Any] = {
    "begin": c.Begin,
    "prepare": c.Prepare,
    "commit": c.Commit,
    "rollback": c.RollbackXid,
}
_QUEUE_COMMANDS: dict[str, Any] = {
    "pause": c.Pause,
    "resume": c.Resume,
    "remove": c.Remove,
    "cancel_scheduled": c.CancelScheduled,
    "deliver_now": c.DeliverNow,
}


def _check_effects(step: g.Step, seen: list[ObservedEffect]) -> None:
    expect = step.expect
    by_kind: dict[str, list[ObservedEffect]] = {}
    for effect in seen:
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


def _compare(step: g.Step, kind: str, wanted: Any, found: Any) -> None:
    if wanted != found:
        raise Difference(step.line, kind, wanted, found)


def _compare_losses(
    step: g.Step, kind: str, wanted: list[g.ExpectedLoss], found: list[ObservedEffect]
) -> None:
    shown = [f"{effect.id}: {effect.reason}" for effect in found]
    fits = len(wanted) == len(found) and all(
        want.id in (None, effect.id) and want.reason in (None, effect.reason)
        for want, effect in zip(wanted, found, strict=True)
    )
    if not fits:
        asked = [f"{want.id or '*'}: {want.reason or '*'}" for want in wanted]
        raise Difference(step.line, kind, asked, shown)
