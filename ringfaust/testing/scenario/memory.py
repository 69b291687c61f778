"""Scenarios on the memory host, which needs no broker. Sessions live in their client (R80)."""

from __future__ import annotations

from collections.abc import Sequence

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Message, Refusal
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.headers import REDRIVES
from ringfaust.protocol.listing import list_queue
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.player import ObservedEffect, QueueListing
from ringfaust.testing.scenario.sessions import SessionHost


class MemoryScenarioHost(SessionHost):
    """Plays a scenario on one partition in memory."""

    def __init__(self, step_transitions: int = limits.STEP_TRANSITIONS) -> None:
        """`step_transitions`: messages that a command may touch in one transaction (R114)."""
        super().__init__()
        self._step_transitions = step_transitions
        self._host = MemoryHost(Catalog({}, {}))
        self._now_ms = 0
        self._sent = 0
        self._lagging: dict[str, list[c.Send]] = {}
        """By destination: sends that are not pulled yet (R60, R90). They survive a crash."""
        self._gone: dict[tuple[str, str], tuple[Message, str, str]] = {}
        """By topic and message id: the last evicted or dead message, how much of it its record
        holds (R6, R43), and its queue."""

    def start(self, scenario: g.Scenario) -> None:
        """Declare the scenario's queues, addresses and settings."""
        settings, addresses = scenario.all_settings(), scenario.all_addresses()
        catalog = Catalog(scenario.queues, settings, addresses)
        self._host = MemoryHost(catalog, self._step_transitions)

    def do(self, commands: Sequence[c.Command], session: str) -> list[ObservedEffect]:
        """Execute the commands of a step in their order, or buffer them in an open session."""
        return [each for command in commands for each in self._do(command, session)]

    def _do(self, command: c.Command, session: str) -> list[ObservedEffect]:
        if isinstance(command, c.Send):
            self._sent += 1
            payload = command.payload._replace(source=f"scenario/0/{self._sent}")
            command = command._replace(payload=payload)
        buffered = self._buffered(command, session)
        return self._step(command) if buffered is None else buffered

    def _commit(self, pending: list[c.Command]) -> list[ObservedEffect]:
        """Execute the operations in their order, each as a command of its own (R80)."""
        return self.do(pending, "")

    def _roll_back(self, rollback: c.Rollback, pending: list[c.Command]) -> list[ObservedEffect]:
        return self.do([rollback], "")

    def advance(self, now_ms: int, heard_ms: int) -> list[ObservedEffect]:
        """Set the clock to `now_ms`, then sweep (R32); clients were heard until `heard_ms`."""
        self._now_ms = now_ms
        return self.do([c.Sweep(heard_ms)], "")

    def crash(self) -> list[ObservedEffect]:
        """Lose everything that is not durable, and start again."""
        return self._observe(self._host.crash().all_effects)

    def listing(self, queue: str) -> QueueListing:
        """Return what a queue holds."""
        found = self._host.state.queue(queue)
        if found is None:
            return QueueListing([], {}, [], {})
        return QueueListing(**list_queue(found, limit=10_000))

    def finish(self) -> None:
        """Do nothing: nothing outlives the file."""

    def redrive(self, source: str, message_id: str, queue: str) -> list[ObservedEffect]:
        """Redrive an evicted or dead message (R43)."""
        message, payload_kind, lost_by = self._gone.get((source, message_id), (None, "", ""))
        if message is None or payload_kind != "full":
            return [ObservedEffect("refused", message_id, reason=Refusal.BAD_COMMAND)]
        headers = dict(message.payload.headers)
        headers[REDRIVES] = b"%d" % (times := int(headers.get(REDRIVES, b"0")) + 1)
        payload = message.payload._replace(headers=tuple(headers.items()))
        size = len(payload.value) + sum(len(n) + len(v) for n, v in headers.items())
        send = c.Send(
            queue, message_id, self._now_ms, message.priority, group=message.group,
            size_bytes=size, payload=payload, redrives=times,
            redrive_of=f"{lost_by}/{message.sequence}",
        )  # fmt: skip
        return self.do([send], "")

    def _step(self, command: c.Command) -> list[ObservedEffect]:
        if isinstance(command, c.Send) and not command.xid:
            self._lagging.setdefault(command.queue, []).append(command)
            effects: list[e.Effect] = []
        else:
            effects = self._host.step(command, self._now_ms).all_effects
        while (send := self._next_pulled()) is not None:
            effects += self._host.step(send, self._now_ms).all_effects
        return self._observe(effects)

    def _next_pulled(self) -> c.Send | None:
        """Return the next lagging send that can be pulled now, if there is one."""
        for lagging in self._lagging.values():
            if lagging and self._host.engine.pausing_queue(lagging[0]) is None:
                return lagging.pop(0)
        return None

    def _observe(self, effects: list[e.Effect]) -> list[ObservedEffect]:
        for effect in effects:
            if isinstance(effect, e.Evicted):
                gone = effect.message, effect.payload, effect.queue
                self._gone["evicted", effect.message.id] = gone
            elif isinstance(effect, e.Dead | e.Expired):
                self._gone["dead", effect.message.id] = effect.message, "full", effect.queue
        return [each for effect in effects if (each := _observed(effect)) is not None]


def _observed(effect: e.Effect) -> ObservedEffect | None:
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
