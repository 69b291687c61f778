"""One queue's history again through the core, with other settings. No Spark, no I/O.

The events do not tell what consumers asked for, only what they got and what became of it. So their
demand is taken from the deliveries: each one, from its hand-over to its end, is a **slot** of its
consumer, and a slot takes one message. It opens and ends where it did in history, and ends what it
holds as it ended then. See docs/rewind.md for what follows from that.

All else comes again as it was: sends, operators, the ticks that had an effect. What happens to a
message is decided by `core.engine` alone.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import NamedTuple

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog, Fields
from ringfaust.core.engine import Engine
from ringfaust.core.model import DeadReason, Delivery, EvictReason
from ringfaust.core.state import State
from ringfaust.errors import RingfaustError
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue

CHANGEABLE = ("ring_size", "evict", "shrink", "scheduled_when_full", "max_attempts")
"""Settings that can be asked about: what they do does not depend on what consumers do with it."""
_KEPT = (*CHANGEABLE, "batch", "max_messages", "max_bytes", "when_full")
"""Settings that act in a replay. The others act through the slots, as they did."""

_NAME = "queue"


class NotWhole(RingfaustError):
    """A replay needs the queue's history from its first message on."""


class Line(NamedTuple):
    """What a replay reads of a line; null where it has no such field."""

    step: int
    event: str
    time_ms: int
    by: str
    command: str | None
    """Of the step, where it says what the lines do not."""
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
    """A message left."""

    life: int
    """How often the queue had been deleted before."""
    step: int
    time_ms: int
    sequence: int
    id: str
    event: str
    """acked, evicted, expired, dead or removed (also by a move)."""
    reason: str
    ring_size: int
    """N at an eviction; else 0."""


class _Slot(NamedTuple):
    number: int
    """The delivery that it was in history."""
    consumer: str


