"""The path of a record through one partition: decode, step, encode. No I/O, and no clock.

Contract. A host drives a `Processor` in this order:

1. Open: `load_inputs` and `observe` if it has a use for them, then `start`. `go_to`, `delete_queue`
   and `fed_by` come before the first record, and `go_to` also whenever positions turn out wrong.
2. Input: `tick` when `next_wake_ms` is due, `take` or `skip` records, and `skip_to` past offsets
   without one. They decide in memory. A record that has to wait pauses its topic, until the host
   calls `resume`. A host that commits between the parts of a large command (`is_cut`) stops when
   it `is_full`. While the processor `is_unfinished`, the next batch begins with `go_on`, and no
   other input.
3. Output: `activity` and `outputs`, as often as the host likes; then `writes`. Between the last
   `outputs` and `writes` there is no input. The outputs and the changelog rows belong into one
   transaction (docs/architecture.md#decide-commit-apply).
4. Settle: `committed`, once the host's own store has the rows. Until then the batch is in flight:
   the next one may be decided (2), but its `writes` must wait.

Polls decide nothing, and may be called at any time: `positions`, `paused_topics`, `now_ms`,
`next_wake_ms`, `is_unfinished`, `is_full`, `accepts_sends`, `why_paused`, `decided_outputs`,
`revision` and `inputs_changed`. `state` is for reading only: queries, metrics and the status show
it.

There is no way back. If a commit fails, the host drops the processor and creates another one from
its store. A call out of order is a programming error: it fails an assertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple

from mypy_extensions import mypyc_attr

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import subscription_queue
from ringfaust.core.catalog import Configuration
from ringfaust.core.commands import Attach, Command, DeleteQueue, Heartbeat, Start, Subscribe, Sweep
from ringfaust.core.engine import Engine, Step
from ringfaust.core.model import Counts, Heard, Refusal
from ringfaust.core.state import State
from ringfaust.errors import ProtocolError
from ringfaust.processor.outbox import MISPLACED, Activity, Buffer, LogEntry, Outbox, Outputs
from ringfaust.processor.queries import answer_query
from ringfaust.protocol import control, events
from ringfaust.protocol import outputs as output
from ringfaust.protocol.gaps import Gap, gap_line
from ringfaust.protocol.headers import QUEUE
from ringfaust.protocol.misplaced import Misplaced, misplaced_line
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import FetchedRecord, Role, place_of
from ringfaust.protocol.routes import (
    Route,
    RouteTemplate,
    copied_keys,
    copied_to,
    refuse_oversized,
    revision_of,
)
from ringfaust.protocol.stored_rows import (
    FEEDS_KEY,
    INPUTS_KEY,
    POSITIONS_KEY,
    Feeds,
    InputState,
    encode_writes,
    without_bodies,
    write_feeds,
    write_inputs,
    write_positions,
)

_QUEUES_AT_ONCE = 1_000

APPLY = "apply"
_REVISION = "\0revision "
"""No queue has such a name."""
TICK, START = "tick", "start"
"""The `by` of events that a tick or a start caused, in place of a record's position."""
_OF_START: tuple[str, ...] = (START, "", "", "", "")
"""What caused the look for lost bodies."""


class Writes(NamedTuple):
    """Changes to stored rows, in order. None deletes the row."""

    store: list[tuple[bytes, bytes | None]]
    """For the host's own store."""
    changelog: list[tuple[bytes, bytes | None]]
    """For the changelog: the same changes, without the bodies of non-persistent messages (R82)."""

    @property
    def has_more(self) -> bool:
        """Whether the store gets bodies that the changelog does not."""
        return self.store is not self.changelog


