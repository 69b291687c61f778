"""Every transition of a message. If a line decides what happens to a message, it is in this file.

Rules of this file
------------------
1. Everything that affects a message's state is decided here and nowhere else; `queue` only does it.
2. No clock, no random, no I/O, no bytes, no Kafka: `step(command, now)` and what it read before
   decide all of it, so the same commands with the same times give the same state (R102).
3. A refusal is an effect, never an exception; it leaves before anything is changed (R103).

Theory of operation
-------------------
A message is *scheduled*, *ready* or *delivering*; then it is gone: acked, evicted, expired, dead,
removed or moved out. Each of the functions below is one arrow of that graph::

    send ──> scheduled ──due──> ready ──hand over──> delivering ──ack──> gone
      └────────────────────────^  ^────────give back─────┘

After each command no ready message is left that some consumer could take. So a send only has to
offer the message it brought, and only what gives credit back looks at the whole ring.

Within one command the order is always: expire what is past its time, do what is asked, dispatch,
test the ring. Rule numbers (R…) are those of docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from zlib import crc32

from ringfaust.core import command as c
from ringfaust.core import effect as e
from ringfaust.core import limits
from ringfaust.core.model import (
    AckMode,
    Consumer,
    DeadReason,
    Delivery,
    EvictReason,
    Message,
    Refusal,
    due_position,
    plain_position,
    time_of,
)
from ringfaust.core.queue import Queue
from ringfaust.core.state import State
from ringfaust.errors import BadSetting

WINDOW = "@window"
"""Name of the consumer that stands for a managed window (R12)."""


class _Refused(Exception):
    """Carries a refusal out of a command that has changed nothing yet."""

    def __init__(self, reason: Refusal, about: str, text: str) -> None:
        self.reason = reason
        self.about = about
        self.text = text


class _Idle(Exception):
    """There was nothing to do, so no step was made."""


class Engine:
    """The state machine of one partition."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._now = state.now_ms
        self._before_ms = state.now_ms
        self._out: list[e.Effect] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            c.Send: self._send,
            c.Attach: self._attach,
            c.Credit: self._credit,
            c.Heartbeat: self._heartbeat,
            c.Ack: self._ack,
            c.Release: self._release,
            c.Reject: self._reject,
            c.Detach: self._detach,
            c.Recover: self._recover,
            c.Rollback: self._rollback,
            c.CreateQueue: self._create_queue,
            c.Configure: self._configure,
            c.DeleteQueue: self._delete_queue,
            c.Pause: self._pause,
            c.Resume: self._resume,
            c.Purge: self._purge,
            c.Remove: self._remove,
            c.Move: self._move,
            c.CancelScheduled: self._cancel_scheduled,
            c.DeliverNow: self._deliver_now,
            c.Sweep: self._sweep,
        }

    def step(self, command: c.Command, now_ms: int) -> list[e.Effect]:
        """Do one command at a time that never goes back; what happened, in order."""
        state = self.state
        self._before_ms = state.now_ms
        state.now_ms = max(now_ms, state.now_ms)
        self._now = state.now_ms
        state.step += 1
        out: list[e.Effect] = []
        self._out = out
        try:
            self._handlers[type(command)](command)
        except (_Refused, _Idle) as no:
            # Nothing of it becomes durable, so nothing of it may stay in memory either.
            state.step -= 1
            state.now_ms = self._before_ms
            if isinstance(no, _Refused):
                name = getattr(command, "queue", "")
                out.append(e.Refused(name, no.reason, no.about, no.text))
        return out

    # --- sending ---------------------------------------------------------------------------------

    def _send(self, send: c.Send) -> None:
        """R2, R30, R33, R50."""
        state = self.state
        queue = state.queues.get(send.queue)
        if queue is None or queue.applied is not None:
            queue = self._queue(send.queue)
        state.use(queue)
        now = self._now
        if queue.expiring:
            self._expire(queue)
        queue.sequence = sequence = queue.sequence + 1
        queue.counts.added += 1
        due_ms = send.due_ms if send.due_ms > now else 0
        message = Message(
            send.id, sequence, 0 if due_ms else plain_position(sequence), send.priority,
            send.sent_ms, send.expires_at_ms, due_ms, send.group, 0, 0, (), send.size_bytes,
            send.payload,
        )  # fmt: skip
        if send.expires_at_ms:
            if send.expires_at_ms <= now:
                self._out.append(e.Added(queue.name, message))
                self._expired(queue, message)
                return
            self._wake_by(queue, send.expires_at_ms)
        if due_ms:
            queue.schedule(message)
            self._out.append(e.Scheduled(queue.name, message))
            self._wake_by(queue, due_ms)
            return
        queue.place(message)
        self._out.append(e.Added(queue.name, message))
        if queue.consumers and self._offer(queue, message):
            return
        ring_size = queue.spec.ring_size
        if 0 <= ring_size < queue.counts.ready:
            self._evict(queue, queue.victim(), EvictReason.OVERFLOW, message.id)

    # --- delivering ------------------------------------------------------------------------------

    def _offer(self, queue: Queue, message: Message) -> bool:
        """Hand this ready message over if anybody can take it. True: it went."""
        if "dispatch" in queue.paused or (consumer := queue.taker(message)) is None:
            return False
        self._hand_over(queue, message, consumer)
        return True

    def _dispatch(self, queue: Queue) -> None:
        """Hand over what can go, in delivery order; what cannot blocks nobody (R14)."""
        if "dispatch" in queue.paused or not queue.counts.ready or not queue.has_open_consumer():
            return
        for message in queue.in_order():
            if 0 < message.expires_at_ms <= self._now:  # more than one sweep takes (R50)
                queue.unplace(message)
                self._expired(queue, message)
                continue
            consumer = queue.taker(message)
            if consumer is not None:
                self._hand_over(queue, message, consumer)
                if not queue.has_open_consumer():
                    return

    def _hand_over(self, queue: Queue, message: Message, consumer: Consumer) -> None:
        """One ready message goes to one consumer (R10, R11, R14, R24)."""
        queue.unplace(message)
        if message.group and queue.owner(message.group) is None:
            queue.groups.put(message.group, consumer.order)
        queue.count_turn(consumer)
        holders = tuple(name for name in message.holders if name != consumer.name)
        holders = (*holders[1 - limits.HOLDERS :], consumer.name)
        message = message._replace(
            attempts=message.attempts + 1, handovers=message.handovers + 1, holders=holders
        )
        self.state.deliveries = number = self.state.deliveries + 1
        delivery = Delivery(number, consumer.name, message, self._now)
        self._out.append(e.Dispatched(queue.name, delivery))
        if consumer.ack_mode is AckMode.NONE:
            queue.counts.acked += 1
            queue.ledger.remember(consumer.name, message.id)
            self._out.append(e.Acked(queue.name, delivery))
        else:
            queue.hand_over(delivery, consumer)

    # --- settling --------------------------------------------------------------------------------

    def _ack(self, ack: c.Ack) -> None:
        """R16. Mode `client` covers all that was delivered before, in the whole session."""
        queue, delivery = self._settled(ack)
        consumer = queue.consumers[delivery.consumer]
        if consumer.ack_mode is not AckMode.CLIENT:
            self._acked(queue, delivery)
            self._dispatch(queue)
            return
        covered: list[tuple[int, Queue, Delivery]] = []
        for other_queue, other in self._companions(queue, consumer):
            for held in other_queue.held_by(other):
                if held.number <= delivery.number:
                    covered.append((held.number, other_queue, held))
        touched = dict.fromkeys(other_queue for _, other_queue, _ in covered)
        for other_queue in touched:
            self._expire(other_queue)
        for _, other_queue, held in sorted(covered, key=lambda entry: entry[0]):
            self._acked(other_queue, held)
        for other_queue in touched:
            self._dispatch(other_queue)

    def _acked(self, queue: Queue, delivery: Delivery) -> None:
        self._end(queue, delivery)
        queue.counts.acked += 1
        self._out.append(e.Acked(queue.name, delivery))

    def _release(self, release: c.Release) -> None:
        """R23: a returning set of one."""
        if release.delay_ms is not None and not 0 <= release.delay_ms <= limits.TIME_MS:
            raise _bad(release.message, f"delay_ms must be 0 or more, not {release.delay_ms}")
        queue, delivery = self._settled(release)
        self._give_back(queue, [delivery], delayed=True, delay_ms=release.delay_ms)
        self._dispatch(queue)

    def _reject(self, reject: c.Reject) -> None:
        """R41."""
        queue, delivery = self._settled(reject)
        self._end(queue, delivery)
        self._dead(queue, delivery, DeadReason.REJECTED, reject.text)
        self._dispatch(queue)

    def _settled(self, settle: c.Ack | c.Release | c.Reject) -> tuple[Queue, Delivery]:
        """The delivery that is meant, or the refusal that R103 names."""
        queue = self._queue(settle.queue)
        consumer = queue.consumers.get(settle.consumer)
        numbers = consumer.held.get(settle.message, ()) if consumer else ()
        if not numbers or (settle.delivery and settle.delivery not in numbers):
            reason = queue.ledger.judge(settle.consumer, settle.message)
            raise _Refused(reason, settle.message, _NO_DELIVERY[reason])
        assert consumer is not None
        self._alive(queue, consumer)
        if queue.expiring:
            self._expire(queue)
        delivery = queue.deliveries.get(settle.delivery or numbers[0])
        assert delivery is not None
        return queue, delivery

    def _end(self, queue: Queue, delivery: Delivery) -> None:
        queue.end(delivery)
        queue.ledger.remember(delivery.consumer, delivery.message.id)

    # --- coming back -----------------------------------------------------------------------------

    def _give_back(
        self,
        queue: Queue,
        deliveries: Iterable[Delivery],
        *,
        delayed: bool,
        delay_ms: int | None = None,
        clean: bool = False,
    ) -> None:
        """The returning set, newest first (R20-R24, R40). The caller dispatches when it is placed.

        `delayed`: a redelivery delay applies. `clean`: the attempt is taken back (a clean detach).
        """
        self._expire(queue)
        spec = queue.spec
        for held in sorted(deliveries, key=lambda d: d.message.position, reverse=True):
            self._end(queue, held)
            message = held.message
            if clean:
                message = message._replace(attempts=message.attempts - 1)
            delivery = held._replace(message=message)
            if 0 <= spec.max_attempts <= message.attempts:
                self._dead(queue, delivery, DeadReason.UNDELIVERABLE, "")
                continue
            if message.expires_at_ms and message.expires_at_ms <= self._now:
                self._expired(queue, message, held.number)
                continue
            wait_ms = 0
            if delayed:
                wait_ms = _redelivery_delay(queue, message) if delay_ms is None else delay_ms
            if wait_ms:
                message = message._replace(due_ms=self._now + wait_ms)
                queue.schedule(message)
                self._wake_by(queue, message.due_ms)
                self._out.append(e.Returned(queue.name, delivery, message, message.due_ms))
            elif spec.ring_size < 0 or queue.counts.ready < spec.ring_size:
                queue.place(message)
                self._out.append(e.Returned(queue.name, delivery, message, 0))
            else:
                self._evicted(queue, message, EvictReason.RETURN_OVERFLOW, "")
            if message.expires_at_ms:
                self._wake_by(queue, message.expires_at_ms)

    # --- leaving ---------------------------------------------------------------------------------

    def _evict(self, queue: Queue, message: Message, reason: EvictReason, cause: str) -> None:
        """A ready message leaves by the ring; an expired one as expired (R3)."""
        queue.unplace(message)
        if message.expires_at_ms and message.expires_at_ms <= self._now:
            self._expired(queue, message)
        else:
            self._evicted(queue, message, reason, cause)

    def _evicted(self, queue: Queue, message: Message, reason: EvictReason, cause: str) -> None:
        """R6. The message stands in no table any more."""
        queue.counts.evicted += 1
        if message.holders:
            queue.ledger.evicted(message.holders, message.id)
        spec = queue.spec
        self._out.append(
            e.Evicted(
                queue.name, message, reason, cause, spec.ring_size, queue.counts.ready,
                self._now, spec.evicted_payload,
            )
        )  # fmt: skip

    def _expire(self, queue: Queue, most: int = limits.SWEEP_AT_ONCE) -> int:
        """All that is past its time leaves, by (time, sequence) (R32, R50). How many left."""
        done = 0
        while done < most and (found := queue.first_expired(self._now)) is not None:
            message, scheduled = found
            if scheduled:
                queue.unschedule(message)
            else:
                queue.unplace(message)
            self._expired(queue, message)
            done += 1
        return done

    def _expired(self, queue: Queue, message: Message, delivery: int = 0) -> None:
        queue.counts.expired += 1
        last_holder = message.holders[-1] if message.holders else ""
        self._out.append(e.Expired(queue.name, message, last_holder, delivery))

    def _dead(self, queue: Queue, delivery: Delivery, reason: DeadReason, text: str) -> None:
        queue.counts.dead += 1
        self._out.append(e.Dead(queue.name, delivery.message, reason, delivery.consumer, text))

    # --- time ------------------------------------------------------------------------------------

    def _sweep(self, _: c.Sweep) -> None:
        """R32, queue by queue in the order of what is due first."""
        budget = limits.SWEEP_AT_ONCE
        wakes = self.state.wakes
        first = wakes.first_key()
        if first is None or first[0] > self._now:
            raise _Idle
        while budget > 0 and (key := wakes.first_key()) is not None and key[0] <= self._now:
            queue = self._queue(key[1])
            self.state.use(queue)
            wakes.delete((queue.wake_ms, queue.name))
            queue.wake_ms = 0
            budget -= 1 + self._sweep_queue(queue, budget)
            self._wake_again(queue)

    def _sweep_queue(self, queue: Queue, budget: int) -> int:
        """What time brought to one queue; how much that was."""
        done = self._expire(queue, budget)
        while done < budget:
            row = queue.scheduled.first() if queue.counts.scheduled else None
            if row is None or time_of(row[0]) > self._now:
                break
            queue.unschedule(row[1])
            self._come_due(queue, row[1])
            done += 1
        for consumer in list(queue.consumers.values()):
            deadline = self._deadline(queue, consumer)
            if deadline and deadline <= self._now:
                self._part(queue, consumer, timeout=True)
                done += 1
        return done

    def _come_due(self, queue: Queue, message: Message) -> None:
        """R31: to its place if the ring has room; then it is offered, before the next is tested."""
        if not message.position:
            position = due_position(message.due_ms, message.sequence)
            message = message._replace(position=position)
        if 0 <= queue.spec.ring_size <= queue.counts.ready:
            if queue.spec.scheduled_when_full == "drop":
                self._evicted(queue, message, EvictReason.SCHEDULED_OVERFLOW, "")
                return
            self._evict(queue, queue.lowest(), EvictReason.SCHEDULED_OVERFLOW, message.id)
        queue.place(message)
        self._out.append(e.Due(queue.name, message))
        self._offer(queue, message)

    def _wake_by(self, queue: Queue, at_ms: int) -> None:
        """The queue has something to do at that time; an earlier wake is kept."""
        if queue.wake_ms:
            if queue.wake_ms <= at_ms:
                return
            self.state.wakes.delete((queue.wake_ms, queue.name))
        queue.wake_ms = at_ms
        self.state.wakes.put_new((at_ms, queue.name), True)

    def _wake_again(self, queue: Queue) -> None:
        """After a sweep: when is the next thing to do?"""
        times = [self._deadline(queue, consumer) for consumer in queue.consumers.values()]
        for table in (queue.expiry, queue.scheduled):
            key = table.first_key()
            times.append(0 if key is None else time_of(key))
        if found := [at for at in times if at]:
            self._wake_by(queue, min(found))

    def _deadline(self, queue: Queue, consumer: Consumer) -> int:
        """When its silence ends its attachment (R13); 0: never."""
        timeout_ms = queue.spec.consumer_timeout
        if not timeout_ms or consumer.name == WINDOW:
            return 0
        return consumer.seen_ms + timeout_ms

    # --- consumers -------------------------------------------------------------------------------

    def _attach(self, attach: c.Attach) -> None:
        """R10, R11."""
        queue = self._queue(attach.queue)
        if attach.consumer == WINDOW:
            raise _bad(WINDOW, "this name stands for a managed window")
        if attach.consumer in queue.consumers:
            raise _bad(attach.consumer, "a consumer of that name is attached; detach it first")
        if not 0 <= attach.credit <= limits.CREDIT:
            raise _bad(attach.consumer, f"credit must be from 0 to {limits.CREDIT}")
        if len(queue.consumers) >= limits.CONSUMERS:
            raise _Refused(Refusal.CONSUMER_LIMIT, attach.consumer, "the queue has no place left")
        spec = queue.spec
        active, backups = self._places(queue)
        is_active = spec.max_active_consumers < 0 or active < spec.max_active_consumers
        if not is_active and backups >= spec.max_backup_consumers:
            text = f"{active} active and {backups} backup consumers are attached: no place left"
            raise _Refused(Refusal.CONSUMER_LIMIT, attach.consumer, text)
        self.state.use(queue)
        queue.orders += 1
        consumer = Consumer(
            attach.consumer, queue.orders, attach.credit, attach.priority, attach.ack_mode,
            attach.session, is_active, self._now,
        )  # fmt: skip
        self._join(queue, consumer)
        self._dispatch(queue)

    def _join(self, queue: Queue, consumer: Consumer) -> None:
        queue.add_consumer(consumer)
        queue.ledger.arrive(consumer.name)
        if consumer.session:
            self.state.session(consumer.session).put_new((queue.name, consumer.name), True)
        if deadline := self._deadline(queue, consumer):
            self._wake_by(queue, deadline)
        self._attached_now(queue, consumer)
        self._expire(queue)

    def _attached_now(self, queue: Queue, consumer: Consumer) -> None:
        self._out.append(e.Attached(queue.name, consumer.name, consumer.active, consumer.priority))

    def _places(self, queue: Queue) -> tuple[int, int]:
        """How many consumers are active, and how many backups."""
        people = [consumer for consumer in queue.consumers.values() if consumer.name != WINDOW]
        active = sum(consumer.active for consumer in people)
        return active, len(people) - active

    def _credit(self, credit: c.Credit) -> None:
        """R10."""
        queue, consumer = self._attached_by_itself(credit)
        if credit.add < 0 or consumer.credit + credit.add > limits.CREDIT:
            raise _bad(consumer.name, f"credit would not stay from 0 to {limits.CREDIT}")
        self._alive(queue, consumer)
        consumer.credit += credit.add
        self._expire(queue)
        self._dispatch(queue)

    def _heartbeat(self, heartbeat: c.Heartbeat) -> None:
        """R13."""
        self._alive(*self._attached(heartbeat))

    def _alive(self, queue: Queue, consumer: Consumer) -> None:
        """It gave a sign of life, and is about to change something."""
        self.state.use(queue)
        consumer.seen_ms = self._now
        queue.save_consumer(consumer)

    def _detach(self, detach: c.Detach) -> None:
        """R20."""
        queue, consumer = self._attached_by_itself(detach)
        self.state.use(queue)
        self._part(queue, consumer, timeout=False)

    def _part(self, queue: Queue, consumer: Consumer, *, timeout: bool) -> None:
        """A consumer leaves; what it held returns; backups take over; then dispatch."""
        self._give_back(queue, queue.held_by(consumer), delayed=False, clean=not timeout)
        queue.drop_consumer(consumer)
        queue.ledger.depart(consumer.name)
        if consumer.session:
            self.state.session(consumer.session).delete((queue.name, consumer.name))
        self._out.append(e.Detached(queue.name, consumer.name, timeout))
        self._promote(queue)
        self._dispatch(queue)

    def _promote(self, queue: Queue) -> None:
        """Backups become active, in attach order, while there is a place (R11)."""
        most = queue.spec.max_active_consumers
        active, _ = self._places(queue)
        for consumer in sorted(queue.consumers.values(), key=lambda consumer: consumer.order):
            if not consumer.active and (most < 0 or active < most):
                consumer.active = True
                active += 1
                queue.save_consumer(consumer)
                self._attached_now(queue, consumer)

    def _recover(self, recover: c.Recover) -> None:
        """R20: it stays, and gives all it holds back."""
        queue, consumer = self._attached(recover)
        self._alive(queue, consumer)
        self._give_back(queue, queue.held_by(consumer), delayed=True)
        self._dispatch(queue)

    def _rollback(self, rollback: c.Rollback) -> None:
        """R80: per queue one set of all that the session's consumers hold."""
        members = list(self.state.session(rollback.session))
        if not members:
            raise _bad(rollback.session, "no consumer is attached in a session of that name")
        by_queue: dict[str, list[str]] = {}
        for (queue_name, consumer_name), _ in members:
            by_queue.setdefault(queue_name, []).append(consumer_name)
        for queue_name, consumers in by_queue.items():
            queue = self._queue(queue_name)
            returning: list[Delivery] = []
            for name in consumers:
                self._alive(queue, queue.consumers[name])
                returning += queue.held_by(queue.consumers[name])
            self._give_back(queue, returning, delayed=True)
            self._dispatch(queue)

    def _companions(self, queue: Queue, consumer: Consumer) -> Iterable[tuple[Queue, Consumer]]:
        """The consumers of its session, or itself alone."""
        if not consumer.session:
            yield queue, consumer
            return
        for (queue_name, name), _ in list(self.state.session(consumer.session)):
            other_queue = self._queue(queue_name)
            self.state.use(other_queue)
            yield other_queue, other_queue.consumers[name]

    # --- the operator ----------------------------------------------------------------------------

    def _create_queue(self, create: c.CreateQueue) -> None:
        """R90."""
        name = create.queue
        if not name or len(name) > limits.NAME_CHARS:
            raise _bad(name, f"a queue's name has from 1 to {limits.NAME_CHARS} characters")
        if self.state.queue(name) is not None:
            raise _bad(name, "a queue of that name exists; change it with configure")
        try:
            queue = self.state.create(name, dict(create.settings))
        except BadSetting as error:
            raise _bad(name, str(error)) from error
        self.state.use(queue)
        queue.applied = None
        self._out.append(e.Configured(name, create.settings, True))
        self._fit_window(queue)

    def _configure(self, configure: c.Configure) -> None:
        """R5, R11, R90."""
        queue = self._queue(configure.queue)
        settings = {**queue.settings, **configure.settings}
        try:
            spec = self.state.catalog.spec(queue.name, settings)
        except BadSetting as error:
            raise _bad(queue.name, str(error)) from error
        self.state.use(queue)
        queue.settings, queue.spec = settings, spec
        self._out.append(e.Configured(queue.name, configure.settings, False))
        self._fit(queue)

    def _fit(self, queue: Queue) -> None:
        """What new settings ask for at once (R5, R11, R12, R13)."""
        spec = queue.spec
        self._expire(queue)
        if spec.shrink == "eager" and spec.ring_size >= 0:
            while queue.counts.ready > spec.ring_size:
                self._evict(queue, queue.lowest(), EvictReason.SHRINK, "")
        self._fit_window(queue)
        self._promote(queue)
        for consumer in queue.consumers.values():
            if deadline := self._deadline(queue, consumer):
                self._wake_by(queue, deadline)
        self._dispatch(queue)

    def _fit_window(self, queue: Queue) -> None:
        """R12: a managed window is a consumer that nobody has to attach."""
        size = queue.spec.window
        consumer = queue.consumers.get(WINDOW)
        if consumer is not None:
            if size:
                consumer.credit = size
                queue.save_consumer(consumer)
            else:
                self._part(queue, consumer, timeout=False)
        elif size:
            queue.orders += 1
            individual = AckMode.INDIVIDUAL
            self._join(
                queue, Consumer(WINDOW, queue.orders, size, 0, individual, "", True, self._now)
            )

    def _delete_queue(self, delete: c.DeleteQueue) -> None:
        """R90: nobody holds anything any more, then nothing is left, then the queue is gone."""
        queue = self._queue(delete.queue)
        self.state.use(queue)
        queue.paused.add("dispatch")
        self._expire(queue)
        for consumer in list(queue.consumers.values()):
            self._part(queue, consumer, timeout=False)
        while queue.counts.ready:
            self._evict(queue, queue.lowest(), EvictReason.PURGE, "")
        while (row := queue.scheduled.first()) is not None:
            queue.unschedule(row[1])
            self._removed(queue, row[1])
        if queue.wake_ms:
            self.state.wakes.delete((queue.wake_ms, queue.name))
            queue.wake_ms = 0
        queue.check()
        self._out.append(e.Deleted(queue.name, queue.counts.as_dict()))
        self.state.delete(queue)

    def _pause(self, pause: c.Pause) -> None:
        """R90."""
        queue = self._pausable(pause)
        queue.paused.add(pause.what)
        self._out.append(e.Paused(queue.name, pause.what, True))

    def _resume(self, resume: c.Resume) -> None:
        """R90."""
        queue = self._pausable(resume)
        queue.paused.discard(resume.what)
        self._out.append(e.Paused(queue.name, resume.what, False))
        self._expire(queue)
        self._dispatch(queue)

    def _pausable(self, command: c.Pause | c.Resume) -> Queue:
        queue = self._queue(command.queue)
        if command.what not in ("pulling", "dispatch"):
            raise _bad(command.what, "what is paused must be pulling or dispatch")
        self.state.use(queue)
        return queue

    def _purge(self, purge: c.Purge) -> None:
        """R90: the ready ones, lowest position first."""
        queue = self._queue(purge.queue)
        self.state.use(queue)
        self._expire(queue)
        while queue.counts.ready:
            self._evict(queue, queue.lowest(), EvictReason.PURGE, "")

    def _remove(self, remove: c.Remove) -> None:
        """R90."""
        queue, message = self._take_out(remove.queue, remove.message)
        self._removed(queue, message)

    def _removed(self, queue: Queue, message: Message) -> None:
        queue.counts.removed += 1
        self._out.append(e.Removed(queue.name, message))

    def _move(self, move: c.Move) -> None:
        """R90: it leaves this queue and is sent to the other, as a new message of that moment."""
        target = self._queue(move.to)
        queue, message = self._take_out(move.queue, move.message)
        queue.counts.moved_out += 1
        self._out.append(e.MovedOut(queue.name, message, target.name))
        due_ms = message.due_ms if message.due_ms > self._now else 0
        self._send(
            c.Send(
                target.name, message.id, self._now, message.priority, due_ms,
                message.expires_at_ms, message.group, message.size_bytes, message.payload,
            )
        )  # fmt: skip

    def _cancel_scheduled(self, cancel: c.CancelScheduled) -> None:
        """R34."""
        queue = self._queue(cancel.queue)
        message = self._scheduled(queue, cancel.message)
        self.state.use(queue)
        queue.unschedule(message)
        self._removed(queue, message)

    def _deliver_now(self, deliver: c.DeliverNow) -> None:
        """R34: its due time becomes now, then R31."""
        queue = self._queue(deliver.queue)
        message = self._scheduled(queue, deliver.message)
        self.state.use(queue)
        self._expire(queue)
        if 0 < message.expires_at_ms <= self._now:  # it left with the others
            return
        queue.unschedule(message)
        self._come_due(queue, message._replace(due_ms=self._now))

    # --- finding ---------------------------------------------------------------------------------

    def _queue(self, name: str) -> Queue:
        queue = self.state.queue(name)
        if queue is None:
            raise _Refused(Refusal.UNKNOWN_QUEUE, name, f"no queue {name!r} in this partition")
        if queue.applied is not None:
            self._reconfigure(queue, queue.applied)
        return queue

    def _reconfigure(self, queue: Queue, applied: Mapping[str, object]) -> None:
        """The queue is met for the first time since the start: its configuration may be new.

        A step of its own, before the one that met it, and not undone if that one is refused.
        """
        queue.applied = None
        now = queue.spec.set_fields()
        if now == applied:
            return
        self.state.use(queue)
        self.state.step += 1
        self._before_ms = self._now
        if queue.sequence or queue.orders:
            changed = {name for name in {*now, *applied} if now.get(name) != applied.get(name)}
            fields = {name: getattr(queue.spec, name) for name in sorted(changed)}
            self._out.append(e.Configured(queue.name, fields, False))
        self._fit(queue)

    def _attached(
        self, command: c.Credit | c.Heartbeat | c.Detach | c.Recover
    ) -> tuple[Queue, Consumer]:
        queue = self._queue(command.queue)
        consumer = queue.consumers.get(command.consumer)
        if consumer is None:
            raise _bad(command.consumer, "no consumer of that name is attached; attach it first")
        return queue, consumer

    def _attached_by_itself(self, command: c.Credit | c.Detach) -> tuple[Queue, Consumer]:
        if command.consumer == WINDOW:
            raise _bad(WINDOW, "a managed window is changed by the queue's setting `window`")
        return self._attached(command)

    def _scheduled(self, queue: Queue, message_id: str) -> Message:
        for _, message in queue.scheduled:
            if message.id == message_id:
                return message  # type: ignore[no-any-return]
        raise _bad(message_id, "no scheduled message has that id")

    def _take_out(self, queue_name: str, message_id: str) -> tuple[Queue, Message]:
        """A ready message of that id, else a scheduled one; taken out of its table."""
        queue = self._queue(queue_name)
        for message in queue.in_order():
            if message.id == message_id:
                self.state.use(queue)
                queue.unplace(message)
                return queue, message
        try:
            message = self._scheduled(queue, message_id)
        except _Refused:
            raise _bad(message_id, "no ready or scheduled message has that id") from None
        self.state.use(queue)
        queue.unschedule(message)
        return queue, message


