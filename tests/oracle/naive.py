"""Artemis as plain lists, on a clock that nobody waits for: what the driver and the broker answer.

Written after Artemis' own code (QueueImpl, RefsOperation, ScheduledDeliveryHandlerImpl,
PriorityLinkedListImpl), not after the engine. `make oracle` shows what the real broker does; this
shows, wherever the tests run, that the engine does the same still.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

BEGIN_MS = 1_000_000


@dataclass
class Message:
    """A message reference."""

    id: str
    priority: int
    due_ms: int
    expires_ms: int
    sequence: int = 0
    """Given when it is added at the tail."""
    deliveries: int = 0


@dataclass
class Client:
    """A consumer."""

    session: str
    credit: int
    priority: int
    held: list[Message] = field(default_factory=list)
    acked: list[Message] = field(default_factory=list)
    """In its session's open transaction."""

    def is_open(self) -> bool:
        return len(self.held) + len(self.acked) < self.credit


class Naive:
    """Stands for `Artemis`."""

    version = "in plain lists"

    def __init__(self) -> None:
        self.time_ms = BEGIN_MS

    def now_ms(self) -> int:
        return self.time_ms

    def wait(self, ms: int) -> None:
        self.time_ms += ms

    def ask(self, kind: object, *words: Any) -> dict[str, Any]:
        """See `Artemis.ask`; the commands are those of `Driver.java`."""
        began_ms = self.time_ms
        self.facts: list[list[str]] = []
        getattr(self, f"_{kind}")(*words)
        return self._answer(began_ms) if kind != "end" else {}

    # --- commands --------------------------------------------------------------------------------

    def _queue(self, _: str, ring_size: int, max_attempts: int, delay_ms: int) -> None:
        self.ring_size, self.max_attempts, self.delay_ms = ring_size, max_attempts, delay_ms
        self.levels: dict[int, list[Message]] = {priority: [] for priority in range(10)}
        self.scheduled: list[Message] = []
        self.clients: dict[str, Client] = {}
        self.next: dict[int, int] = {}
        """By consumer priority: who of these is asked first."""
        self.undecided: dict[str, list[tuple[str, Message]]] = {}
        self.paused = False
        self.sequence = 0
        self.counts = dict.fromkeys(("added", "acked", "evicted", "expired", "dead"), 0)

    def _end(self) -> None:
        pass

    def _session(self, name: str, kind: str) -> None:
        pass

    def _attach(self, name: str, session: str, credit: int, priority: int) -> None:
        self.clients[name] = Client(session, credit, priority)
        self.next = {}
        self._deliver()

    def _credit(self, name: str, more: int) -> None:
        self.clients[name].credit += more
        self._deliver()

    def _send(self, name: str, priority: int, due_ms: int, expires_ms: int) -> None:
        message = Message(name, priority, due_ms, expires_ms)
        self.counts["added"] += 1
        if due_ms > self.time_ms:
            self._schedule(message, tail=True)
        elif due_ms:
            self._add_head([message])
        else:
            self._add_tail(message)
            self._deliver()

    def _burst(self, decision: str, *sends: Any) -> None:
        if decision == "commit":
            for name, priority in zip(sends[::2], sends[1::2], strict=True):
                self.counts["added"] += 1
                self._add_tail(Message(name, priority, 0, 0))
            self._deliver()

    def _ack(self, name: str, message_id: str) -> None:
        client, message = self._take(name, message_id)
        if client.session.startswith("tx"):
            client.acked.append(message)
            self.undecided.setdefault(client.session, []).append((name, message))
        else:
            self.counts["acked"] += 1
            self._deliver()

    def _release(self, name: str, message_id: str) -> None:
        _, message = self._take(name, message_id)
        message.deliveries -= 1
        if self._lives(message):
            if self.delay_ms:
                self._park(message)
            else:
                self._add_sorted(message)
        self._deliver()

    def _reject(self, name: str, message_id: str) -> None:
        self._gone("dead", self._take(name, message_id)[1])
        self._deliver()

    def _commit(self, session: str) -> None:
        for name, message in self.undecided.pop(session):
            self.clients[name].acked.remove(message)
            self.counts["acked"] += 1
            self._deliver()

    def _rollback(self, session: str) -> None:
        returning = [message for _, message in self.undecided.pop(session, [])]
        for client in self.clients.values():
            if client.session == session:
                returning += self._untried(client)
                client.acked.clear()
        self._post_rollback(returning, self.delay_ms > 0)
        self._deliver()

    def _close(self, name: str) -> None:
        self._post_rollback(self._untried(self.clients.pop(name)), False)
        self.next = {}
        self._deliver()

    def _resize(self, ring_size: int) -> None:
        self.ring_size = ring_size

    def _pause(self) -> None:
        self.paused = True

    def _resume(self) -> None:
        self.paused = False
        self._deliver()

    def _deliver_now(self, message_id: str) -> None:
        message = next(each for each in self.scheduled if each.id == message_id)
        self.scheduled.remove(message)
        self._add_head([message])

    def _until(self, at_ms: int) -> None:
        self.time_ms = max(self.time_ms, at_ms)
        due = [message for message in self.scheduled if message.due_ms <= self.time_ms]
        if due:
            self.scheduled = self.scheduled[len(due) :]
            self._add_head(due[::-1])

    # --- the queue -------------------------------------------------------------------------------

    def _ready(self) -> list[Message]:
        return [each for priority in range(9, -1, -1) for each in self.levels[priority]]

    def _has_room(self) -> bool:
        return self.ring_size == -1 or len(self._ready()) < self.ring_size

    def _add_tail(self, message: Message) -> None:
        self.sequence += 1
        message.sequence = self.sequence
        self.levels[message.priority].append(message)
        ready = self._ready()
        if self.ring_size != -1 and len(ready) > self.ring_size:
            self.levels[ready[0].priority].pop(0)
            self._gone("evicted", ready[0])

    def _add_head(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if self._has_room():
                self.levels[message.priority].insert(0, message)
            else:
                self._gone("evicted", message)
        self._deliver()

    def _add_sorted(self, message: Message) -> None:
        level, number = self.levels[message.priority], message.sequence
        if not level or number <= level[0].sequence:
            level.insert(0, message)
        elif level[-1].sequence <= number:
            level.append(message)
        else:
            place = next(i for i, each in enumerate(level) if number <= each.sequence)
            level.insert(place, message)

    def _schedule(self, message: Message, *, tail: bool) -> None:
        before = [e for e in self.scheduled if e.due_ms < message.due_ms + tail]
        self.scheduled.insert(len(before), message)

    def _park(self, message: Message) -> None:
        message.due_ms = self.time_ms + self.delay_ms
        self._schedule(message, tail=False)

    def _lives(self, message: Message) -> bool:
        if 0 < self.max_attempts <= message.deliveries:
            self._gone("dead", message)
            return False
        return True

    def _post_rollback(self, messages: list[Message], delayed: bool) -> None:
        for message in reversed([each for each in messages if self._lives(each)]):
            if not self._has_room():
                self._gone("evicted", message)
            elif delayed:
                self._park(message)
            else:
                self._add_sorted(message)

    def _untried(self, client: Client) -> list[Message]:
        held, client.held = client.held, []
        for message in held:
            message.deliveries -= 1
        return held

    def _deliver(self) -> None:
        while not self.paused and (ready := self._ready()) and self.clients:
            message = ready[0]
            if 0 < message.expires_ms <= self.time_ms:
                self._asked(max(client.priority for client in self.clients.values()))
                self.levels[message.priority].remove(message)
                self._gone("expired", message)
                continue
            name = self._first_open()
            if name is None:
                return
            self.levels[message.priority].remove(message)
            message.deliveries += 1
            self.clients[name].held.append(message)
            self.facts.append(["delivered", name, message.id, str(message.deliveries)])

    def _first_open(self) -> str | None:
        for priority in sorted({client.priority for client in self.clients.values()}, reverse=True):
            for _ in self._of(priority):
                name = self._asked(priority)
                if self.clients[name].is_open():
                    return name
        return None

    def _of(self, priority: int) -> list[str]:
        return [name for name, client in self.clients.items() if client.priority == priority]

    def _asked(self, priority: int) -> str:
        names, place = self._of(priority), self.next.get(priority, 0)
        self.next[priority] = (place + 1) % len(names)
        return names[place]

    def _take(self, name: str, message_id: str) -> tuple[Client, Message]:
        client = self.clients[name]
        message = next(each for each in client.held if each.id == message_id)
        client.held.remove(message)
        return client, message

    def _gone(self, how: str, message: Message) -> None:
        self.counts[how] += 1
        self.facts.append([how, message.id])

    def _answer(self, began_ms: int) -> dict[str, Any]:
        ready = [message.id for message in self._ready()]
        held = sum(len(each.held) + len(each.acked) for each in self.clients.values())
        counts = {"ready": len(ready), "delivering": held, "scheduled": len(self.scheduled)}
        return {
            "began": began_ms,
            "ended": self.time_ms,
            "facts": self.facts,
            "ready": ready,
            "delivering": {
                name: [each.id for each in client.held] for name, client in self.clients.items()
            },
            "scheduled": [[each.id, each.due_ms] for each in self.scheduled],
            "at_fault": False,
            "counts": {**counts, "messages": sum(counts.values()), **self.counts},
        }
