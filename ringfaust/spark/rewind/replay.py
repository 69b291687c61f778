"""Replay the history of one queue through the core, with other settings. No Spark, no I/O.

The events do not record the credit of consumers, only their deliveries and how these ended. So the
demand is derived from the deliveries: each one, from dispatch to settlement, is a **slot** of its
consumer, and a slot takes one message. A slot opens and ends at the same steps as in history, and
settles its message in the same way. docs/rewind.md describes the consequences.

Everything else is repeated as it was: sends, operators' commands, and the ticks that had an effect.
`core.engine` alone decides what happens to a message.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog, Fields
from ringfaust.core.engine import Engine
from ringfaust.core.model import DeadReason, Delivery, EvictReason, Message
from ringfaust.core.state import State
from ringfaust.errors import RingfaustError
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue

CHANGEABLE = ("ring_size", "evict", "shrink", "scheduled_when_full", "max_attempts")
"""Settings that what-if can change: their effect does not depend on how consumers react."""
_KEPT = (*CHANGEABLE, "batch", "max_messages", "max_bytes", "when_full")
"""Settings that apply in a replay. All others act through the slots, as in history."""

_NAME = "queue"


class IncompleteHistory(RingfaustError):
    """The history is not complete from the queue's first message on."""


class EventLine(NamedTuple):
    """The fields of an events line that a replay needs; None if the line has no such field."""

    step: int
    event: str
    time_ms: int
    by: str
    command: str | None
    """The command of the step, if the lines alone do not identify it."""
    sequence: int | None = None
    id: str | None = None
    enqueued_ms: int | None = None
    priority: int | None = None
    size_bytes: int | None = None
    due_ms: int | None = None
    expires_at_ms: int | None = None
    group: str | None = None
    consumer: str | None = None
    delivery: int | None = None
    reason: str | None = None
    timeout: bool | None = None
    settings: str | None = None
    what: str | None = None
    paused: bool | None = None


class Departure(NamedTuple):
    """A message that left the queue."""

    generation: int
    """How often the queue was deleted before."""
    step: int
    time_ms: int
    sequence: int
    id: str
    event: str
    """acked, evicted, expired, dead or removed (also for a move or a loss)."""
    reason: str
    ring_size: int
    """The ring size of an eviction; else 0."""


class _Slot(NamedTuple):
    number: int
    """Number of the delivery in history."""
    consumer: str


