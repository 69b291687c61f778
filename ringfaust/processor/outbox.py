"""Collect what a batch writes: output records, event lines, and what the host tells about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ringfaust.core import effects as e
from ringfaust.core.commands import Apply, Command, RaiseLevel
from ringfaust.core.engine import Step
from ringfaust.core.model import Refusal
from ringfaust.core.state import State
from ringfaust.protocol import outputs as output
from ringfaust.protocol.cloud_events import DEAD, EVICTED, CloudEvents
from ringfaust.protocol.encoder import event_line
from ringfaust.protocol.events import record_texts
from ringfaust.protocol.record_batches import RecordBuffer, append_dispatched, append_evicted
from ringfaust.protocol.records import OutRecord, Role

Buffer = TypeVar("Buffer", bound=RecordBuffer)
Outputs = dict[tuple[Role, int | None], Buffer]
"""Output records by role, and by target partition if that is not the processor's own."""


WRITTEN = (Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES)
"""Roles of the topics that are written, apart from the changelog."""

_ADDED: Final = e.Added
_ACKED: Final = e.Acked
_DISPATCHED: Final = e.Dispatched
_EVICTED: Final = e.Evicted
"""Most effects are of these kinds. mypyc looks up the names of another module at each use."""


OTHERS = ""
"""In place of a queue's name: all queues that have no total of their own."""


class EvictionCounts:
    """Counts each eviction as it happens: to keep thousands of them until a commit costs more."""

    def __init__(self) -> None:
        self.ages_ms: list[int] = []
        """How long each message had been in its queue."""
        self.messages: dict[str, dict[str, int]] = {}
        """By reason and queue."""

    def add(self, gone: e.Evicted) -> None:
        """Count an eviction."""
        of_queues = self.messages.get(gone.reason)
        if of_queues is None:
            of_queues = self.messages[gone.reason] = {}
        of_queues[gone.queue] = of_queues.get(gone.queue, 0) + 1
        self.ages_ms.append(gone.at_ms - gone.message.enqueued_ms)

    def add_to(self, totals: dict[str, dict[str, int]], most: int) -> None:
        """Add the messages to totals.

        Args:
            totals: by reason and queue; all reasons are there.
            most: queues in each; the messages of further queues count for `OTHERS`.
        """
        for reason, of_queues in self.messages.items():
            total = totals[reason]
            others = 0
            for queue, messages in of_queues.items():
                known = total.get(queue)
                if known is not None:
                    total[queue] = known + messages
                elif len(total) < most:
                    total[queue] = messages
                else:
                    others += messages
            if others:
                total[OTHERS] = total.get(OTHERS, 0) + others


class LogEntry(NamedTuple):
    """Something for the host to log: an operator's command, a refused one, or an incident."""

    asked: str
    """The type of the command; or `TIMEOUT`: `text` is the consumer that was silent too long; or
    `MISPLACED`: `text` says it all."""
    queue: str
    reason: str = ""
    """Why it was refused; empty: it was not."""
    text: str = ""

    @classmethod
    def of(cls, asked: str, command: Command) -> LogEntry:
        """What the log says of an operator's command."""
        if isinstance(command, Apply):
            text = f"revision {command.revision} by {command.who or 'somebody'}: {command.text}"
            return cls(asked, "", text=text)
        if isinstance(command, RaiseLevel):
            return cls(asked, "", text=f"{command.level} by {command.who or 'somebody'}")
        return cls(asked, getattr(command, "queue", ""))


TIMEOUT = "timeout"
"""What a log entry has in place of a command's type if a consumer timed out (R13)."""
MISPLACED = "misplaced"
"""The same if a queue is not in the partition of its key (R113)."""

_MOST_LOG_ENTRIES = 100
"""Of one batch. The events have all of them."""


class Activity(NamedTuple):
    """What a batch has done, for the host's log, metrics and traces."""

    log: Sequence[LogEntry]
    evicted: EvictionCounts | None
    """How many messages; None: nobody counts them."""
    evictions: Sequence[e.Evicted]
    """Each of them; empty if nobody traces them."""
    changed: Sequence[str]
    """The queues that it may have changed."""


class _Buffers(Generic[Buffer]):
    """The output records of a batch, one attribute per topic: faster than a dict keyed by enum."""

    __slots__ = ("dead", "dispatched", "events", "evicted", "into_dead", "into_evicted", "replies")

    def __init__(self, new_buffer: Callable[[], Buffer], cloud_events_of: str) -> None:
        self.dispatched = new_buffer()
        self.evicted = new_buffer()
        self.dead = new_buffer()
        self.events = new_buffer()
        self.replies = new_buffer()
        self.into_evicted: RecordBuffer = self.evicted
        self.into_dead: RecordBuffer = self.dead
        if cloud_events_of:
            self.into_evicted = CloudEvents(self.evicted, cloud_events_of, EVICTED)
            self.into_dead = CloudEvents(self.dead, cloud_events_of, DEAD)

    def by_topic(self) -> Outputs[Buffer]:
        """The buffers that are not empty."""
        found: Outputs[Buffer] = {}
        for role in WRITTEN:
            if records := getattr(self, role):
                found[role, None] = records
        return found


