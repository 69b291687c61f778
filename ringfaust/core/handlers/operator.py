"""The commands of an operator: queues and their settings, pauses, single messages (R34, R90)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.handlers.consumers import Consumers
from ringfaust.core.model import EvictReason, Message, Refusal, Stage
from ringfaust.core.queue import SCHEDULED, Queue
from ringfaust.core.refusal import CommandRefused, bad
from ringfaust.core.transitions import Transitions, queues, send_of
from ringfaust.errors import BadSetting

FIT, DELETE, PURGE = "fit", "delete", "purge"
REMOVE, MOVE, CANCEL, DELIVER_NOW = "remove", "move", "cancel_scheduled", "deliver_now"
"""Stages of commands (R114)."""

_NOT_FOUND = {
    REMOVE: "no ready or scheduled message has that id",
    MOVE: "no ready or scheduled message has that id",
    CANCEL: "no scheduled message has that id",
    DELIVER_NOW: "no scheduled message has that id",
}


class Operator:
    """Handles the commands that change a queue while it runs."""

    def __init__(self, transitions: Transitions, consumers: Consumers) -> None:
        self._transitions = transitions
        self._state = transitions.state
        self._consumers = consumers

    # --- queues ----------------------------------------------------------------------------------

    def create_queue(self, create: c.CreateQueue) -> Queue:
        """Create a queue that is not declared (R90)."""
        name = create.queue
        if not name or len(name) > limits.NAME_CHARS:
            raise bad(name, f"a queue's name has from 1 to {limits.NAME_CHARS} characters")
        if self._state.queue(name) is not None:
            raise bad(name, "a queue of that name exists; change it with configure")
        try:
            queue = self._state.create(name, dict(create.settings))
        except BadSetting as error:
            raise bad(name, str(error)) from error
        self._state.use(queue)
        queues.mark_checked(queue)
        self._transitions.out.append(e.Configured(name, create.settings, True))
        self._consumers.fit_window(queue)
        return queue

    def configure(self, configure: c.Configure) -> None:
        """Change settings of a queue (R5, R11, R90)."""
        queue = self._transitions.queue(configure.queue)
        settings = {**queue.settings, **configure.settings}
        try:
            spec = self._state.catalog.spec(queue.name, settings)
        except BadSetting as error:
            raise bad(queue.name, str(error)) from error
        queues.configure(queue, settings, spec)
        self._transitions.out.append(e.Configured(queue.name, configure.settings, False))
        self.fit(queue)

    def fit(self, queue: Queue) -> None:
        """Do what changed settings demand at once (R5, R11, R12, R13)."""
        self._state.use(queue)
        self._transitions.expire(queue)
        self._transitions.perform(Stage(FIT, queue.name))

    def fit_stage(self, stage: Stage) -> None:
        """Do as much of that as fits into this transaction (R114)."""
        queue = self._transitions.queue(stage.queue)
        self._state.use(queue)
        is_done = self._shrink(queue) and (queue.dedups or self._transitions.forget_sent(queue))
        if not (is_done and self._consumers.fit_window(queue)):
            self._transitions.stages.append(stage)
            return
        self._consumers.promote(queue)
        self._plan_timeouts(queue)
        if queue.has_open_consumer():  # else Artemis does not look at an expired head
            self._transitions.dispatch(queue)

    def _shrink(self, queue: Queue) -> bool:
        """Trim the ring if it is eager to (R5). False if some of that is left (R114)."""
        spec = queue.spec
        if spec.shrink != "eager" or spec.ring_size < 0:
            return True
        return self._transitions.evict_down_to(queue, spec.ring_size, EvictReason.SHRINK)

    def _plan_timeouts(self, queue: Queue) -> None:
        for consumer in queue.consumers.values():
            if deadline := self._consumers.deadline(queue, consumer):
                self._transitions.wake_by(queue, deadline)

    def delete_queue(self, delete: c.DeleteQueue) -> None:
        """Delete a queue on request (R90)."""
        queue = self._existing(delete.queue)
        if any(delivery.xid for _, delivery in queue.deliveries):
            text = "a distributed transaction has settled deliveries of it; decide that first"
            raise bad(queue.name, text)
        self._state.use(queue)
        self._transitions.expire(queue)
        self._transitions.perform(Stage(DELETE, queue.name))

    def delete(self, queue: Queue) -> bool:
        """Detach all consumers, evict or remove all messages, then delete the queue (R70, R90).

        Returns:
            False if the transaction is full before that (R114).
        """
        self._state.use(queue)
        queues.pause(queue, "dispatch")
        if not self._empty(queue):
            return False
        queues.clear_wake(self._state, queue)
        queue.check()
        self._transitions.out.append(e.Deleted(queue.name, queue.counts.as_dict()))
        queues.delete(self._state, queue)
        return True

    def _empty(self, queue: Queue) -> bool:
        for consumer in list(queue.consumers.values()):
            if not self._consumers.leave(queue, consumer, timeout=False):
                return False
        if not self._transitions.evict_down_to(queue, 0, EvictReason.PURGE):
            return False
        while (row := queue.scheduled.first()) is not None:
            if not self._transitions.has_room:
                return False
            self._transitions.spend(row[1].size_bytes)
            self._transitions.remove(queue, row[1])
        return self._transitions.forget_sent(queue)

    def pause(self, pause: c.Pause) -> None:
        """Pause pulling or dispatch (R90). Nothing can be dispatched after it: no funnel."""
        queue = self._pausable(pause)
        self._state.use(queue)
        queues.pause(queue, pause.what)
        self._transitions.out.append(e.Paused(queue.name, pause.what, True))

    def resume(self, resume: c.Resume) -> None:
        """Resume pulling or dispatch (R90)."""
        # It is resumed at that moment, before anything expires.
        self._existing(resume.queue)
        self._transitions.run(self._pausable(resume), self._resume, resume.what, is_first=True)

    def _resume(self, queue: Queue, what: str) -> None:
        queues.resume(queue, what)
        self._transitions.out.append(e.Paused(queue.name, what, False))

    def _pausable(self, command: c.Pause | c.Resume) -> Queue:
        queue = self._transitions.queue(command.queue)
        if command.what not in ("pulling", "dispatch"):
            raise bad(command.what, "only pulling or dispatch can be paused")
        return queue

    def purge(self, purge: c.Purge) -> None:
        """Evict the ready messages, lowest position first (R90)."""
        queue = self._existing(purge.queue)
        self._state.use(queue)
        self._transitions.expire(queue)
        self._transitions.perform(Stage(PURGE, queue.name))

    def purge_stage(self, stage: Stage) -> None:
        """Evict as many as fit into this transaction (R114)."""
        queue = self._transitions.queue(stage.queue)
        self._state.use(queue)
        if not self._transitions.evict_down_to(queue, 0, EvictReason.PURGE):
            self._transitions.stages.append(stage)

    def _existing(self, name: str) -> Queue:
        """The queue, to act on what it has. A queue that never existed has nothing (R90, R103)."""
        state = self._state
        if not address_of(name) and state.catalog.declares(name) and not state.exists(name):
            text = f"queue {name!r} was never used; only a pattern declares it"
            raise CommandRefused(Refusal.UNKNOWN_QUEUE, name, text)
        return self._transitions.queue(name)

    # --- single messages -------------------------------------------------------------------------

    # An operator names a message as it was listed. Remove, move and cancel skip the funnel:
    # what has expired can still be taken out, and no credit is freed, so nothing can be dispatched.

    def remove(self, remove: c.Remove) -> None:
        """Remove a ready or scheduled message (R90)."""
        self._find(REMOVE, remove.queue, remove.message)

    def move(self, move: c.Move) -> None:
        """Move a ready or scheduled message: it is sent to the other queue now, as new (R90)."""
        self._transitions.queue(move.to)
        self._find(MOVE, move.queue, move.message, move.to)

    def cancel_scheduled(self, cancel: c.CancelScheduled) -> None:
        """Remove a scheduled message (R34)."""
        self._find(CANCEL, cancel.queue, cancel.message)

    def deliver_now(self, deliver: c.DeliverNow) -> None:
        """Make a scheduled message due now (R31, R34)."""
        self._find(DELIVER_NOW, deliver.queue, deliver.message)

    def _find(self, kind: str, queue_name: str, message_id: str, to: str = "") -> None:
        """Look for the message: among the ready ones, unless it must be scheduled."""
        queue = self._existing(queue_name)
        level = SCHEDULED if kind in (CANCEL, DELIVER_NOW) else 0
        self._transitions.perform(Stage(kind, queue.name, (message_id, level, None, to)))

    def find_stage(self, stage: Stage) -> None:
        """Look at as many messages as fit into this transaction, and act on the one (R114)."""
        message_id, level, after, to = stage.args
        queue = self._transitions.queue(stage.queue)
        while True:
            for key, message in queue.table_of(level).walk(after):
                if not self._transitions.has_room:
                    args = (message_id, level, after, to)
                    self._transitions.stages.append(stage._replace(args=args))
                    return
                self._transitions.spend(message.size_bytes)
                after = key
                if message.id == message_id:
                    self._found(stage.kind, queue, message, to)
                    return
            if level == SCHEDULED:
                raise bad(
                    message_id, _NOT_FOUND.get(stage.kind, "no scheduled message has that id")
                )
            level, after = level + 1 if level + 1 < limits.PRIORITIES else SCHEDULED, None

    def _found(self, kind: str, queue: Queue, message: Message, to: str) -> None:
        if kind == DELIVER_NOW:
            run, change = self._transitions.run, self._transitions.deliver_now
            run(queue, change, message, dispatches=False)  # `come_due` has dispatched
        elif kind == MOVE:
            self._move(queue, message, self._transitions.queue(to))
        else:
            self._state.use(queue)
            self._transitions.remove(queue, message)

    def _move(self, queue: Queue, message: Message, target: Queue) -> None:
        now = self._transitions.now
        due_ms = message.due_ms if message.due_ms > now else 0
        send = send_of(message, target.name, now, due_ms)
        if refusal := self._transitions.refusal(target, send):
            raise CommandRefused(refusal, message.id, f"queue {target.name!r} would refuse it")
        self._state.use(queue)
        self._transitions.move_out(queue, message, target)
        self._transitions.enter(target, send)
