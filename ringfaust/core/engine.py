"""The engine of one partition: has each command checked, and its stages performed.

A command goes one way. A *check* (`checks`) refuses it or returns its *stages*; a loop performs
these, each by one function of `transitions`. What does not fit into one transaction is kept, and
continues in the next one (R114). Only a send has no stages: it is decided and done by one function,
because it is what a queue does most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.checks import consumers, queues, settles, xids
from ringfaust.core.checks.queues import SEARCHES, search
from ringfaust.core.checks.refusal import CommandRefused, InTurn
from ringfaust.core.model import IN_TURN, Refusal, Stage, Unfinished
from ringfaust.core.queue import Queue, QueueRow
from ringfaust.core.state import State
from ringfaust.core.transitions import (
    attaching,
    delivering,
    entering,
    opening,
    operating,
    sending,
    settling,
    sweeping,
)
from ringfaust.core.transitions import queues as of_queues
from ringfaust.core.transitions import xids as of_xids
from ringfaust.core.transitions.entering import enter
from ringfaust.core.transitions.looking import look
from ringfaust.core.transitions.opening import opened
from ringfaust.core.transitions.queues import auto_delete
from ringfaust.core.work import Work

_SEND: Final = c.Send
"""mypyc looks up the names of another module at each use."""

_CHECKS: Final[dict[type, Callable[[Work, Any], list[Stage]]]] = {
    c.Attach: consumers.attach,
    c.Subscribe: consumers.subscribe,
    c.Credit: consumers.credit,
    c.Heartbeat: consumers.heartbeat,
    c.Detach: consumers.detach,
    c.Recover: consumers.recover,
    c.Rollback: consumers.rollback,
    c.Ack: settles.ack,
    c.AckMany: settles.ack_many,
    c.Release: settles.release,
    c.Reject: settles.reject,
    c.Send: xids.send,
    c.Begin: xids.begin,
    c.Prepare: xids.prepare,
    c.Commit: xids.commit,
    c.RollbackXid: xids.rollback,
    c.Start: xids.start,
    c.CreateQueue: queues.create_queue,
    c.Configure: queues.configure,
    c.ConfigureAddress: queues.configure_address,
    c.DeleteQueue: queues.delete_queue,
    c.Pause: queues.pause,
    c.Resume: queues.resume,
    c.Purge: queues.purge,
    c.Remove: queues.remove,
    c.Move: queues.move,
    c.CancelScheduled: queues.cancel_scheduled,
    c.DeliverNow: queues.deliver_now,
    c.Apply: queues.apply,
    c.RaiseLevel: queues.raise_level,
    c.Sweep: queues.sweep,
}
"""What checks a command."""

_WAITING: Final[dict[str, Callable[..., c.Command]]] = {
    each.__name__: each
    for each in (c.Ack, c.AckMany, c.Credit, c.Detach, c.Heartbeat, c.Recover, c.Reject, c.Release)
}
"""The commands that may wait for their turn, by the names of their types."""


def _in_turn(work: Work, stage: Stage) -> list[Stage]:
    """Check a command whose turn has come.

    It may open further queues, whose first use comes before it, too.
    """
    name, *fields = stage.args
    command = _WAITING[name](*map(_as_tuples, fields))
    try:
        return _CHECKS[type(command)](work, command)
    except InTurn:
        return [stage]


def _as_tuples(value: Any) -> Any:
    """What was stored as JSON has lists."""
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value


_CHECKS_IN_TURN: Final[dict[str, Callable[[Work, Stage], list[Stage]]]] = {
    **dict.fromkeys(SEARCHES, search),
    settling.ATTACH: consumers.join,
    IN_TURN: _in_turn,
    sending.SEND: queues.send,
}
"""What checks a stage when all before it has been done: it depends on that (R114)."""

_AT_ONCE: Final[dict[str, Callable[[Work, Queue, Stage], None]]] = {
    settling.ALIVE: settling.alive_stage,
    settling.EXPIRE: settling.expire_stage,
    settling.GRANT: settling.grant_stage,
    settling.JOIN: settling.join_stage,
    settling.ACCEPT: settling.accept_stage,
    settling.ACCEPT_ALL: settling.accept_all_stage,
    settling.RELEASE: settling.release_stage,
    settling.REJECT: settling.reject_stage,
    operating.CONFIGURE: operating.configure_stage,
    operating.PAUSE: operating.pause_stage,
    operating.RESUME: operating.resume_stage,
    operating.TAKE_OUT: operating.take_out_stage,
    operating.MOVE_OUT: operating.move_out_stage,
    operating.MAKE_DUE: operating.make_due_stage,
    of_xids.HOLD_ACK: of_xids.hold_ack_stage,
    sending.ENTER: sending.enter_stage,
}
"""What performs a stage about a queue that no transaction is too small for."""

_STAGES: Final[dict[str, Callable[[Work, Queue, Stage], None]]] = {
    attaching.LEAVE: attaching.leave_stage,
    attaching.LEASES: attaching.leases_stage,
    delivering.DISPATCH: delivering.dispatch_stage,
    delivering.MEET: delivering.meet_stage,
    entering.LIMITS: entering.limits_stage,
    entering.DUE: entering.due_stage,
    settling.ACCEPT_MANY: settling.accept_many_stage,
    settling.ACK: settling.ack_stage,
    of_xids.HOLD_REST: of_xids.hold_rest_stage,
    settling.RETURN: settling.return_stage,
    of_queues.FIT: of_queues.fit_stage,
    of_queues.DELETE: of_queues.delete_stage,
    of_queues.PURGE: of_queues.purge_stage,
    of_queues.COPY: of_queues.copy_stage,
}
"""What performs a stage about a queue, or as much of it as fits into this transaction (R114)."""

_PARTITION_AT_ONCE: Final[dict[str, Callable[[Work, Stage], None]]] = {
    operating.CREATE: operating.create_stage,
    operating.CONFIGURE_ADDRESS: operating.configure_address_stage,
    of_queues.APPLY: of_queues.apply_stage,
    of_queues.RAISE_LEVEL: of_queues.raise_level_stage,
    settling.REQUEUE_WHOLE: settling.requeue_whole_stage,
    of_xids.BEGIN: of_xids.begin_stage,
    of_xids.PREPARE: of_xids.prepare_stage,
    of_xids.HOLD_SEND: of_xids.hold_send_stage,
}
_PARTITION_STAGES: Final[dict[str, Callable[[Work, Stage], None]]] = {
    of_queues.KEEP_LESS: of_queues.keep_less_stage,
    of_queues.TAKE_UP: of_queues.take_up_stage,
    opening.FILL: opening.fill_stage,
    of_xids.COMMIT: of_xids.commit_stage,
    of_xids.UNDO: of_xids.undo_stage,
    sending.PUBLISH: sending.publish_stage,
    of_xids.UNDO_ALL: of_xids.undo_all_stage,
    settling.REQUEUE: settling.requeue_stage,
    settling.RETURN_SESSION: settling.return_session_stage,
    sweeping.SWEEP: sweeping.sweep_stage,
}
"""The same for stages about the partition."""


class Step:
    """The result of one command."""

    __slots__ = ("effects", "refusal")

    # Not a dataclass: mypyc would not compile its constructor, which runs for each message.
    def __init__(self, effects: list[e.Effect], refusal: e.Refused | None) -> None:
        self.effects = effects
        """What happened, in order. A `Refused` among them is of one send of several (R80, R81)."""
        self.refusal = refusal
        """Why the command as a whole was refused; it has changed nothing then (R103)."""

    @property
    def all_effects(self) -> list[e.Effect]:
        """The effects, followed by the refusal if there is one."""
        return self.effects if self.refusal is None else [*self.effects, self.refusal]

    def followed_by(self, rest: Step) -> Step:
        """This and what the next transaction has added to it (R114)."""
        return Step(self.effects + rest.effects, rest.refusal)


class Engine:
    """Executes commands on the state of one partition."""

    def __init__(self, state: State, step_transitions: int = limits.STEP_TRANSITIONS) -> None:
        """`step_transitions`: messages that a command may touch in one transaction (R114)."""
        self.state = state
        self._work = Work(state, step_transitions)

    def step(self, command: c.Command, now_ms: int) -> Step:
        """Execute one command at the given time; a time before the last one counts as that (R102).

        A refusal is part of the result and never raised (R103).
        """
        step = self.begin(command, now_ms)
        while self.is_unfinished:
            step = step.followed_by(self.go_on())
        return step

    def begin(self, command: c.Command, now_ms: int, context: tuple[str, ...] = ()) -> Step:
        """As `step`, but only as much of the command as fits into one transaction (R114).

        If that is not all, the command `is_unfinished`: commit, and `go_on` with it before any
        other command. `context`: what the host wants to know then, even after a restart.
        """
        assert self.state.unfinished is None, "another command continues first"
        work = self._work
        work.begin(now_ms)
        if type(command) is _SEND and not command.xid:
            refusal = self._send(command)
        else:
            refusal = self._check_and_perform(command)
        if work.to_auto_delete:
            auto_delete(work)
        if work.stages:
            refusal = work.end(_queue_of(command), context, refusal)
        return Step(work.effects, refusal)

    def _send(self, send: c.Send) -> e.Refused | None:
        """Send a message, unless it is refused.

        It is decided and done by one function: a send that evicts takes 0.94 µs, compiled, and
        would take 1.12 µs with a stage (ADR 44).
        """
        work = self._work
        queue = work.state.receiver(send.queue)
        if queue is not None and queue.applied is None and not (send.redrives or queue.dedups):
            work.accept()
            enter(work, queue, send)  # the usual case
            return None
        refusal = sending.send(work, send)
        if refusal is None:
            work.accept()
        return refusal

    def _check_and_perform(self, command: c.Command) -> e.Refused | None:
        work = self._work
        try:
            stages = _CHECKS[type(command)](work, command)
        except CommandRefused as no:
            return e.Refused(_queue_of(command), no.reason, no.about, no.text)
        except InTurn:
            stages = [Stage(IN_TURN, _queue_of(command), (type(command).__name__, *command))]
        if stages:
            work.accept()
            self._perform(stages)  # behind what the first use of an address has left to do
        return None

    def _perform(self, stages: Iterable[Stage]) -> None:
        """Perform stages in order, until the transaction is full."""
        work = self._work
        for stage in stages:
            kind = stage.kind
            if work.stages and work.defers(stage):
                continue
            if (at_once := _AT_ONCE.get(kind)) is not None:
                at_once(work, opened(work, stage.queue), stage)
            elif (of_partition := _PARTITION_AT_ONCE.get(kind)) is not None:
                of_partition(work, stage)
            elif work.defers(stage):
                continue
            elif (check := _CHECKS_IN_TURN.get(kind)) is not None:
                self._perform(check(work, stage))
            elif (of_partition := _PARTITION_STAGES.get(kind)) is not None:
                of_partition(work, stage)
            else:
                _STAGES[kind](work, opened(work, stage.queue), stage)

    @property
    def is_unfinished(self) -> bool:
        """Whether a command, or the look for lost bodies, continues in the next transaction."""
        return self.state.unfinished is not None or self.is_looking

    @property
    def is_looking(self) -> bool:
        """Whether that is the look for lost bodies, which comes first (R82)."""
        return self._work.looked is not None

    @property
    def spent_bytes(self) -> int:
        """Bytes of the messages that the last step changed or looked at, apart from a send's."""
        return self._work.most_bytes - self._work.left_bytes + self.state.rows_cost

    @property
    def spent_transitions(self) -> int:
        """How many messages the last step has changed or looked at, apart from a send's."""
        return self._work.most_transitions - self._work.left_transitions

    def go_on(self) -> Step:
        """Continue the look for lost bodies, or a command as if it had never been cut (R114)."""
        if self.is_looking:
            return self.look()
        unfinished = self.state.unfinished
        assert unfinished is not None
        work = self._work
        work.go_on(unfinished)
        refusal = _refusal_of(unfinished)
        try:
            self._perform(unfinished.stages)
        except CommandRefused as no:  # by a check in its turn
            work.give_back()
            refusal = e.Refused(unfinished.queue, no.reason, no.about, no.text)
        if work.to_auto_delete:
            auto_delete(work)
        refusal = work.end(unfinished.queue, unfinished.context, refusal)
        return Step(work.effects, refusal)

    def look(self) -> Step:
        """Drop what a crash has taken, as much as fits into one transaction (R82, R121).

        A host does so before anything else, even if a command is unfinished. `go_on` continues it.
        """
        work = self._work
        work.begin(self.state.now_ms)
        look(work)
        return Step(work.effects, None)

    def advance(self, now_ms: int) -> None:
        """Move the time of an idle partition forward."""
        self.state.advance(now_ms)

    def pausing_queue(self, send: c.Send) -> str | None:
        """The queue that pauses this send's topic now, or None (R60, R61, R90)."""
        if send.xid:
            return None
        address = self.state.address(send.queue)
        names = [send.queue] if address is None else address.members
        return next((name for name in names if not self.accepts_sends(name)), None)

    def accepts_sends(self, queue: str) -> bool:
        """Whether sends to a queue are read now (R60, R90). A missing queue refuses them."""
        state = self.state
        if queue not in state.queues:  # the queues of an address may be too many to decode
            row: QueueRow | None = state.queue_rows.get(queue)
            if row is not None and not row.paused and not self._blocks(queue, row):
                return True
        found = state.queue(queue)
        if found is None:
            return True
        is_full = found.spec.when_full == "block" and found.is_full()
        return not is_full and "pulling" not in found.paused

    def _blocks(self, name: str, row: QueueRow) -> bool:
        """Whether a queue that is not decoded takes no sends while it is full."""
        if self.state.configuration is not None:  # then its row has what that says (R128)
            return row.applied.get("when_full") == "block"
        return self.state.catalog.spec_of_stored(name, row.settings).when_full == "block"


def _refusal_of(unfinished: Unfinished) -> e.Refused | None:
    if not unfinished.refusal:
        return None
    queue, reason, about, text = unfinished.refusal
    return e.Refused(queue, Refusal(reason), about, text)


def _queue_of(command: c.Command) -> str:
    """The queue that a command names; empty: none."""
    return getattr(command, "queue", "")
