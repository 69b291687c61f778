"""The engine of one partition: passes each command to its handler, and does what is due.

Transitions decide what becomes of a message. A handler refuses its command before it changes
anything, and `step` returns the refusal (R103).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.handlers.addresses import ATTACH, COPY, Addresses
from ringfaust.core.handlers.consumers import ACK, LEASES, LEAVE, RETURN, Consumers
from ringfaust.core.handlers.operator import (
    CANCEL,
    DELETE,
    DELIVER_NOW,
    FIT,
    MOVE,
    PURGE,
    REMOVE,
    Operator,
)
from ringfaust.core.handlers.transactions import COMMIT, UNDO, Transactions
from ringfaust.core.model import Heard, Refusal, Stage, Unfinished, time_of
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import CommandRefused, Idle
from ringfaust.core.state import State
from ringfaust.core.transitions import DISPATCH, LIMITS, Transitions, queues

SWEEP = "sweep"
"""A stage of a command (R114)."""
_SEND: Final = c.Send
"""mypyc looks up the names of another module at each use."""


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
        self._transitions = transitions = Transitions(state, self._find, step_transitions)
        self._consumers = consumers = Consumers(transitions)
        operator = Operator(transitions, consumers)
        self._operator = operator
        self._addresses = addresses = Addresses(transitions, consumers, operator)
        self._transactions = transactions = Transactions(transitions, consumers, addresses)
        self._handlers: dict[type, Callable[[Any], Any]] = {
            c.Send: self._send,
            c.Attach: consumers.attach,
            c.Subscribe: addresses.subscribe,
            c.Credit: consumers.credit,
            c.Heartbeat: consumers.heartbeat,
            c.Ack: self._ack,
            c.AckMany: consumers.ack_many,
            c.Release: consumers.release,
            c.Reject: consumers.reject,
            c.Detach: consumers.detach,
            c.Recover: consumers.recover,
            c.Rollback: consumers.rollback,
            c.Begin: transactions.begin,
            c.Prepare: transactions.prepare,
            c.Commit: transactions.commit,
            c.RollbackXid: transactions.rollback,
            c.Start: transactions.start,
            c.CreateQueue: addresses.create_queue,
            c.Configure: operator.configure,
            c.ConfigureAddress: addresses.configure,
            c.DeleteQueue: addresses.delete_queue,
            c.Pause: operator.pause,
            c.Resume: operator.resume,
            c.Purge: operator.purge,
            c.Remove: operator.remove,
            c.Move: operator.move,
            c.CancelScheduled: operator.cancel_scheduled,
            c.DeliverNow: operator.deliver_now,
            c.Sweep: self._sweep,
        }
        transitions.functions |= {
            DISPATCH: transitions.dispatch_stage,
            LIMITS: transitions.limits_stage,
            LEAVE: consumers.leave_stage,
            LEASES: consumers.leases_stage,
            ACK: consumers.ack_stage,
            RETURN: consumers.return_stage,
            FIT: operator.fit_stage,
            PURGE: operator.purge_stage,
            REMOVE: operator.find_stage,
            MOVE: operator.find_stage,
            CANCEL: operator.find_stage,
            DELIVER_NOW: operator.find_stage,
            DELETE: addresses.delete_stage,
            COPY: addresses.copy_stage,
            ATTACH: addresses.attach_stage,
            COMMIT: transactions.commit_stage,
            UNDO: transactions.undo_stage,
            SWEEP: self._sweep_stage,
        }

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
        effects = self._transitions.begin_step(now_ms)
        refusal = None
        try:
            if type(command) is _SEND:  # the usual case
                self._send(command)
            else:
                self._handlers[type(command)](command)
        except CommandRefused as no:
            refusal = self._refuse(no, _queue_of(command))
        except Idle:
            self._transitions.undo_step()
        if self._consumers.to_auto_delete:
            self._addresses.auto_delete()
        if self._transitions.stages:
            refusal = self._transitions.end_step(_queue_of(command), context, refusal)
        return Step(effects, refusal)

    @property
    def is_unfinished(self) -> bool:
        """Whether a command continues in the next transaction."""
        return self.state.unfinished is not None

    @property
    def spent_bytes(self) -> int:
        """Bytes of the messages that the last step changed or looked at, apart from a send's."""
        return self._transitions.most_bytes - self._transitions.left_bytes

    def go_on(self) -> Step:
        """Continue the unfinished command, as if it had never been cut (R114)."""
        unfinished = self.state.unfinished
        assert unfinished is not None
        effects = self._transitions.continue_step(unfinished)
        refusal = _refusal_of(unfinished)
        try:
            self._transitions.perform_all(unfinished.stages)
        except CommandRefused as no:
            refusal = self._refuse(no, unfinished.queue)
        if self._consumers.to_auto_delete:
            self._addresses.auto_delete()
        refusal = self._transitions.end_step(unfinished.queue, unfinished.context, refusal)
        return Step(effects, refusal)

    def _refuse(self, no: CommandRefused, queue: str) -> e.Refused:
        self._transitions.undo_step()
        return e.Refused(queue, no.reason, no.about, no.text)

    def advance(self, now_ms: int) -> None:
        """Move the time of an idle partition forward."""
        self._transitions.advance(now_ms)

    def pausing_queue(self, send: c.Send) -> str | None:
        """The queue that pauses this send's topic now, or None (R60, R61, R90)."""
        if send.xid:
            return None
        address = self.state.address(send.queue)
        names = [send.queue] if address is None else address.members
        return next((name for name in names if not self.accepts_sends(name)), None)

    def accepts_sends(self, queue: str) -> bool:
        """Whether sends to a queue are read now (R60, R90). A missing queue refuses them."""
        found = self.state.queue(queue)
        if found is None:
            return True
        is_full = found.spec.when_full == "block" and found.is_full()
        if is_full and (bodyless := found.bodyless()):  # they leave at the next command (R82)
            is_full = found.is_full(without=bodyless)
        return not is_full and "pulling" not in found.paused

    # --- commands with two paths -----------------------------------------------------------------

    def _send(self, send: c.Send) -> None:
        queue = self.state.queues.get(send.queue)
        if (
            queue is not None
            and queue.applied is None
            and not (send.xid or send.redrives or queue.dedups)
        ):
            self._transitions.enter(queue, send)  # the usual case
        elif send.xid:
            self._transactions.send(send)
        else:
            self._addresses.send(send)

    def _ack(self, ack: c.Ack) -> None:
        if ack.xid:
            self._transactions.ack(ack)
        else:
            self._consumers.ack(ack)

    # --- finding a queue -------------------------------------------------------------------------

    def _find(self, name: str) -> Queue:
        """Load a queue for `Transitions.queue`, and check it on its first use."""
        # Not whenever a queue is decoded: how long it stays decoded must change nothing (R102).
        of = address_of(name)
        address = self.state.address(of) if of else None
        if address is not None and name not in address.members:
            self._addresses.find(address.name)
        queue = self.state.queue(name)
        if queue is None:
            raise CommandRefused(
                Refusal.UNKNOWN_QUEUE, name, f"no queue {name!r} in this partition"
            )
        if queue.applied is not None:
            self._check_after_decoding(queue)
            self._consumers.watch_leases(queue)
        return queue

    def _check_after_decoding(self, queue: Queue) -> None:
        """Apply a new configuration (R90), and drop what a crash has taken (R82)."""
        applied = queues.mark_checked(queue)
        now = queue.set_fields
        bodyless = queue.bodyless()
        if now == applied and not bodyless:
            return
        self.state.use(queue)
        self._transitions.split_step()
        self._transitions.lose(queue, bodyless)
        if now == applied:
            return
        if queue.sequence or queue.orders:
            changed = {name for name in {*now, *applied} if now.get(name) != applied.get(name)}
            fields = {name: getattr(queue.spec, name) for name in sorted(changed)}
            self._transitions.out.append(e.Configured(queue.name, fields, False))
        self._operator.fit(queue)

    # --- time ------------------------------------------------------------------------------------

    def _sweep(self, sweep: c.Sweep) -> None:
        """Do what is due, queue by queue, the earliest first (R12, R13, R32, R50, R110)."""
        if self._next_due() is None:
            raise Idle
        now = self._transitions.now
        heard_ms = now if sweep.heard_ms is None else min(sweep.heard_ms, now)
        args = (limits.SWEEP_AT_ONCE, sweep.heard_since_ms, heard_ms)
        self._transitions.perform(Stage(SWEEP, "", args))

    def _sweep_stage(self, stage: Stage) -> None:
        """Do as much of that as fits into this transaction (R114).

        The stage names the queue that it has begun with, and how many transitions may follow.
        """
        name, (budget, *times) = stage.queue, stage.args
        heard = Heard(*times)
        while name or budget > 0:
            if name:
                queue = self._transitions.queue(name)
                self.state.use(queue)
            elif (due := self._next_due()) is not None:
                queue = due
                budget -= 1 + self._let_time_act(queue, budget)
            else:
                return
            budget -= self._end_silent(queue, heard, budget)
            if self._transitions.stages:
                self._transitions.stages.append(Stage(SWEEP, queue.name, (budget, *times)))
                return
            self._plan_next_wake(queue)
            name = ""

    def _next_due(self) -> Queue | None:
        key = self.state.wakes.first_key()
        if key is None or key[0] > self._transitions.now:
            return None
        return self._transitions.queue(key[1])

    def _let_time_act(self, queue: Queue, budget: int) -> int:
        """Expire messages and make others due; returns how many transitions that took.

        Not through the funnel: both share the budget.
        """
        self.state.use(queue)
        queues.clear_wake(self.state, queue)
        done = self._transitions.expire(queue, budget)
        return done + self._transitions.come_due_until(queue, budget - done)

    def _end_silent(self, queue: Queue, heard: Heard, budget: int) -> int:
        """End what silence ends, until the transaction is full; how many (R12, R13)."""
        done = 0
        for consumer in list(queue.consumers.values()):
            if self._transitions.stages:
                break
            done += self._consumers.end_silent(queue, consumer, heard, budget - done)
        return done

    def _plan_next_wake(self, queue: Queue) -> None:
        now = self._transitions.now
        deadlines = [self._consumers.deadline(queue, each) for each in queue.consumers.values()]
        # Who is overdue and still attached may have spoken unheard: look again, but not at once.
        times = [at if at > now else now + limits.UNHEARD_RECHECK_MS for at in deadlines if at]
        is_timed = not queue.policy.expires_when_met
        for table in (queue.expiry, queue.scheduled) if is_timed else (queue.scheduled,):
            key = table.first_key()
            times.append(0 if key is None else time_of(key))
        if found := [at for at in times if at]:
            self._transitions.wake_by(queue, min(found))


def _refusal_of(unfinished: Unfinished) -> e.Refused | None:
    if not unfinished.refusal:
        return None
    queue, reason, about, text = unfinished.refusal
    return e.Refused(queue, Refusal(reason), about, text)


def _queue_of(command: c.Command) -> str:
    """The queue that a command names; empty: none."""
    return getattr(command, "queue", "")
