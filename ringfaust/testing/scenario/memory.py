"""Scenarios on the memory host. PendingSessions live in their client (R80)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Message, Refusal
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.headers import REDRIVES
from ringfaust.protocol.listing import list_queue
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.player import ObservedEffect, QueueListing
from ringfaust.testing.scenario.sessions import PendingSessions, rollback_of, unknown_session


class MemoryScenarioHost:
    """Plays on one partition in memory."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._host = MemoryHost(Catalog({}, {}))
        self._now_ms = 0
        self._sessions = PendingSessions()
        self._sent = 0
        self._lagging: dict[str, list[c.Send]] = {}
        """By destination: what is not pulled yet (R60, R90); a crash cannot touch it."""
        self._gone: dict[tuple[str, str], tuple[Message, str]] = {}
        """The last evicted or dead message of each id, and what was kept of it (R6, R43)."""

    def start(self, scenario: g.Scenario) -> None:
        """Make the scenario's queues."""
        settings, addresses = scenario.all_settings(), scenario.all_addresses()
        self._host = MemoryHost(Catalog(scenario.queues, settings, addresses))

    def do(self, command: c.Command, session: str) -> list[ObservedEffect]:
        """Do one command now, or in an open session."""
        if isinstance(command, c.Send):
            self._sent += 1
            payload = command.payload._replace(source=f"scenario/0/{self._sent}")
            command = command._replace(payload=payload)
        kept = self._sessions.take(command, session)
        return self._step(command) if kept is None else kept

    def begin(self, session: str) -> list[ObservedEffect]:
        """Open a session's transaction."""
        return self._sessions.begin(session)

    def commit(self, session: str) -> list[ObservedEffect]:
        """Each operation takes effect, in the order made, as a command of its own."""
        pending = self._sessions.end(session)
        if pending is None:
            return unknown_session(session)
        return [seen for command in pending for seen in self.do(command, "")]

    def rollback(self, session: str) -> list[ObservedEffect]:
        """What was pending is forgotten; what the session's consumers hold returns."""
        pending = self._sessions.end(session)
        if pending is None:
            return unknown_session(session)
        # Of a session without consumers the engine knows nothing, and there is nothing to return.
        seen = self.do(rollback_of(session, pending), "")
        return [each for each in seen if each.kind != "refused"]

    def advance(self, now_ms: int) -> list[ObservedEffect]:
        """Move the clock, then sweep."""
        self._now_ms = now_ms
        return self.do(c.Sweep(), "")

    def crash(self) -> list[ObservedEffect]:
        """Lose all that is not durable and start again."""
        return self._seen(self._host.crash().all_effects)

    def listing(self, queue: str) -> QueueListing:
        """What a queue holds."""
        found = self._host.state.queue(queue)
        if found is None:
            return QueueListing([], {}, [], {})
        return QueueListing(**list_queue(found, limit=10_000))

    def finish(self) -> None:
        """Nothing outlives the file."""

    def redrive(self, source: str, message_id: str, queue: str) -> list[ObservedEffect]:
        """Send an evicted or dead message again (R43)."""
        message, kept = self._gone.get((source, message_id), (None, ""))
        if message is None or kept != "full":
            return [ObservedEffect("refused", message_id, reason=Refusal.BAD_COMMAND)]
        headers = dict(message.payload.headers)
        headers[REDRIVES] = b"%d" % (times := int(headers.get(REDRIVES, b"0")) + 1)
        payload = message.payload._replace(headers=tuple(headers.items()))
        size = len(payload.value) + sum(len(n) + len(v) for n, v in headers.items())
        send = c.Send(
            queue, message_id, self._now_ms, message.priority, group=message.group,
            size_bytes=size, payload=payload, redrives=times,
        )  # fmt: skip
        return self.do(send, "")

    def _step(self, command: c.Command) -> list[ObservedEffect]:
        if isinstance(command, c.Send) and not command.xid:
            self._lagging.setdefault(command.queue, []).append(command)
            effects: list[e.Effect] = []
        else:
            effects = self._host.step(command, self._now_ms).all_effects
        while (send := self._next_pulled()) is not None:
            effects += self._host.step(send, self._now_ms).all_effects
        return self._seen(effects)

    def _next_pulled(self) -> c.Send | None:
        """What lags no longer."""
        for lagging in self._lagging.values():
            if lagging and self._host.engine.blocker(lagging[0]) is None:
                return lagging.pop(0)
        return None

    def _seen(self, effects: list[e.Effect]) -> list[ObservedEffect]:
        for effect in effects:
            if isinstance(effect, e.Evicted):
                self._gone["evicted", effect.message.id] = effect.message, effect.payload
            elif isinstance(effect, e.Dead | e.Expired):
                self._gone["dead", effect.message.id] = effect.message, "full"
        return [seen for effect in effects if (seen := _one(effect)) is not None]


def _one(effect: e.Effect) -> ObservedEffect | None:
    match effect:
        case e.Dispatched(_, delivery):
            again = delivery.message.handovers > 1
            return ObservedEffect("dispatched", delivery.message.id, delivery.consumer, again=again)
        case e.Acked(_, delivery):
            return ObservedEffect("acked", delivery.message.id, delivery.consumer)
        case e.Returned(_, _, message, _):
            return ObservedEffect("returned", message.id)
        case e.Evicted(_, message, reason):
            return ObservedEffect("evicted", message.id, reason=reason)
        case e.Expired(_, message, _):
            return ObservedEffect("expired", message.id)
        case e.Dead(_, message, reason, consumer, _):
            return ObservedEffect("dead", message.id, consumer, reason)
        case e.Refused(_, reason, about, _):
            return ObservedEffect("refused", about, reason=reason)
    return None
