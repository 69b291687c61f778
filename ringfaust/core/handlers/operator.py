"""The commands of an operator: queues and their settings, pauses, single messages (R34, R90)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.handlers.consumers import Consumers
from ringfaust.core.model import EvictReason, Message, Refusal
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import CommandRefused, bad
from ringfaust.core.transitions import Transitions, queues, send_of
from ringfaust.errors import BadSetting


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
        self._transitions.run(queue, self._fit, dispatches=False)
        if queue.has_open_consumer():  # else Artemis does not look at an expired head
            self._transitions.dispatch(queue)

    def _fit(self, queue: Queue) -> None:
        spec = queue.spec
        if spec.shrink == "eager" and spec.ring_size >= 0:
            while queue.counts.ready > spec.ring_size:
                self._transitions.evict(queue, queue.lowest(), EvictReason.SHRINK, "")
        self._consumers.fit_window(queue)
        self._consumers.promote(queue)
        for consumer in queue.consumers.values():
            if deadline := self._consumers.deadline(queue, consumer):
                self._transitions.wake_by(queue, deadline)

    def delete_queue(self, delete: c.DeleteQueue) -> None:
        """Delete a queue on request (R90)."""
        queue = self._existing(delete.queue)
        if any(delivery.xid for _, delivery in queue.deliveries):
            text = "a distributed transaction has settled deliveries of it; decide that first"
            raise bad(queue.name, text)
        self.delete(queue)

    def delete(self, queue: Queue) -> None:
        """Detach all consumers, evict or remove all messages, then delete the queue (R70, R90)."""
        queues.pause(queue, "dispatch")
        self._transitions.run(queue, self._empty)
        queues.clear_wake(self._state, queue)
        queue.check()
        self._transitions.out.append(e.Deleted(queue.name, queue.counts.as_dict()))
        queues.delete(self._state, queue)

    def _empty(self, queue: Queue) -> None:
        for consumer in list(queue.consumers.values()):
            self._consumers.part(queue, consumer, timeout=False)
        self._transitions.evict_all(queue)
        while (row := queue.scheduled.first()) is not None:
            self._transitions.remove(queue, row[1])

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
        self._transitions.run(queue, self._transitions.evict_all)

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
        queue, message = self._waiting(remove.queue, remove.message)
        self._state.use(queue)
        self._transitions.remove(queue, message)

    def move(self, move: c.Move) -> None:
        """Move a ready or scheduled message: it is sent to the other queue now, as new (R90)."""
        target, now = self._transitions.queue(move.to), self._transitions.now
        queue, message = self._waiting(move.queue, move.message)
        due_ms = message.due_ms if message.due_ms > now else 0
        send = send_of(message, target.name, now, due_ms)
        if refusal := self._transitions.refusal(target, send):
            raise CommandRefused(refusal, message.id, f"queue {target.name!r} would refuse it")
        self._state.use(queue)
        self._transitions.move_out(queue, message, target)
        self._transitions.enter(target, send)

    def cancel_scheduled(self, cancel: c.CancelScheduled) -> None:
        """Remove a scheduled message (R34)."""
        queue = self._existing(cancel.queue)
        message = self._scheduled(queue, cancel.message)
        self._state.use(queue)
        self._transitions.remove(queue, message)

    def deliver_now(self, deliver: c.DeliverNow) -> None:
        """Make a scheduled message due now (R31, R34)."""
        queue = self._existing(deliver.queue)
        message = self._scheduled(queue, deliver.message)
        run, change = self._transitions.run, self._transitions.deliver_now
        run(queue, change, message, dispatches=False)  # `come_due` has dispatched

    def _scheduled(self, queue: Queue, message_id: str) -> Message:
        for _, message in queue.scheduled:
            if message.id == message_id:
                return message  # type: ignore[no-any-return]
        raise bad(message_id, "no scheduled message has that id")

    def _waiting(self, queue_name: str, message_id: str) -> tuple[Queue, Message]:
        """A ready message with that id, else a scheduled one."""
        queue = self._existing(queue_name)
        for message in queue.in_order():
            if message.id == message_id:
                return queue, message
        try:
            return queue, self._scheduled(queue, message_id)
        except CommandRefused:
            raise bad(message_id, "no ready or scheduled message has that id") from None