class Replay:
    """See the head of this file.

    Args:
        settings: the queue's fields in the configuration.
        given: fields that are to be otherwise, from the first message to the last; of CHANGEABLE.
    """

    def __init__(self, settings: Fields, given: Fields) -> None:
        kept = {name: value for name, value in settings.items() if name in _KEPT}
        self._given = given
        # Who is silent, how many are active, how long a redelivery waits: the slots tell.
        self._fields = {**kept, **given, "consumer_timeout": 0}
        self._life = -1
        self._now = 0
        self._step = 0
        self._begin()

    def _begin(self) -> None:
        state = State(ByteStore(MemoryKeyValue()), Catalog({_NAME: self._fields}, {}))
        self._engine = Engine(state)
        queue = state.queue(_NAME)
        assert queue is not None
        self._queue = queue
        self._life += 1
        self._open: dict[int, _Slot] = {}
        """Slots that are open now, by the sequence of the message that they held in history."""
        self._taken: dict[int, Delivery] = {}
        """By slot: what it holds now."""
        self._free: dict[str, deque[int]] = {}
        """By consumer: its slots that hold nothing yet, oldest first."""
        self._out: list[Departure] = []

    def do(self, lines: Sequence[Line]) -> list[Departure]:
        """Do what made these lines, all those of the queue in one step; who left by it."""
        self._now = lines[0].time_ms
        self._step = lines[0].step
        out: list[Departure] = []
        self._out = out
        if any(line.event == "deleted" for line in lines):
            self._send_command(c.DeleteQueue(_NAME))
            self._begin()
            return out
        self._walk(lines)
        return out

    def _walk(self, lines: Sequence[Line]) -> None:
        """In the order of the lines, which is that of the engine; each command once."""
        returning: list[Line] = []
        done: set[type[c.Command]] = set()
        for index, line in enumerate(lines):
            kind = _cause(line)
            if kind and kind not in done:
                done.add(kind)
                self._open_slots(lines[index:])
                self._send_command(_command(kind, lines))
            if _comes_back(line):
                returning.append(line)
                continue
            if line.event == "detached":
                self._detach(line, returning)
                returning = []
                continue
            if returning:
                self._requeue(returning)
                returning = []
            self._one(line, lines[index:])
        if returning:
            self._requeue(returning)

    def _one(self, line: Line, following: Sequence[Line]) -> None:
        """What a line tells that no other line of the step does."""
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
                self._attach(line.consumer, line.priority or 0)

    def _added(self, line: Line) -> None:
        assert line.sequence and line.id is not None and line.enqueued_ms is not None
        if line.sequence != self._queue.sequence + 1:
            raise NotWhole(
                f"message {line.sequence} follows {self._queue.sequence}: lines are missing, by "
                "the topic's retention perhaps; use --lake, if a lake has kept them"
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

    def _open_slots(self, following: Sequence[Line]) -> None:
        """Slots that the command fills as it goes on: open them before it."""
        for line in takewhile(lambda line: not _ends_a_phase(line), following):
            if line.event == "dispatched":
                self._open_slot(line)

    def _open_slot(self, line: Line) -> None:
        assert line.sequence and line.delivery and line.consumer
        slot = _Slot(line.delivery, line.consumer)
        if self._open.get(line.sequence) == slot:
            return
        if _named(line.consumer) not in self._queue.consumers:
            raise NotWhole(f"consumer {line.consumer!r} is handed a message but never attached")
        self._open[line.sequence] = slot
        self._free.setdefault(line.consumer, deque()).append(line.delivery)
        self._send_command(c.Credit(_NAME, _named(line.consumer), 1))

    def _close_slot(self, line: Line) -> Delivery | None:
        """It ends, with what it held; None: it never got a message."""
        slot = self._open.pop(line.sequence or 0, None)
        if slot is None:
            raise NotWhole(f"a delivery of message {line.sequence} ends that never began")
        self._queue.consumers[_named(slot.consumer)].credit -= 1
        held = self._taken.pop(slot.number, None)
        if held is None:
            self._free[slot.consumer].remove(slot.number)
        return held

    def _end(self, line: Line) -> None:
        """An ack or a reject."""
        held = self._close_slot(line)
        if held is None:
            return
        about = (_NAME, held.consumer, held.message.id, held.number)
        self._send_command(c.Ack(*about) if line.event == "acked" else c.Reject(*about))

    def _requeue(self, lines: Sequence[Line]) -> None:
        """A returning set: newest first, and nothing is dispatched until all are placed (R21)."""
        ended = [(held, line) for line in lines if (held := self._close_slot(line))]
        newest_first = sorted(ended, key=lambda each: each[0].message.position, reverse=True)
        with self._without_dispatch():
            for held, line in newest_first:
                delay_ms = max((line.due_ms or 0) - self._now, 0)
                self._send_command(
                    c.Release(_NAME, held.consumer, held.message.id, held.number, delay_ms)
                )

    def _detach(self, line: Line, returning: Sequence[Line]) -> None:
        """A consumer leaves. After a timeout what it held had been tried, after a detach not."""
        assert line.consumer
        with self._without_dispatch():
            if line.timeout:
                self._requeue(returning)
            else:
                for each in returning:
                    self._close_slot(each)
            self._send_command(c.Detach(_NAME, _named(line.consumer)))
            self._free.pop(line.consumer, None)

    def _attach(self, consumer: str, priority: int) -> None:
        name = _named(consumer)
        if name not in self._queue.consumers:
            self._send_command(c.Attach(_NAME, name, 0, priority))

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
        """Do it, and note who was handed what and who left."""
        for effect in self._engine.step(command, self._now).effects:
            match effect:
                case e.Dispatched(_, delivery):
                    number = self._free[delivery.consumer[1:]].popleft()
                    self._taken[number] = delivery
                case e.Acked(_, delivery):
                    self._left(delivery.message.sequence, delivery.message.id, "acked")
                case e.Evicted(_, message, reason, _, ring_size):
                    self._left(message.sequence, message.id, "evicted", reason, ring_size)
                case e.Expired(_, message):
                    self._left(message.sequence, message.id, "expired")
                case e.Dead(_, message, reason):
                    self._left(message.sequence, message.id, "dead", reason)
                case e.Removed(_, message):
                    self._left(message.sequence, message.id, "removed")

    def _left(
        self, sequence: int, message_id: str, event: str, reason: str = "", ring_size: int = 0
    ) -> None:
        self._out.append(
            Departure(
                self._life, self._step, self._now, sequence, message_id, event, str(reason),
                ring_size,
            )
        )  # fmt: skip


def _named(consumer: str) -> str:
    """Its name in the replay: a managed window's is reserved to the engine."""
    return "=" + consumer


def _comes_back(line: Line) -> bool:
    """Does it end a delivery by giving it back, whatever became of the message then?"""
    return (
        line.event == "returned"
        or (line.event == "evicted" and line.reason == EvictReason.RETURN_OVERFLOW)
        or (line.event == "dead" and line.reason == DeadReason.UNDELIVERABLE)
        or (line.event == "expired" and bool(line.delivery))
    )


def _ends_a_phase(line: Line) -> bool:
    """Within a step: does room for other messages arise here?"""
    return _comes_back(line) or line.event == "detached"


def _cause(line: Line) -> type[c.Command] | None:
    """The command that made this line and others of its step, if it is to be done once for all."""
    if line.by == "tick" or line.command == "tick":
        return None if line.event == "configured" else c.Sweep
    if line.event == "due" or line.reason == EvictReason.SCHEDULED_OVERFLOW:
        return c.DeliverNow
    return c.Purge if line.reason == EvictReason.PURGE else None


def _command(kind: type[c.Command], lines: Sequence[Line]) -> c.Command:
    if kind is c.Sweep:
        return c.Sweep()
    if kind is c.Purge:
        return c.Purge(_NAME)
    due = [line for line in lines if line.event == "due"]
    overflow = [line for line in lines if line.reason == EvictReason.SCHEDULED_OVERFLOW]
    return c.DeliverNow(_NAME, (due or overflow)[0].id or "")