class Outbox(Generic[Buffer]):
    """Collects the output of a batch until the host takes it."""

    def __init__(
        self, state: State, new_buffer: Callable[[], Buffer], cloud_events_of: str
    ) -> None:
        """Start empty.

        Args:
            state: of the partition, which has the number and the time of a step.
            new_buffer: returns an empty buffer for the records of one topic, such as `list`.
            cloud_events_of: see `ProcessorConfig`.
        """
        self._state = state
        self._new_buffer = new_buffer
        self._cloud_events_of = cloud_events_of
        self._buffers = _Buffers(new_buffer, cloud_events_of)
        self.lines: list[str] = []
        """The lines of the events topic."""
        self._log: list[LogEntry] = []
        self._evicted: EvictionCounts | None = None
        self._keeps_evictions = False
        self._evictions: list[e.Evicted] = []

    def observe(self, *, evictions: bool, counts: bool) -> None:
        """Choose what `activity` has of evictions; see `Processor.observe`."""
        self._keeps_evictions = evictions
        self._evicted = EvictionCounts() if counts else None

    def log(self, entry: LogEntry) -> None:
        """Tell the host's log, unless the batch has too many entries."""
        if len(self._log) < _MOST_LOG_ENTRIES:
            self._log.append(entry)

    def emit(self, result: Step, by: str, sent: str = "", reply: str = "") -> None:
        """Write the records of one step.

        The sender of a refused message gets a reply (R62), and a consumer one for each delivery
        that was refused among others (R103).

        Args:
            result: what the engine returned.
            by: what caused the step: the position of a record, `TICK` or `START`.
            sent: the message id, if a producer's record caused the step.
            reply: the key of the replies that the command asks for; empty: none.
        """
        refusal = result.refusal
        step, now_ms = self._state.step, self._state.now_ms
        lines, out = self.lines, self._buffers
        for effect in result.effects:
            kind = type(effect)
            lines.append(event_line(effect, step, now_ms, by))
            if kind is _ADDED or kind is _ACKED:
                continue
            if kind is _EVICTED:
                gone: e.Evicted = effect  # type: ignore[assignment]
                append_evicted(out.into_evicted, gone)
                if self._evicted is not None:
                    self._evicted.add(gone)
                if self._keeps_evictions:
                    self._evictions.append(gone)
            elif kind is _DISPATCHED:
                append_dispatched(out.dispatched, effect)  # type: ignore[arg-type]
            else:
                self._emit_rare(effect, by, sent, reply)
        if refusal is not None:
            lines.append(event_line(refusal, step, now_ms, by))
            if sent:
                self._reply_to_sender(refusal, by, sent)

    def _emit_rare(self, effect: e.Effect, by: str, sent: str, reply: str) -> None:
        out = self._buffers
        if isinstance(effect, e.Dead | e.Expired):
            out.into_dead.append(output.dead_record(effect, self._state.now_ms))
        elif isinstance(effect, e.Detached) and effect.timeout:
            self.log(LogEntry(TIMEOUT, effect.queue, text=effect.consumer))
        elif isinstance(effect, e.Refused):
            if not effect.delivery:
                self._reply_to_sender(effect, by, sent)
            elif reply:
                out.replies.append(output.reply_record(reply, effect))

    def _reply_to_sender(self, refused: e.Refused, by: str, sent: str) -> None:
        # A full queue names the message itself: it may refuse a kept copy, not what was sent (R71).
        is_of_queue = refused.reason in (Refusal.QUEUE_FULL, Refusal.TOO_LARGE)
        about = refused.about if is_of_queue else sent or refused.about
        self._buffers.replies.append(output.refused_send_record(about, refused, by))

    def reply(self, record: OutRecord) -> None:
        """Write a record of the replies topic."""
        self._buffers.replies.append(record)

    def put_dead(self, record: OutRecord) -> None:
        """Write a record of the dead topic."""
        self._buffers.into_dead.append(record)

    def activity(self) -> Activity:
        """What the batch has done so far, until `take`."""
        return Activity(self._log, self._evicted, self._evictions, self._state.changed_names())

    def topics(self) -> list[tuple[Role, int | None]]:
        """What `take` would return records for now."""
        found = [*self._buffers.by_topic()]
        if self.lines:
            found.append((Role.EVENTS, None))
        return found

    def take(self) -> Outputs[Buffer]:
        """Return the records to write, each topic's in order, and start a new batch."""
        self._log = []
        self._evictions = []
        if self._evicted is not None:
            self._evicted = EvictionCounts()
        lines, self.lines = self.lines, []
        full, self._buffers = self._buffers, _Buffers(self._new_buffer, self._cloud_events_of)
        for text in record_texts(lines):
            full.events.append((None, text.encode(), []))
        return full.by_topic()