class Replay:
    """Replays the steps of one queue with changed settings.

    The `given` settings, some of CHANGEABLE, apply to the whole history.
    """

    def __init__(self, settings: Fields, given: Fields) -> None:
        kept = {name: value for name, value in settings.items() if name in _KEPT}
        self._given = given
        # Timeouts, the number of active consumers and redelivery delays follow from the slots.
        self._fields = {**kept, **given, "consumer_timeout": 0}
        self._generation = -1
        self._now = 0
        self._step = 0
        self._begin()

    def _begin(self) -> None:
        state = State(ByteStore(MemoryKeyValue()), Catalog({_NAME: self._fields}, {}))
        self._engine = Engine(state)
        queue = state.queue(_NAME)
        assert queue is not None
        self._queue = queue
        self._generation += 1
        self._open: dict[int, _Slot] = {}
        """Open slots, by the sequence of the message that they held in history."""
        self._taken: dict[int, Delivery] = {}
        """The current delivery of each slot."""
        self._free: dict[str, deque[int]] = {}
        """The empty slots of each consumer, oldest first."""
        self._out: list[Departure] = []

    def replay_step(self, lines: Sequence[EventLine]) -> list[Departure]:
        """Repeat a step, of which these are all lines of the queue. Returns what left."""
        self._now = lines[0].time_ms
        self._step = lines[0].step
        out: list[Departure] = []
        self._out = out
        if any(line.event == "deleted" for line in lines):
            self._send_command(c.DeleteQueue(_NAME))
            self._begin()
        else:
            self._replay_lines(lines)
        return out

    def _replay_lines(self, lines: Sequence[EventLine]) -> None:
        """Repeat the commands behind the lines, each once, in the order of the lines."""
        returning: list[EventLine] = []
        done: set[type[c.Command]] = set()
        for index, line in enumerate(lines):
            cause = _cause(line, lines)
            if cause and type(cause) not in done:
                done.add(type(cause))
                self._open_slots(lines[index:])
                self._send_command(cause)
            if _returns_message(line):
                returning.append(line)
                continue
            if line.event == "lost" and line.sequence in self._open:
                self._lose(line)
                continue
            if line.event == "detached":
                self._detach(line, returning)
                returning = []
                continue
            if returning:
                self._requeue(returning)
                returning = []
            self._apply_line(line, lines[index:])
        if returning:
            self._requeue(returning)

    def _apply_line(self, line: EventLine, following: Sequence[EventLine]) -> None:
        """Repeat the transition of a single line."""
        match line.event:
            case "added" | "scheduled":
                self._open_slots(following)
                self._added(line)
            case "dispatched":
                self._open_slot(line)
            case "acked" | "dead":
                self._end(line)
            case "removed" if line.command == "cancel_scheduled":
                self._send_command(c.CancelScheduled(_NAME, line.id or ""))
            case "removed" | "moved_out" | "lost":
                self._send_command(c.Remove(_NAME, line.id or ""))
            case "configured":
                self._configure(json.loads(line.settings or "{}"))
            case "paused" if line.what == "dispatch":
                change = c.Pause if line.paused else c.Resume
                self._send_command(change(_NAME, "dispatch"))
            case "attached" if line.consumer:
                name = _replay_name(line.consumer)
                if name not in self._queue.consumers:
                    self._send_command(c.Attach(_NAME, name, 0, line.priority or 0))

    def _added(self, line: EventLine) -> None:
        assert line.sequence and line.id is not None and line.enqueued_ms is not None
        if line.sequence != self._queue.sequence + 1:
            raise IncompleteHistory(
                f"message {line.sequence} follows {self._queue.sequence}: lines are missing, "
                "perhaps removed by the topic's retention; use --lake if a lake has them"
            )
        self._send_command(
            c.Send(
                _NAME, line.id, line.enqueued_ms, line.priority or 0, line.due_ms or 0,
                line.expires_at_ms or 0, line.group or "", line.size_bytes or 0,
            )
        )  # fmt: skip

    def _configure(self, settings: Mapping[str, object]) -> None:
        kept = {n: v for n, v in settings.items() if n in _KEPT and n not in self._given}
        self._send_command(c.Configure(_NAME, kept))

    # --- slots -----------------------------------------------------------------------------------

    def _open_slots(self, following: Sequence[EventLine]) -> None:
        """Open the slots that the next command fills, before it runs."""
        for line in following:
            if _returns_message(line) or line.event in ("detached", "lost"):
                break  # it frees slots for others
            if line.event == "dispatched":
                self._open_slot(line)

    def _open_slot(self, line: EventLine) -> None:
        assert line.sequence and line.delivery and line.consumer
        slot = _Slot(line.delivery, line.consumer)
        if self._open.get(line.sequence) == slot:
            return
        if _replay_name(line.consumer) not in self._queue.consumers:
            raise IncompleteHistory(f"consumer {line.consumer!r} got a delivery but never attached")
        self._open[line.sequence] = slot
        self._free.setdefault(line.consumer, deque()).append(line.delivery)
        self._send_command(c.Credit(_NAME, _replay_name(line.consumer), 1))

    def _close_slot(self, line: EventLine) -> Delivery | None:
        """Close a slot and return its delivery; None if it never got a message."""
        slot = self._open.pop(line.sequence or 0, None)
        if slot is None:
            raise IncompleteHistory(f"a delivery of message {line.sequence} ends, but never began")
        self._queue.consumers[_replay_name(slot.consumer)].credit -= 1
        held = self._taken.pop(slot.number, None)
        if held is None:
            self._free[slot.consumer].remove(slot.number)
        return held

    def _end(self, line: EventLine) -> None:
        """Ack or reject the delivery of a slot."""
        held = self._close_slot(line)
        if held is None:
            return
        about = (_NAME, held.consumer, held.message.id, held.number)
        self._send_command(c.Ack(*about) if line.event == "acked" else c.Reject(*about))

    def _lose(self, line: EventLine) -> None:
        """Let the message of a slot go that came back without its body (R82)."""
        held = self._close_slot(line)
        if held is None:
            return
        with self._without_dispatch():  # others that come back with it come first
            self._send_command(c.Ack(_NAME, held.consumer, held.message.id, held.number))
            self._out[-1] = self._out[-1]._replace(event="removed")

    def _requeue(self, lines: Sequence[EventLine]) -> None:
        """Requeue a set of deliveries: newest first, without dispatch until all are back (R21)."""
        ended = [(held, line) for line in lines if (held := self._close_slot(line))]
        newest_first = sorted(ended, key=lambda each: each[0].message.position, reverse=True)
        with self._without_dispatch():
            for held, line in newest_first:
                delay_ms = max((line.due_ms or 0) - self._now, 0)
                self._send_command(
                    c.Release(_NAME, held.consumer, held.message.id, held.number, delay_ms)
                )

    def _detach(self, line: EventLine, returning: Sequence[EventLine]) -> None:
        """Detach a consumer. A timeout counts as an attempt for its messages, a detach does not."""
        assert line.consumer
        with self._without_dispatch():
            if line.timeout:
                self._requeue(returning)
            else:
                for each in returning:
                    self._close_slot(each)
            self._send_command(c.Detach(_NAME, _replay_name(line.consumer)))
            self._free.pop(line.consumer, None)

    @contextmanager
    def _without_dispatch(self) -> Iterator[None]:
        if "dispatch" in self._queue.paused:
            yield
            return
        self._send_command(c.Pause(_NAME, "dispatch"))
        yield
        self._send_command(c.Resume(_NAME, "dispatch"))

    # --- the engine ------------------------------------------------------------------------------

    def _send_command(self, command: c.Command) -> None:
        """Run a command; record deliveries and departures."""
        for effect in self._engine.step(command, self._now).effects:
            match effect:
                case e.Dispatched(_, delivery):
                    number = self._free[delivery.consumer[1:]].popleft()
                    self._taken[number] = delivery
                case e.Acked(_, delivery):
                    self._add_departure(delivery.message, "acked")
                case e.Evicted(_, message, reason, _, ring_size):
                    self._add_departure(message, "evicted", reason, ring_size)
                case e.Expired(_, message):
                    self._add_departure(message, "expired")
                case e.Dead(_, message, reason):
                    self._add_departure(message, "dead", reason)
                case e.Removed(_, message):
                    self._add_departure(message, "removed")

    def _add_departure(
        self, message: Message, event: str, reason: str = "", ring_size: int = 0
    ) -> None:
        place = (self._generation, self._step, self._now, message.sequence, message.id)
        self._out.append(Departure(*place, event, str(reason), ring_size))


def _replay_name(consumer: str) -> str:
    """The consumer's name in the replay; the engine reserves the name of a managed window."""
    return "=" + consumer


def _returns_message(line: EventLine) -> bool:
    """Whether the line ends a delivery by a return, whatever happens to the message then."""
    return (
        line.event == "returned"
        or (line.event == "evicted" and line.reason == EvictReason.RETURN_OVERFLOW)
        or (line.event == "dead" and line.reason == DeadReason.UNDELIVERABLE)
        or (line.event == "expired" and bool(line.delivery))
    )


def _cause(line: EventLine, lines: Sequence[EventLine]) -> c.Command | None:
    """The command behind this line and others of its step, if it has to run only once for all."""
    if line.by == "tick" or line.command == "tick":
        return None if line.event == "configured" else c.Sweep()
    if line.event == "due" or line.reason == EvictReason.SCHEDULED_OVERFLOW:
        due = next((each for each in lines if each.event == "due"), line)
        return c.DeliverNow(_NAME, due.id or "")
    return c.Purge(_NAME) if line.reason == EvictReason.PURGE else None
