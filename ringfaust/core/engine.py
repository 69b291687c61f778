"""The state machine of one partition: which command goes where, and what time brings.

What becomes of a message is decided in `ring`. A handler refuses its command before
it changes anything, and `step` returns the refusal (R103).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.commands.addresses import Addresses
from ringfaust.core.commands.consumers import Consumers
from ringfaust.core.commands.operator import Operator
from ringfaust.core.commands.transactions import Transactions
from ringfaust.core.model import Refusal, time_of
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import Idle, Refused
from ringfaust.core.state import State
from ringfaust.core.transitions import Transitions


class Step(NamedTuple):
    """The result of one command."""

    effects: list[e.Effect]
    """What happened, in order. A `Refused` among them concerns one send of several (R80, R81)."""
    refusal: e.Refused | None
    """Why the command as a whole was refused; it has changed nothing then (R103)."""

    @property
    def all_effects(self) -> list[e.Effect]:
        """The effects, followed by the refusal if there is one."""
        return self.effects if self.refusal is None else [*self.effects, self.refusal]


class Engine:
    """See the head of this file."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._ring = ring = Transitions(state, self._find)
        self._consumers = consumers = Consumers(ring)
        self._operator = operator = Operator(ring, consumers)
        self._addresses = addresses = Addresses(ring, consumers, operator)
        self._transactions = transactions = Transactions(ring, consumers, addresses)
        self._handlers: dict[type, Callable[[Any], Any]] = {
            c.Send: self._send,
            c.Attach: consumers.attach,
            c.Subscribe: addresses.subscribe,
            c.Credit: consumers.credit,
            c.Heartbeat: consumers.heartbeat,
            c.Ack: self._ack,
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

    def step(self, command: c.Command, now_ms: int) -> Step:
        """Execute one command at the given time; a time before the last one counts as that (R102).

        A refusal is part of the result and never raised (R103).
        """
        state, ring = self.state, self._ring
        ring.before_ms = state.now_ms
        state.now_ms = ring.now = max(now_ms, state.now_ms)
        state.step += 1
        out: list[e.Effect] = []
        ring.out = out
        refusal = None
        try:
            self._handlers[type(command)](command)
        except (Refused, Idle) as no:
            # Nothing of it becomes durable, so nothing of it may stay in memory either.
            state.step -= 1
            state.now_ms = ring.before_ms
            if isinstance(no, Refused):
                name = getattr(command, "queue", "")
                refusal = e.Refused(name, no.reason, no.about, no.text)
        if self._consumers.to_auto_delete:
            self._addresses.auto_delete()
        return Step(out, refusal)

    def blocker(self, send: c.Send) -> str | None:
        """The queue for which this send is not to be pulled now, or None (R60, R61, R90)."""
        if send.xid:
            return None
        address = self.state.address(send.queue)
        names = [send.queue] if address is None else address.members
        return next((name for name in names if not self.is_pulled(name)), None)

    def is_pulled(self, queue: str) -> bool:
        """Are its sends pulled now? Also those for a queue that is not there: to be refused."""
        found = self.state.queue(queue)
        if found is None:
            return True
        is_blocked = found.spec.when_full == "block" and found.is_full()
        if is_blocked and (
            gone := self._ring.bodyless(found)
        ):  # when anything meets the queue (R82)
            is_blocked = found.is_full(without=gone)
        return not is_blocked and "pulling" not in found.paused

    # --- commands that go two ways ---------------------------------------------------------------

    def _send(self, send: c.Send) -> None:
        queue = self.state.queues.get(send.queue)
        if queue is not None and queue.applied is None and not (send.xid or send.redrives):
            self._ring.enter(queue, send)  # as nearly all do
        elif send.xid:
            self._transactions.send(send)
        else:
            self._addresses.send(send)

    def _ack(self, ack: c.Ack) -> None:
        if ack.xid:
            self._transactions.ack(ack)
        else:
            self._consumers.ack(ack)

    # --- finding ---------------------------------------------------------------------------------

    def _find(self, name: str) -> Queue:
        """See `Transitions.queue`."""
        # Not whenever its queue is decoded anew: how long one stays decoded must change nothing.
        address = self.state.address(address_of(name))
        if address is not None and name not in address.members:
            self._addresses.find(address.name)
        queue = self.state.queue(name)
        if queue is None:
            raise Refused(Refusal.UNKNOWN_QUEUE, name, f"no queue {name!r} in this partition")
        if queue.applied is not None:
            self._meet(queue, queue.applied)
        return queue

    def _meet(self, queue: Queue, applied: Mapping[str, object]) -> None:
        """It is met for the first time since it was decoded.

        Its configuration may be new (R90), a crash may have taken what was not persistent (R82).
        """
        queue.applied = None
        now = queue.spec.set_fields()
        bodyless = self._ring.bodyless(queue)
        if now == applied and not bodyless:
            return
        self.state.use(queue)
        self._ring.step_apart()
        self._ring.lose(queue, bodyless)
        if now == applied:
            return
        if queue.sequence or queue.orders:
            changed = {name for name in {*now, *applied} if now.get(name) != applied.get(name)}
            fields = {name: getattr(queue.spec, name) for name in sorted(changed)}
            self._ring.out.append(e.Configured(queue.name, fields, False))
        self._operator.fit(queue)

    # --- time ------------------------------------------------------------------------------------

    def _sweep(self, _: c.Sweep) -> None:
        """R32, queue by queue in the order of what is due first."""
        budget = limits.SWEEP_AT_ONCE
        wakes, now = self.state.wakes, self._ring.now
        first = wakes.first_key()
        if first is None or first[0] > now:
            raise Idle
        while budget > 0 and (key := wakes.first_key()) is not None and key[0] <= now:
            queue = self._ring.queue(key[1])
            self.state.use(queue)
            wakes.delete((queue.wake_ms, queue.name))
            queue.wake_ms = 0
            budget -= 1 + self._sweep_queue(queue, budget)
            self._wake_again(queue)

    def _sweep_queue(self, queue: Queue, budget: int) -> int:
        """What time brought to one queue; how much that was."""
        done = self._ring.expire(queue, budget)
        while done < budget:
            due = queue.due_together(self._ring.now)
            if not due:
                break
            for message in due:
                queue.unschedule(message)
            self._ring.come_due(queue, due)
            done += len(due)
        for consumer in list(queue.consumers.values()):
            deadline = self._consumers.deadline(queue, consumer)
            if deadline and deadline <= self._ring.now:
                self._consumers.part(queue, consumer, timeout=True)
                done += 1
        return done

    def _wake_again(self, queue: Queue) -> None:
        """After a sweep: when is the next thing to do?"""
        times = [self._consumers.deadline(queue, each) for each in queue.consumers.values()]
        for table in (queue.scheduled,) if queue.as_artemis else (queue.expiry, queue.scheduled):
            key = table.first_key()
            times.append(0 if key is None else time_of(key))
        if found := [at for at in times if at]:
            self._ring.wake_by(queue, min(found))
