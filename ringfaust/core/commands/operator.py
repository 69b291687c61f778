"""The commands of an operator: queues and their settings, pauses, single messages (R34, R90)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.commands.consumers import Consumers
from ringfaust.core.model import EvictReason, Message
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import Refused, bad
from ringfaust.core.transitions import Transitions, send_of
from ringfaust.errors import BadSetting


class Operator:
    """What may be changed while the partition runs."""

    def __init__(self, ring: Transitions, consumers: Consumers) -> None:
        self._ring = ring
        self._state = ring.state
        self._consumers = consumers

    def create_queue(self, create: c.CreateQueue) -> Queue:
        """R90."""
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
        queue.applied = None
        self._ring.out.append(e.Configured(name, create.settings, True))
        self._consumers.fit_window(queue)
        return queue

    def configure(self, configure: c.Configure) -> None:
        """R5, R11, R90."""
        queue = self._ring.queue(configure.queue)
        settings = {**queue.settings, **configure.settings}
        try:
            spec = self._state.catalog.spec(queue.name, settings)
        except BadSetting as error:
            raise bad(queue.name, str(error)) from error
        self._state.use(queue)
        queue.settings = settings
        queue.set_to(spec)
        self._ring.out.append(e.Configured(queue.name, configure.settings, False))
        self.fit(queue)

    def fit(self, queue: Queue) -> None:
        """What new settings ask for at once (R5, R11, R12, R13)."""
        spec = queue.spec
        self._ring.expire(queue)
        if spec.shrink == "eager" and spec.ring_size >= 0:
            while queue.counts.ready > spec.ring_size:
                self._ring.evict(queue, queue.lowest(), EvictReason.SHRINK, "")
        self._consumers.fit_window(queue)
        self._consumers.promote(queue)
        for consumer in queue.consumers.values():
            if deadline := self._consumers.deadline(queue, consumer):
                self._ring.wake_by(queue, deadline)
        if queue.has_open_consumer():  # else Artemis does not look, though the head has expired
            self._ring.dispatch(queue)

    def delete_queue(self, delete: c.DeleteQueue) -> None:
        """R90."""
        queue = self._ring.queue(delete.queue)
        if any(delivery.xid for _, delivery in queue.deliveries):
            raise bad(queue.name, "a distributed transaction has settled on it; decide that first")
        self.delete(queue)

    def delete(self, queue: Queue) -> None:
        """Nobody holds anything any more, then nothing is left, then the queue is gone."""
        self._state.use(queue)
        queue.paused.add("dispatch")
        self._ring.expire(queue)
        for consumer in list(queue.consumers.values()):
            self._consumers.part(queue, consumer, timeout=False)
        while queue.counts.ready:
            self._ring.evict(queue, queue.lowest(), EvictReason.PURGE, "")
        while (row := queue.scheduled.first()) is not None:
            queue.unschedule(row[1])
            self._ring.removed(queue, row[1])
        if queue.wake_ms:
            self._state.wakes.delete((queue.wake_ms, queue.name))
            queue.wake_ms = 0
        queue.check()
        self._ring.out.append(e.Deleted(queue.name, queue.counts.as_dict()))
        self._state.delete(queue)

    def pause(self, pause: c.Pause) -> None:
        """R90."""
        queue = self._pausable(pause)
        queue.paused.add(pause.what)
        self._ring.out.append(e.Paused(queue.name, pause.what, True))

    def resume(self, resume: c.Resume) -> None:
        """R90."""
        queue = self._pausable(resume)
        queue.paused.discard(resume.what)
        self._ring.out.append(e.Paused(queue.name, resume.what, False))
        self._ring.expire(queue)
        self._ring.dispatch(queue)

    def _pausable(self, command: c.Pause | c.Resume) -> Queue:
        queue = self._ring.queue(command.queue)
        if command.what not in ("pulling", "dispatch"):
            raise bad(command.what, "what is paused must be pulling or dispatch")
        self._state.use(queue)
        return queue

    def purge(self, purge: c.Purge) -> None:
        """R90: the ready ones, lowest position first."""
        queue = self._ring.queue(purge.queue)
        self._state.use(queue)
        self._ring.expire(queue)
        while queue.counts.ready:
            self._ring.evict(queue, queue.lowest(), EvictReason.PURGE, "")

    def remove(self, remove: c.Remove) -> None:
        """R90."""
        queue, message = self._waiting(remove.queue, remove.message)
        self._take_out(queue, message)
        self._ring.removed(queue, message)

    def move(self, move: c.Move) -> None:
        """R90: it leaves this queue and is sent to the other, as a new message of that moment."""
        target, now = self._ring.queue(move.to), self._ring.now
        queue, message = self._waiting(move.queue, move.message)
        due_ms = message.due_ms if message.due_ms > now else 0
        send = send_of(message, target.name, now, due_ms)
        if refusal := self._ring.refusal(target, send):
            raise Refused(refusal, message.id, f"queue {target.name!r} would not take it")
        self._take_out(queue, message)
        self._ring.moved_out(queue, message, target)
        self._ring.enter(target, send)

    def cancel_scheduled(self, cancel: c.CancelScheduled) -> None:
        """R34."""
        queue = self._ring.queue(cancel.queue)
        message = self._scheduled(queue, cancel.message)
        self._state.use(queue)
        queue.unschedule(message)
        self._ring.removed(queue, message)

    def deliver_now(self, deliver: c.DeliverNow) -> None:
        """R34: its due time becomes now, then R31."""
        queue = self._ring.queue(deliver.queue)
        message = self._scheduled(queue, deliver.message)
        self._state.use(queue)
        self._ring.expire(queue)
        if not queue.is_scheduled(message):  # it has expired with the others
            return
        queue.unschedule(message)
        self._ring.come_due(queue, [message._replace(due_ms=self._ring.now)])

    def _scheduled(self, queue: Queue, message_id: str) -> Message:
        for _, message in queue.scheduled:
            if message.id == message_id:
                return message  # type: ignore[no-any-return]
        raise bad(message_id, "no scheduled message has that id")

    def _waiting(self, queue_name: str, message_id: str) -> tuple[Queue, Message]:
        """A ready message of that id, else a scheduled one."""
        queue = self._ring.queue(queue_name)
        for message in queue.in_order():
            if message.id == message_id:
                return queue, message
        try:
            return queue, self._scheduled(queue, message_id)
        except Refused:
            raise bad(message_id, "no ready or scheduled message has that id") from None

    def _take_out(self, queue: Queue, message: Message) -> None:
        self._state.use(queue)
        if queue.is_ready(message):
            queue.unplace(message)
        else:
            queue.unschedule(message)