class ProcessorConfig(NamedTuple):
    """What the processors of all partitions of an application share.

    A named tuple, because Spark pickles it: mypyc's dataclasses cannot be pickled.
    """

    control_topic: str
    repartition_topic: str
    routes: Sequence[Route]
    """The routes of topics that are read without repartitioning."""
    max_record_bytes: int
    log_is_clock: bool
    """Time comes only from tick records. For tests and for replaying a log."""
    spread: frozenset[str] = frozenset()
    """Topics whose records come from several partitions, so no single position applies. The host
    must pass each of their records only once."""
    step_transitions: int = limits.STEP_TRANSITIONS
    """Messages that a command touches in one transaction (R114). Tests make it small."""
    cloud_events_of: str = ""
    """The application in whose name evicted and dead records are CloudEvents; empty: they are
    none."""
    partitions: int = 0
    """Of each topic that is read without repartitioning; 0: not known, so keys are not compared
    with their partitions."""
    configuration: Configuration | None = None
    """What the host has read from its file, for those who ask before anything was applied."""
    newest: Configuration | None = None
    """What was applied last when the host started: a partition without state begins with it
    (R128)."""


@mypyc_attr(allow_interpreted_subclasses=True)  # the simulator has one
class Processor(Generic[Buffer]):
    """Processes the records of one partition; the module states the order of calls."""

    def __init__(
        self,
        shared: ProcessorConfig,
        state: State,
        positions: Mapping[str, int],
        new_buffer: Callable[[], Buffer],
    ) -> None:
        """Start from a state and the positions that are stored with it.

        Args:
            shared: what all partitions have in common.
            state: the partition's state.
            positions: by topic, the next offset to process.
            new_buffer: returns an empty buffer for the records of one topic, such as `list`.
        """
        self.state = state
        """For reading only."""
        self._positions = dict(positions)
        self.positions: Mapping[str, int] = self._positions
        """By topic: the next offset to process. Earlier records are repeats and are skipped."""
        self.inputs: Mapping[str, InputState] = {}
        """By topic: what else is known about it. See `load_inputs` and `go_to`."""
        self._stored_inputs: Mapping[str, InputState] = {}
        self._feeds: Feeds | None = None
        """What is to be stored about the routes; None if it is stored."""
        self._paused_topics: dict[str, str] = {}
        self.paused_topics: Mapping[str, str] = self._paused_topics
        """By topic that is paused: the queue that its next record waits for, because its pulling is
        paused (R90) or it is full (R60 block). Or the record comes from a route of a revision that
        the partition has not taken up yet (R128). Records of these topics are skipped."""
        self._config = shared
        self._most_bytes = shared.max_record_bytes
        if shared.newest is not None and state.configuration is None and not positions:
            state.configure(shared.newest, shared.newest.catalog())
        self._engine = Engine(state, shared.step_transitions)
        self.use_routes(shared.routes)
        self.is_cut = False
        """Whether the host commits between the parts of a large command (R114): then it calls
        `go_on` while the processor `is_unfinished`. If not, each command is finished at once."""
        self._starts_next = False
        self._room = limits.STEP_BYTES
        """How many more bytes of messages the commands of this batch may touch."""
        self._room_messages = limits.STEP_TRANSITIONS
        """How many more messages."""
        self._has_answered = False
        """Whether a question has ended the last `take`: the host's event loop runs next (R122)."""
        self._out = Outbox(self.state, new_buffer, shared.cloud_events_of)
        """What the batch writes, until `outputs` starts the next."""
        self._is_in_flight = False
        """Whether `writes` was called, and `committed` not yet."""

    def use_routes(self, routes: Sequence[Route]) -> None:
        """Use these routes of topics that are read without repartitioning, from here on (R128)."""
        repartition = Route(self._config.repartition_topic, f"{{header:{QUEUE}}}")
        self._routes = {each.topic: RouteTemplate(each.queue) for each in (*routes, repartition)}
        spread = self._config.spread
        self._keyed = {
            topic
            for topic, template in self._routes.items()
            if self._config.partitions > 1 and topic not in spread and "key" in template.parts
        }
        """Topics whose records are expected in the partitions of their keys (R113)."""

    # --- in --------------------------------------------------------------------------------------

    def take(self, records: Iterable[FetchedRecord], wall_ms: int) -> list[FetchedRecord]:
        """Process records in order, skipping repeats.

        A record for a queue that does not accept sends now pauses its topic.

        Args:
            records: input records; those of one topic are in offset order. If the processor
                `is_cut`, an iterator: records that do not fit into the batch (R114), or come
                behind a question (R122), stay in it.
            wall_ms: the host's clock. Time never goes back.

        Returns:
            The skipped records of paused topics.
        """
        is_full = self.is_full
        assert not is_full, "the batch is full: commit it first"
        now_ms = self.state.now_ms if self._config.log_is_clock else max(wall_ms, self.state.now_ms)
        control_topic = self._config.control_topic
        paused, spread, positions = self._paused_topics, self._config.spread, self._positions
        skipped: list[FetchedRecord] = []
        self._has_answered = False
        for record in records:
            topic = record.topic
            offset = record.offset
            if offset < positions.get(topic, 0):
                continue
            if topic in paused:
                skipped.append(record)
                continue
            if topic not in spread:
                positions[topic] = offset + 1
            try:
                if topic == control_topic:
                    now_ms = self._control(record, now_ms)
                    if self._has_answered:
                        break
                elif not self._produced(record, topic, now_ms):
                    skipped.append(record)
                    if topic in positions:
                        positions[topic] = offset
            except ProtocolError as error:
                self._undecodable(record, error, now_ms)
            if self.is_full:
                break
        return skipped

    def skip(self, record: FetchedRecord, why: ProtocolError, wall_ms: int) -> None:
        """Move the next record of a topic to the dead topic in place of processing it (R123).

        Args:
            record: the record. If it is a command with a `reply`, its sender gets an answer.
            why: who has asked for it and why; its reason is `skipped`.
            wall_ms: the host's clock.
        """
        assert not self.is_unfinished, "a large command continues before any record"
        self._positions[record.topic] = record.offset + 1
        self.resume(record.topic)
        self._undecodable(record, why, max(wall_ms, self.state.now_ms))
        if record.topic == self._config.control_topic:
            if (reply := output.skipped_record(record.value, str(why))) is not None:
                self._out.reply(reply)

    def skip_to(self, positions: Mapping[str, int]) -> None:
        """Move past offsets without a record, such as those of markers. They are no gap (R112)."""
        for topic, position in positions.items():
            if topic not in self._paused_topics and self._positions.get(topic, 0) < position:
                self._positions[topic] = position

    def pause(self, topic: str, queue: str) -> None:
        """Skip a topic's records: the next one, which a host may keep itself, waits for a queue."""
        self._paused_topics[topic] = queue

    def resume(self, topic: str) -> None:
        """Take a topic's records again, from its position on: its queue `accepts_sends`, or may."""
        self._paused_topics.pop(topic, None)

    def start(self) -> None:
        """Do what a host must do first after it has opened the partition (R81, R82)."""
        self._starts_next = True
        self._report(self._engine.look(), _OF_START)
        self._roll_back()
        if not self.is_cut:
            self._finish()

    def _roll_back(self) -> None:
        """Roll back once the look is over and nothing is unfinished (R81)."""
        if self._starts_next and not self.is_unfinished:
            self._starts_next = False
            self._execute(Start(), self.state.now_ms, START)

    def load_inputs(self, inputs: Mapping[str, InputState]) -> None:
        """Set what is stored about the input topics."""
        self.inputs = inputs
        self._stored_inputs = inputs

    def queues(self, begin: str = "") -> Iterator[tuple[str, int]]:
        """Yield each stored queue whose name begins so, and the number of its messages."""
        rows = self.state.queue_rows
        if begin and (first := rows.get(begin)) is not None:
            yield begin, Counts(*first.counts).messages
        for name, row in rows.scan_all(begin or None, _QUEUES_AT_ONCE):
            if not name.startswith(begin):
                return
            yield name, Counts(*row.counts).messages

    def delete_queue(self, name: str) -> None:
        """Delete a queue that does not belong into this partition any more (R113)."""
        self._finish()
        self._out.emit(self._engine.step(DeleteQueue(name), self.state.now_ms), START)

    def observe(self, *, evictions: bool, counts: bool) -> None:
        """Choose what `activity` has of evictions.

        Args:
            evictions: each of them; for traces.
            counts: how many, and of what age; for metrics.
        """
        self._out.observe(evictions=evictions, counts=counts)

    def fed_by(self, feeds: Feeds) -> None:
        """Store what feeds the queues from now on."""
        self._feeds = feeds

    @property
    def inputs_changed(self) -> bool:
        """Whether `writes` has something to store about the input topics and routes."""
        return self.inputs != self._stored_inputs or self._feeds is not None

    def go_to(
        self, positions: Mapping[str, int], ids: Mapping[str, str], gaps: Sequence[Gap]
    ) -> None:
        """Continue at other positions, and report what is missing there (R112).

        Args:
            positions: by topic, the next offset to process.
            ids: the ids of these topics (R111); empty where they are not known.
            gaps: what can no longer be read.
        """
        if gaps:
            self._finish()  # a gap is reported between two commands, never within one (R114)
        inputs = dict(self.inputs)
        self._positions.update(positions)
        for topic, topic_id in ids.items():
            known = inputs.get(topic, InputState())
            inputs[topic] = known._replace(topic_id=topic_id or known.topic_id)
        for gap in gaps:
            known = inputs[gap.topic]
            inputs[gap.topic] = known._replace(gaps=known.gaps + 1)
            line = gap_line(gap, known.gaps + 1, self.state.step, self.now_ms)
            self._out.lines.append(line)
        self.inputs = inputs

    def tick(self, wall_ms: int, heard: Heard | None = None) -> None:
        """Do what is due at `wall_ms`.

        Args:
            wall_ms: the host's clock.
            heard: when consumers could be heard (R110); None: always, until now.
        """
        sweep = Sweep() if heard is None else Sweep(heard.until_ms, heard.since_ms)
        self._execute(sweep, wall_ms, TICK)

    @property
    def is_unfinished(self) -> bool:
        """Whether a command continues in the next transaction, before anything else (R114).

        The look for lost bodies is one, too (R82).
        """
        return self._engine.is_unfinished

    @property
    def is_full(self) -> bool:
        """Whether what the batch has done fills a transaction (R114)."""
        return self.is_cut and (self.is_unfinished or self._room <= 0 or self._room_messages <= 0)

    def go_on(self) -> None:
        """Continue the unfinished command, as much of it as fits into one transaction (R114)."""
        unfinished = None if self._engine.is_looking else self.state.unfinished
        context = _OF_START if unfinished is None else unfinished.context
        self._report(self._engine.go_on(), context)
        self._roll_back()

    def _finish(self) -> None:
        while self.is_unfinished:
            self.go_on()

    def _produced(self, record: FetchedRecord, topic: str, now_ms: int) -> bool:
        """Send the record to its queue; False if that pauses its topic."""
        source = place_of(record)
        repartitioned = topic == self._config.repartition_topic
        revision = self.revision if repartitioned else None
        send = self._routes[topic].decode(record, source, now_ms, self._most_bytes, revision)
        if send is None:
            self.pause(topic, f"{_REVISION}{revision_of(record)}")
            return False
        queue = send.queue
        known = self.state.receiver(queue)  # saves most records two calls
        if known is None:
            self._room -= self.state.catalog.cost_of(queue)
        if (known is None or known.paused or known.is_limited) and (
            waits_for := self._engine.pausing_queue(send)
        ) is not None:
            self.pause(topic, waits_for)
            return False
        if repartitioned:
            self._note_copied(record)
        may_be_first = (
            (known is None or not known.counts.added)
            and topic in self._keyed
            and not self._has_received(queue)
        )
        step = self._engine.begin(send, now_ms, (source, send.id, "", "", ""))
        self._room -= self._engine.spent_bytes
        self._room_messages -= self._engine.spent_transitions
        self._out.emit(step, source, send.id)
        if self.state.unfinished is not None and not self.is_cut:
            self._finish()
        if may_be_first and self._has_received(queue):
            self._compare_key(record, queue, source, now_ms)
        return True

    def _has_received(self, name: str) -> bool:
        """Whether a queue has received a message, or an address has kept or passed one on."""
        queue = self.state.receiver(name)
        if queue is None and (address := self.state.address(name)) is not None:
            if address.after:
                return True
            members = [self.state.queue(member) for member in address.members]
            return any([each is not None and each.counts.added > 0 for each in members])
        queue = queue or self.state.queue(name)
        return queue is not None and queue.counts.added > 0

    def _compare_key(self, record: FetchedRecord, queue: str, by: str, now_ms: int) -> None:
        """Report a queue or address that began in another partition than that of its key (R113)."""
        home = partition_of(record.key or b"", self._config.partitions)
        if home == record.partition:
            return
        misplaced = Misplaced(queue, record.topic, record.partition, home)
        self._out.lines.append(misplaced_line(misplaced, by, self.state.step, now_ms))
        self._out.log(LogEntry(MISPLACED, queue, text=str(misplaced)))

    def _note_copied(self, record: FetchedRecord) -> None:
        """Keep up to where the partition was copied that the record comes from.

        Its repartition task has no state. If Kafka has forgotten the group's offset, it continues
        from here (ADR 13).
        """
        copied = copied_to(record)
        if copied is None:
            return
        key, position = copied
        if key not in self.positions:
            where, _, _ = key.rpartition("/")
            for old in [name for name in self.positions if name.startswith(f"{where}/")]:
                del self._positions[old]  # the topic was deleted and created again
            if len(copied_keys(self.positions)) >= limits.COPIED_PARTITIONS:
                return  # without its offset, its task does not begin (`copied_before`)
        self._positions[key] = position

    def _control(self, record: FetchedRecord, now_ms: int) -> int:
        """Execute a control command; returns the time from then on."""
        refuse_oversized(record, self._most_bytes)
        try:
            asked = control.read_control(record.value)
        except control.BadControl as error:
            no = e.Refused("", Refusal.BAD_COMMAND, "", str(error))
            self._out.reply(output.reply_record(error.reply, no))
            self._out.log(LogEntry("command", "", Refusal.BAD_COMMAND, str(error)))
            raise
        by = place_of(record)
        if isinstance(asked, control.OrderRecord):
            return now_ms  # a stopped partition carried it out when it was written
        if isinstance(asked, control.QueryRecord):
            used = self.state.configuration or self._config.configuration
            reply = answer_query(asked, self.state, now_ms, self.accepts_sends, used)
            self._out.reply(reply)
            self._room -= len(reply[1] or b"")
            self._has_answered = self.is_cut
            return now_ms
        if isinstance(asked, control.TickRecord) and not self._config.log_is_clock:
            text = "this worker uses the wall clock and ticks on its own"
            step = Step([], e.Refused("", Refusal.BAD_COMMAND, "tick", text))
            self._report(step, (by, "", asked.type, asked.reply, ""))
        else:
            if isinstance(asked, control.TickRecord):
                now_ms = max(asked.now_ms, now_ms)
                self._engine.advance(now_ms)
            self._execute(asked.command(), now_ms, by, asked.type, asked.reply)
        return now_ms

    def _execute(
        self, command: Command, now_ms: int, by: str, asked: str = "", reply: str = ""
    ) -> None:
        context = (by, "", asked, reply, _joined_queue(command) if reply else "")
        step = self._engine.begin(command, now_ms, context)
        if asked in control.OPERATOR_COMMANDS and step.refusal is None:
            self._out.log(LogEntry.of(asked, command))
        self._report(step, context)
        if not self.is_cut:
            self._finish()

    def _report(self, step: Step, context: tuple[str, ...]) -> None:
        """Write the records of one step, and at its end the answer to its command."""
        by, sent, asked, reply, joined = context
        self._room -= self._engine.spent_bytes
        self._room_messages -= self._engine.spent_transitions
        self._out.emit(step, by, sent, reply)
        if self.is_unfinished:
            return
        if asked == APPLY:
            self._room = 0  # the host may have other routes for the records that follow
        if asked and (no := step.refusal) is not None:
            self._out.log(LogEntry(asked, no.queue, no.reason, no.text))
        if asked and step.refusal is None:
            tail = events.event_tail(self.state.now_ms, by)
            self._out.lines.append(events.done_line(self.state.step, asked, tail))
        if reply:
            answer = self._answer(joined) if step.refusal is None else None
            self._out.reply(output.reply_record(reply, step.refusal, answer))

    def _answer(self, joined: str) -> dict[str, int] | None:
        """What a consumer must know to stay attached: how long it may be silent (R13)."""
        queue = self.state.queue(joined) if joined else None
        return None if queue is None else {"consumer_timeout_ms": queue.spec.consumer_timeout}

    def _undecodable(self, record: FetchedRecord, error: ProtocolError, now_ms: int) -> None:
        source = output.source_of(record, self._config.repartition_topic)
        self._out.put_dead(output.undecodable_record(record, source, error, now_ms))
        line = output.undecodable_line(record, source, error, self.state.step, now_ms)
        self._out.lines.append(line)

    # --- polls -----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time of the last step, in ms since 1970. It never goes back."""
        return self.state.now_ms

    @property
    def revision(self) -> int:
        """The revision of the configuration in use; 0: that of the host (R128)."""
        used = self.state.configuration
        return 0 if used is None else used.revision

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do, in ms since 1970; None: never, as things are."""
        return self.state.next_wake_ms()

    def accepts_sends(self, queue: str) -> bool:
        """Whether the queue accepts sends (R60, R90). An unknown queue does: it refuses them.

        What waits for a revision is accepted once that is in use.
        """
        if awaits_revision(queue):
            return self.revision >= int(queue.removeprefix(_REVISION))
        return self._engine.accepts_sends(queue)

    def why_paused(self, queue: str) -> str:
        """Why a topic waits for this queue, as text."""
        if awaits_revision(queue):
            revision = queue.removeprefix(_REVISION)
            return f"revision {revision} of the configuration has sent the record"
        found = self.state.queue(queue)
        is_paused = found is not None and "pulling" in found.paused
        return f"queue {queue!r} is {'paused' if is_paused else 'full'}"

    def decided_outputs(self) -> list[tuple[Role, int | None]]:
        """What `outputs` would return records for now."""
        return self._out.topics()

    # --- out -------------------------------------------------------------------------------------

    def activity(self) -> Activity:
        """What the batch has done so far; `outputs` starts another batch."""
        return self._out.activity()

    def outputs(self) -> Outputs[Buffer]:
        """Return the records to write, each topic's in order, and start a new batch."""
        self._room, self._room_messages = limits.STEP_BYTES, limits.STEP_TRANSITIONS
        return self._out.take()

    def writes(self) -> Writes:
        """Return the changes to stored rows, including the positions: they are in flight now.

        Raises:
            BrokenAccounts: see `State.writes`.
        """
        assert not self._is_in_flight, "the batch before this one is not committed"
        assert not self._out.topics(), "what the batch writes to topics comes before its rows"
        self._is_in_flight = True
        has_non_persistent = False
        for queue in self.state.changed_queues:  # `any` takes three times as long
            if queue.non_persistent:
                has_non_persistent = True
                break
        writes = encode_writes(self.state.writes())
        writes.append((POSITIONS_KEY, write_positions(self.positions)))
        if self._feeds is not None:
            writes.append((FEEDS_KEY, write_feeds(self._feeds)))
            self._feeds = None
        if self.inputs != self._stored_inputs:
            self._stored_inputs = self.inputs
            writes.append((INPUTS_KEY, write_inputs(self.inputs)))
        return Writes(writes, without_bodies(writes) if has_non_persistent else writes)

    def committed(self, cache_bytes: int) -> None:
        """Drop what the store has now; `cache_bytes`: the bound of the decoded state."""
        assert self._is_in_flight, "no batch is in flight"
        self._is_in_flight = False
        self.state.committed(cache_bytes)


def awaits_revision(queue: str) -> bool:
    """Whether a paused topic waits for a revision of the configuration, and not for a queue."""
    return queue.startswith(_REVISION)


def _joined_queue(command: Command) -> str:
    """The queue that a consumer attaches to or stays attached to; empty: another command."""
    if isinstance(command, Attach | Heartbeat):
        return command.queue
    return subscription_queue(command) if isinstance(command, Subscribe) else ""
