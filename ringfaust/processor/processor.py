"""The road of a record: in, decode, step, encode, out. One partition, no I/O, one direction.

A host feeds it records and writes what comes out: `outputs` to the topics and `writes` to the
changelog, in one transaction, and only then the same writes to its own store (architecture 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from ringfaust.core import effects as e
from ringfaust.core.commands import Start, Sweep
from ringfaust.core.engine import Engine, Step
from ringfaust.core.model import Refusal
from ringfaust.core.state import State
from ringfaust.errors import ProtocolError
from ringfaust.processor.row_store import encode_writes, without_bodies
from ringfaust.protocol import control, events
from ringfaust.protocol import outputs as output
from ringfaust.protocol.headers import QUEUE
from ringfaust.protocol.listing import list_queue
from ringfaust.protocol.records import InRecord, OutRecord, Role
from ringfaust.protocol.routes import Route, queue_namer, read_send
from ringfaust.protocol.stored_rows import POSITIONS_KEY, write_positions
from ringfaust.protocol.undecodable import refuse_oversized, undecodable_line


class Gatherer(Protocol):
    """Where the records of a batch for one topic go: a list, or something that packs them."""

    def append(self, record: OutRecord, /) -> None:
        """One more."""

    def __len__(self) -> int:
        """How many."""


G = TypeVar("G", bound=Gatherer)
Outputs = dict[tuple[Role, int | None], G]
"""By role, and by partition where it is not the one that decides: a hop names its own."""

_HOP_BYTES = 4_000
"""What the hop may add to a record: the headers that tell its queue, source and time."""
_REPLY_BYTES = 1_000_000

TICK, START = "tick", "start"
"""What caused an effect of time or of a host's start, in place of a record's position."""


class Writes(NamedTuple):
    """Changes to the stored rows; None deletes."""

    store: list[tuple[bytes, bytes | None]]
    """For the host's own store."""
    changelog: list[tuple[bytes, bytes | None]]
    """The same, but for the bodies of messages that are not persistent (R82)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorConfig:
    """What the roads of all partitions of an application share."""

    control_topic: str
    hop_topic: str
    routes: Sequence[Route]
    """Of the topics that are read directly."""
    max_record_bytes: int
    log_is_clock: bool
    """Time comes from tick records alone; for tests and for replaying a log."""
    spread: frozenset[str] = frozenset()
    """Topics whose records come from several of their partitions: there is no one position, and
    whoever brings them sees that none comes twice."""


class _Outbox(Generic[G]):
    """The records of a batch, by topic. By attribute: an enum as a key costs a call each time."""

    __slots__ = ("dead", "dispatched", "events", "evicted", "replies")

    def __init__(self, gather: Callable[[], G]) -> None:
        self.dispatched = gather()
        self.evicted = gather()
        self.dead = gather()
        self.events = gather()
        self.replies = gather()

    def by_topic(self) -> Outputs[G]:
        """What there is."""
        found: Outputs[G] = {}
        for role in (Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES):
            if records := getattr(self, role):
                found[role, None] = records
        return found


class Processor(Generic[G]):
    """One partition's road; `take` and `tick` fill it, `outputs` and `writes` empty it."""

    def __init__(
        self,
        shared: ProcessorConfig,
        state: State,
        positions: Mapping[str, int],
        gather: Callable[[], G],
    ) -> None:
        """`gather`: gives an empty place for the records of one topic; `list` will do."""
        self.state = state
        self.positions = dict(positions)
        """By topic: the next offset. A record before it is a repeat."""
        self.blocked: dict[str, str] = {}
        """Topics that stand still, by the queue that their next record waits for: its pulling is
        paused (R90), or it is full (R60 block). All that comes of them is passed over until the
        host, when the queue `is_pulled` again, has gone back to the position and takes the topic
        out of here."""
        self._map = shared
        self._engine = Engine(state)
        hop = Route(shared.hop_topic, f"{{header:{QUEUE}}}")
        self._queue_of = {route.topic: queue_namer(route.queue) for route in (*shared.routes, hop)}
        self._gather = gather
        self._out = _Outbox(gather)
        self._lines: list[str] = []

    # --- in --------------------------------------------------------------------------------------

    def take(self, records: Iterable[InRecord], wall_ms: int) -> list[InRecord]:
        """Do what the records ask for, in order. They may be repeats; those do nothing.

        A record for a queue that is not pulled now blocks its topic.

        Returns:
            Those of blocked topics, that were passed over.
        """
        now_ms = self.state.now_ms if self._map.log_is_clock else max(wall_ms, self.state.now_ms)
        control_topic, hop_topic = self._map.control_topic, self._map.hop_topic
        most = self._map.max_record_bytes
        blocked, spread, positions = self.blocked, self._map.spread, self.positions
        left: list[InRecord] = []
        for record in records:
            topic = record.topic
            offset = record.offset
            if offset < positions.get(topic, 0):
                continue
            if topic in blocked:
                left.append(record)
                continue
            if topic not in spread:
                positions[topic] = offset + 1
            try:
                refuse_oversized(record, most + _HOP_BYTES if topic == hop_topic else most)
                if topic == control_topic:
                    now_ms = self._control(record, now_ms)
                elif not self._produced(record, now_ms):
                    left.append(record)
            except ProtocolError as error:
                self._unreadable(record, error, now_ms)
        return left

    def start(self) -> None:
        """Do what is due when a host has opened the partition, before all else (R81, R82)."""
        self._tell(self._engine.step(Start(), self.state.now_ms), START)

    def tick(self, wall_ms: int) -> None:
        """Do what time has brought."""
        self._tell(self._engine.step(Sweep(), wall_ms), TICK)

    def is_pulled(self, queue: str) -> bool:
        """Are its records taken (R60, R90)? Also those for one that is not there: to be refused."""
        return self._engine.is_pulled(queue)

    def _produced(self, record: InRecord, now_ms: int) -> bool:
        """Send it to its queue; False if that is not pulled now."""
        queue = self._queue_of[record.topic](record)
        source = f"{record.topic}/{record.partition}/{record.offset}"
        hopped = record.topic == self._map.hop_topic
        send = read_send(record, queue, source, now_ms, hopped=hopped)
        known = self.state.queues.get(queue)  # spares nearly all records a call
        if (known is None or known.paused or known.is_limited) and (
            blocker := self._engine.blocker(send)
        ) is not None:
            self.blocked[record.topic] = blocker
            if record.topic in self.positions:
                self.positions[record.topic] = record.offset
            return False
        self._tell(self._engine.step(send, now_ms), source, send.id)
        return True

    def _control(self, record: InRecord, now_ms: int) -> int:
        """Do a control command; the time from then on."""
        try:
            asked = control.read_control(record.value)
        except control.BadControl as error:
            no = e.Refused("", Refusal.BAD_COMMAND, "", str(error))
            self._out.replies.append(output.reply_record(error.reply, no))
            raise
        by = f"{record.topic}/{record.partition}/{record.offset}"
        if isinstance(asked, control.ListRecord):
            self._answer_list(asked)
            return now_ms
        if isinstance(asked, control.TickRecord) and not self._map.log_is_clock:
            text = "this worker's clock is the wall clock; it ticks by itself"
            step = Step([], e.Refused("", Refusal.BAD_COMMAND, "tick", text))
        else:
            if isinstance(asked, control.TickRecord):
                now_ms = max(asked.now_ms, now_ms)
                self._engine.advance(now_ms)
            step = self._engine.step(asked.command(), now_ms)
        self._tell(step, by)
        if step.refusal is None:
            tail = events.event_tail(self.state.now_ms, by)
            self._lines.append(events.done_line(self.state.step, asked.type, tail))
        if asked.reply:
            self._out.replies.append(output.reply_record(asked.reply, step.refusal))
        return now_ms

    def _answer_list(self, asked: control.ListRecord) -> None:
        queue = self.state.queue(asked.queue)
        if queue is None:
            text = f"no queue {asked.queue!r} in this partition"
            no = e.Refused(asked.queue, Refusal.UNKNOWN_QUEUE, asked.queue, text)
            self._out.replies.append(output.reply_record(asked.reply, no))
        else:
            limit = asked.limit
            pulled = {"pulled": self.is_pulled(asked.queue)}
            reply = output.reply_record(asked.reply, None, list_queue(queue, limit) | pulled)
            while len(reply[1] or b"") > _REPLY_BYTES:  # the counts tell that there is more
                limit //= 2
                reply = output.reply_record(asked.reply, None, list_queue(queue, limit) | pulled)
            self._out.replies.append(reply)

    # --- out -------------------------------------------------------------------------------------

    def _tell(self, result: Step, by: str, sent: str = "") -> None:
        """Write the records of one step. The sender of a refused message gets a reply (R62).

        Args:
            result: what the engine returned.
            by: what caused the step: the position of a record, `TICK` or `START`.
            sent: the message id, if a producer's record caused the step.
        """
        effects, refusal = result
        state = self.state
        step = state.step
        tail = events.event_tail(state.now_ms, by)
        lines, out = self._lines, self._out
        for effect in effects:
            kind = type(effect)
            lines.append(events.WRITERS[kind](effect, step) + tail)
            if kind is e.Evicted:
                out.evicted.append(output.evicted_record(effect))  # type: ignore[arg-type]
            elif kind is e.Dispatched:
                out.dispatched.append(output.dispatched_record(effect))  # type: ignore[arg-type]
            elif kind is e.Dead or kind is e.Expired:
                out.dead.append(output.dead_record(effect, state.now_ms))  # type: ignore[arg-type]
            elif isinstance(effect, e.Refused):
                self._reply_to_sender(effect, by, sent)
        if refusal is not None:
            lines.append(events.WRITERS[e.Refused](refusal, step) + tail)
            if sent:
                self._reply_to_sender(refusal, by, sent)

    def _reply_to_sender(self, refused: e.Refused, by: str, sent: str) -> None:
        # A full queue names the message itself: it may refuse a kept copy, not what was sent (R71).
        is_of_queue = refused.reason in (Refusal.QUEUE_FULL, Refusal.TOO_LARGE)
        about = refused.about if is_of_queue else sent or refused.about
        self._out.replies.append(output.refused_send_record(about, refused, by))

    def _unreadable(self, record: InRecord, error: ProtocolError, now_ms: int) -> None:
        self._out.dead.append(output.undecodable_record(record, error, now_ms))
        self._lines.append(undecodable_line(record, error, self.state.step, now_ms))

    def outputs(self) -> Outputs[G]:
        """The records to write, each topic's in order; the road is empty then."""
        lines, self._lines = self._lines, []
        for text in events.record_texts(lines):
            self._out.events.append((None, text.encode(), []))
        out, self._out = self._out, _Outbox(self._gather)
        return out.by_topic()

    def writes(self) -> Writes:
        """The changes to the stored rows, positions among them.

        Raises:
            BrokenAccounts: see `State.writes`.
        """
        has_non_persistent = any(queue.non_persistent for queue in self.state.changed_queues)
        writes = encode_writes(self.state.writes())
        writes.append((POSITIONS_KEY, write_positions(self.positions)))
        return Writes(writes, without_bodies(writes) if has_non_persistent else writes)