def _bad(about: str, text: str) -> _Refused:
    return _Refused(Refusal.BAD_COMMAND, about, text)


_NO_DELIVERY = {
    Refusal.BAD_COMMAND: "a consumer of that name never attached to this queue",
    Refusal.UNKNOWN_DELIVERY: "this consumer never had that message, or too long ago",
    Refusal.STALE_DELIVERY: "the delivery has ended: it was settled, or it came back",
    Refusal.EVICTED: "the delivery came back and the message was evicted since",
}


def _redelivery_delay(queue: Queue, message: Message) -> int:
    """R40: delay × multiplier^(attempt−1) ± jitter, capped, in whole ms, rounded down."""
    spec = queue.spec
    if not spec.redelivery_delay:
        return 0
    cap = spec.redelivery_delay_max if spec.redelivery_delay_max >= 0 else limits.TIME_MS // 2
    try:
        growth = spec.redelivery_multiplier ** max(message.attempts - 1, 0)
        delay = spec.redelivery_delay * growth
    except OverflowError:
        return cap
    if spec.redelivery_jitter:
        draw = crc32(f"{message.id}/{message.attempts}".encode()) / 0xFFFFFFFF
        delay *= 1.0 + spec.redelivery_jitter * (2.0 * draw - 1.0)
    return int(min(delay, cap))
