"""Every transition of a message. If a line decides what happens to a message, it is in this file.

Rules of this file
------------------
1. Everything that affects a message's state is decided here and nowhere else; `queue` only does it,
   and the commands of `consumers`, `operator`, `addresses` and `transactions` only ask for it.
2. No clock, no random, no I/O, no bytes, no Kafka: the command, its time and what was before decide
   all of it, so the same commands with the same times give the same state (R102).

Theory of operation
-------------------
A message is *scheduled*, *ready* or *delivering*; then it is gone: acked, evicted, expired, dead,
lost, removed or moved out. Each of the methods below is one arrow of that graph::

    enter ──> scheduled ──due──> ready ──hand over──> delivering ──ack──> gone
      └─────────────────────────^  ^────────give back─────┘

After each command no ready message is left that some consumer could take. So a send only has to
offer the message it brought, and only what gives credit back looks at the whole ring.

Within one command the order is always: expire what is past its time, do what is asked, dispatch,
test the ring, then the limits. Rule numbers (R…) are those of docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from zlib import crc32

from ringfaust.core import commands as c
from ringfaust.core import effects as e
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
)
from ringfaust.core.policy import artemis
from ringfaust.core.queue import Queue
from ringfaust.core.state import State


class Transitions:
    """The rings of one partition, and what the step under way has to know."""

    def __init__(self, state: State, find: Callable[[str], Queue]) -> None:
        """`find`: gives a queue that is not decoded, or not met since the start, or refuses."""
        self.state = state
        self.now = state.now_ms
        """Time of the step."""
        self.before_ms = state.now_ms
        """Time before it, to go back to if its command is refused."""
        self.out: list[e.Effect] = []
        """What has happened in it."""
        self._find = find

    def step_apart(self) -> None:
        """What happens next is a step of its own: it stays, even if the command is refused."""
        self.state.step += 1
        self.before_ms = self.now

    def queue(self, name: str) -> Queue:
        """The queue of that name.

        Raises:
            Refused: there is none.
        """
        queue = self.state.queues.get(name)
        return self._find(name) if queue is None or queue.applied is not None else queue

    # --- coming in -------------------------------------------------------------------------------

    def enter(self, queue: Queue, send: c.Send) -> None:
        """A message comes in by a send (R1, R2, R30, R33, R50, R60)."""
        self.state.use(queue)
        now = self.now
        if queue.expiring:
            self.expire(queue)
        if queue.is_limited and (refusal := self.refusal(queue, send)) is not None:
            self._refuse(queue, send, refusal)
            return
        queue.sequence = sequence = queue.sequence + 1
        queue.counts.added += 1
        due_ms = send.due_ms
        if 0 < due_ms <= now and not queue.as_artemis:
            due_ms = 0
        message = Message(
            send.id, sequence, 0 if due_ms else plain_position(sequence), send.priority,
            send.sent_ms, send.expires_at_ms, due_ms, send.group, 0, 0, (), send.size_bytes,
            send.payload, send.persistent,
        )  # fmt: skip
        queue.weigh(message)
        if send.expires_at_ms:
            if send.expires_at_ms <= now and not queue.as_artemis:
                self.out.append(e.Added(queue.name, message))
                self._expired(queue, message)
                return
            self.wake_by(queue, send.expires_at_ms)
        if due_ms:
            self.out.append(e.Scheduled(queue.name, message))
            if due_ms > now:
                queue.schedule(message)
                self.wake_by(queue, due_ms)
            else:
                self.come_due(queue, [message])  # C7
        else:
            queue.place(message)
            self.out.append(e.Added(queue.name, message))
            ring_size = queue.spec.ring_size
            went = queue.consumers and self._offer(queue, message)
            if not went and 0 <= ring_size < queue.counts.ready:
                self.evict(queue, queue.victim(), EvictReason.OVERFLOW, message.id)
            if queue.expiring and queue.as_artemis:
                self._meet_expired(queue)
        if queue.is_limited:
            self._keep_limits(queue, message)

    def refusal(self, queue: Queue, send: c.Send) -> Refusal | None:
        """Why the queue does not take the message, or None (R60)."""
        spec = queue.spec
        size_bytes = send.size_bytes
        if 0 <= spec.max_message_bytes < size_bytes:
            return Refusal.TOO_LARGE
        if spec.when_full == "block" and 0 <= spec.max_bytes < size_bytes:
            return Refusal.TOO_LARGE  # it would stop the pulling for ever
        if spec.when_full != "reject_newest":
            return None
        messages, total_bytes = queue.counts.messages + 1, queue.size_bytes + size_bytes
        if queue.exceeds(messages, total_bytes):
            gone = self._would_leave(queue, send)
            if gone is None or queue.exceeds(messages - 1, total_bytes - gone.size_bytes):
                return Refusal.QUEUE_FULL
        return None

    def _would_leave(self, queue: Queue, send: c.Send) -> Message | None:
        """What this send would make leave before the limits are tested: itself, or a victim."""
        now, sequence = self.now, queue.sequence + 1
        message = unsent(send)._replace(
            sequence=sequence, position=plain_position(sequence), expires_at_ms=0, due_ms=0
        )
        if 0 < send.expires_at_ms <= now and not queue.as_artemis:
            return message
        if send.due_ms > now:
            return None
        taker = None if "dispatch" in queue.paused else queue.taker(message)
        if taker is not None:
            return message if taker.ack_mode is AckMode.NONE else None
        if not 0 <= queue.spec.ring_size <= queue.counts.ready:
            return None
        queue.place(message)
        victim = queue.victim()
        queue.unplace(message)
        return victim

    def _refuse(self, queue: Queue, send: c.Send, refusal: Refusal) -> None:
        """It is not added; it goes to the dead topic (R42, R60, R100)."""
        queue.counts.refused += 1
        spec = queue.spec
        if refusal is Refusal.TOO_LARGE:
            reason = DeadReason.TOO_LARGE
            most = spec.max_message_bytes if spec.max_message_bytes >= 0 else spec.max_bytes
            text = f"{send.size_bytes} bytes; this queue takes messages of at most {most}"
        else:
            reason = DeadReason.LIMIT
            text = (
                f"the queue is full: {queue.counts.messages} messages, {queue.size_bytes} bytes "
                f"(max_messages {spec.max_messages}, max_bytes {spec.max_bytes})"
            )
        message = unsent(send)
        self.out.append(e.Refused(queue.name, refusal, send.id, text))
        self.out.append(e.Dead(queue.name, message, reason, "", text))

    def _keep_limits(self, queue: Queue, message: Message) -> None:
        """What the limits ask for after a send (R60)."""
        when_full = queue.spec.when_full
        if when_full == "block":
            return  # what came in although it is full, came by an operator or a transaction
        while queue.exceeds(queue.counts.messages, queue.size_bytes):
            if when_full == "drop_newest":
                self._drop_newest(queue, message)
                return
            if not queue.counts.ready:
                return
            lowest = when_full == "drop_lowest_priority"
            victim = queue.least() if lowest else queue.lowest()
            self.evict(queue, victim, EvictReason.LIMIT, message.id)

    def _drop_newest(self, queue: Queue, message: Message) -> None:
        """Unless a consumer has it already (R4)."""
        if message.due_ms > self.now:
            queue.unschedule(message)
            self._evicted(queue, message, EvictReason.LIMIT, message.id)
        elif message.due_ms:  # C7: if nobody took it, it is at the head
            first = queue.lane_of(message).first()
            if first is not None and first[1].sequence == message.sequence:
                self.evict(queue, first[1], EvictReason.LIMIT, message.id)
        elif queue.is_ready(message):
            self.evict(queue, message, EvictReason.LIMIT, message.id)

    # --- delivering ------------------------------------------------------------------------------

    def _offer(self, queue: Queue, message: Message) -> bool:
        """Hand this ready message over if anybody can take it. True: it went."""
        if "dispatch" in queue.paused or (consumer := queue.taker(message)) is None:
            return False
        self._hand_over(queue, message, consumer)
        return True

    def dispatch(self, queue: Queue) -> None:
        """Hand over what can go, in delivery order; what cannot blocks nobody (R14)."""
        if "dispatch" in queue.paused or not queue.counts.ready:
            return
        if queue.has_open_consumer():
            self._hand_out(queue)
        if queue.expiring and queue.as_artemis:
            self._meet_expired(queue)

    def _meet_expired(self, queue: Queue) -> None:
        """C1: expired messages leave when they are next, even if no consumer has credit."""
        if "dispatch" in queue.paused or not queue.consumers:
            return
        for message in queue.in_order():
            if not 0 < message.expires_at_ms <= self.now:
                return
            self._met(queue, message)

    def _met(self, queue: Queue, expired: Message) -> None:
        queue.unplace(expired)
        self._expired(queue, expired)
        if queue.as_artemis:
            queue.skip_consumer()

    def _hand_out(self, queue: Queue) -> None:
        for message in queue.in_order():
            if 0 < message.expires_at_ms <= self.now:  # more than one sweep takes (R50), or C1
                self._met(queue, message)
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
        queue.move_cursor(consumer)
        holders = tuple(name for name in message.holders if name != consumer.name)
        holders = (*holders[1 - limits.HOLDERS :], consumer.name)
        message = message._replace(
            attempts=message.attempts + 1, handovers=message.handovers + 1, holders=holders
        )
        self.state.deliveries = number = self.state.deliveries + 1
        delivery = Delivery(number, consumer.name, message, self.now)
        self.out.append(e.Dispatched(queue.name, delivery))
        if consumer.ack_mode is AckMode.NONE:
            queue.unweigh(message)
            queue.counts.acked += 1
            queue.history.remember(consumer.name, message.id)
            self.out.append(e.Acked(queue.name, delivery))
        else:
            queue.hand_over(delivery, consumer)

    # --- settled ---------------------------------------------------------------------------------

    def acked(self, queue: Queue, delivery: Delivery) -> None:
        """A delivery is accepted (R16)."""
        self._end(queue, delivery)
        queue.unweigh(delivery.message)
        queue.counts.acked += 1
        self.out.append(e.Acked(queue.name, delivery))

    def rejected(self, queue: Queue, delivery: Delivery, text: str) -> None:
        """A delivery is given up by its consumer (R41)."""
        self._end(queue, delivery)
        self._dead(queue, delivery, DeadReason.REJECTED, text)

    def _end(self, queue: Queue, delivery: Delivery) -> None:
        queue.end(delivery)
        queue.history.remember(delivery.consumer, delivery.message.id)

    # --- coming back -----------------------------------------------------------------------------

    def requeue(
        self,
        queue: Queue,
        deliveries: Iterable[Delivery],
        *,
        delayed: bool,
        delay_ms: int | None = None,
        clean: bool = False,
        alone: bool = False,
        acked: Container[int] = (),
    ) -> None:
        """The returning set, newest first (R20-R24, R40). The caller dispatches when it is placed.

        `delayed`: a redelivery delay applies. `clean`: the attempt is taken back (a clean detach).
        `alone`: released by itself. `acked`: numbers of those acked in what is rolled back.
        """
        self.expire(queue)
        if not queue.as_artemis:
            for held in sorted(deliveries, key=lambda held: held.message.position, reverse=True):
                delivery = self._ended(queue, held, was_tried=not clean)
                if delivery is not None:
                    wait_ms = self._wait_ms(queue, delivery, delayed, delay_ms)
                    self._return(queue, delivery, wait_ms, tested=not wait_ms)
            return
        staying = []
        for held in deliveries:
            # C9: but for a timeout, only what was acked has been tried.
            was_tried = held.number in acked if delayed else not clean
            if (delivery := self._ended(queue, held, was_tried=was_tried)) is not None:
                staying.append(delivery)
        for turn, delivery in reversed(list(enumerate(staying, 1))):  # C2
            wait_ms = self._wait_ms(queue, delivery, delayed, delay_ms)
            self._return(queue, delivery, wait_ms, tested=not alone, turn=turn)  # C3, C8

    def _ended(self, queue: Queue, held: Delivery, *, was_tried: bool) -> Delivery | None:
        """The delivery is over; None if its message leaves with it (R40, R82)."""
        self._end(queue, held)
        message = held.message
        if not was_tried:
            message = message._replace(attempts=message.attempts - 1)
        delivery = held._replace(message=message)
        if message.is_bodyless:
            self._lost(queue, message)
        elif 0 <= queue.spec.max_attempts <= message.attempts:
            self._dead(queue, delivery, DeadReason.UNDELIVERABLE, "")
        elif self._has_expired(queue, message):
            self._expired(queue, message, delivery.number)
        else:
            return delivery
        return None

    def _wait_ms(
        self, queue: Queue, delivery: Delivery, delayed: bool, delay_ms: int | None
    ) -> int:
        """How long its message waits before it is ready again (R40)."""
        if not delayed:
            return 0
        return _redelivery_delay(queue, delivery.message) if delay_ms is None else delay_ms

    def _return(
        self, queue: Queue, delivery: Delivery, wait_ms: int, *, tested: bool, turn: int = 0
    ) -> None:
        """It goes back into the ring or, if it has to wait, into the schedule (R21, R40).

        `turn`: its place among those that come back with it (C2).
        """
        message = delivery.message
        position = message.position
        if tested and 0 <= queue.spec.ring_size <= queue.counts.ready:
            self._evicted(queue, message, EvictReason.RETURN_OVERFLOW, "")
        elif wait_ms:
            if queue.as_artemis:
                position = artemis.rank_position(turn, message)
            message = message._replace(position=position, due_ms=self.now + wait_ms)
            queue.schedule(message)
            self.wake_by(queue, message.due_ms)
            self.out.append(e.Returned(queue.name, delivery, message, message.due_ms))
        else:
            if queue.as_artemis:
                message = message._replace(position=artemis.sorted_position(queue, message))
            queue.place(message)
            self.out.append(e.Returned(queue.name, delivery, message, 0))
        if message.expires_at_ms:
            self.wake_by(queue, message.expires_at_ms)

    # --- leaving ---------------------------------------------------------------------------------

    def evict(self, queue: Queue, message: Message, reason: EvictReason, cause: str) -> None:
        """A ready message leaves by the ring; an expired one as expired (R3)."""
        queue.unplace(message)
        if self._has_expired(queue, message):
            self._expired(queue, message)
        else:
            self._evicted(queue, message, reason, cause)

    def _evicted(self, queue: Queue, message: Message, reason: EvictReason, cause: str) -> None:
        """R6. The message stands in no table any more."""
        queue.unweigh(message)
        queue.counts.evicted += 1
        if message.holders:
            queue.history.evicted(message.holders, message.id)
        spec = queue.spec
        self.out.append(
            e.Evicted(
                queue.name, message, reason, cause, spec.ring_size, queue.counts.ready,
                self.now, spec.evicted_payload,
            )
        )  # fmt: skip

    def expire(self, queue: Queue, most: int = limits.SWEEP_AT_ONCE) -> int:
        """All that is past its time leaves, by (time, sequence) (R32, R50). How many left."""
        done = 0
        while done < most and (found := queue.first_expired(self.now)) is not None:
            message, scheduled = found
            if scheduled:
                queue.unschedule(message)
            else:
                queue.unplace(message)
            self._expired(queue, message)
            done += 1
        return done

    def _has_expired(self, queue: Queue, message: Message) -> bool:
        """Does it leave for its time alone? With Artemis it has to be met (C1)."""
        return 0 < message.expires_at_ms <= self.now and not queue.as_artemis

    def _expired(self, queue: Queue, message: Message, delivery: int = 0) -> None:
        queue.unweigh(message)
        queue.counts.expired += 1
        last_holder = message.holders[-1] if message.holders else ""
        self.out.append(e.Expired(queue.name, message, last_holder, delivery))

    def _dead(self, queue: Queue, delivery: Delivery, reason: DeadReason, text: str) -> None:
        queue.unweigh(delivery.message)
        queue.counts.dead += 1
        self.out.append(e.Dead(queue.name, delivery.message, reason, delivery.consumer, text))

    def bodyless(self, queue: Queue) -> list[Message]:
        """Which messages of the queue have lost their bodies by a crash (R82)."""
        if not queue.non_persistent:
            return []
        waiting = (message for _, message in queue.scheduled)
        return [m for m in (*queue.in_order(), *waiting) if m.is_bodyless]

    def lose(self, queue: Queue, bodyless: Iterable[Message]) -> None:
        """A message without its body is no message any more (R82)."""
        for message in bodyless:
            if queue.is_ready(message):
                queue.unplace(message)
            else:
                queue.unschedule(message)
            self._lost(queue, message)

    def _lost(self, queue: Queue, message: Message) -> None:
        queue.unweigh(message)
        queue.counts.lost += 1
        self.out.append(e.Lost(queue.name, message))

    def removed(self, queue: Queue, message: Message) -> None:
        """An operator took it out of its table (R34, R90)."""
        queue.unweigh(message)
        queue.counts.removed += 1
        self.out.append(e.Removed(queue.name, message))

    def moved_out(self, queue: Queue, message: Message, target: Queue) -> None:
        """An operator took it out of its table, for another queue (R90)."""
        queue.unweigh(message)
        queue.counts.moved_out += 1
        self.out.append(e.MovedOut(queue.name, message, target.name))

    # --- time ------------------------------------------------------------------------------------

    def come_due(self, queue: Queue, due: list[Message]) -> None:
        """R31: to its place if the ring has room; then it is offered, before the next is tested.

        `due`: what `Queue.due_together` gave, and the caller took out of the schedule.
        """
        if queue.as_artemis:
            self._come_due_as_artemis(queue, due)
            return
        for message in due:
            if ready := self._make_ready(queue, message):
                self._offer(queue, ready)

    def _come_due_as_artemis(self, queue: Queue, due: list[Message]) -> None:
        """C4, C5: the latest first, each to the head; what came back counts as sent before."""
        came_back = sorted((each for each in due if each.position), key=lambda each: each.position)
        for message in reversed(came_back + [each for each in due if not each.position]):
            self._make_ready(queue, message)
        self.dispatch(queue)

    def _make_ready(self, queue: Queue, message: Message) -> Message | None:
        """A message that is due is ready at its place, unless the ring has no room for it."""
        if 0 <= queue.spec.ring_size <= queue.counts.ready:
            # A ring of none (C10) has nobody who could go instead.
            if queue.spec.scheduled_when_full == "drop" or not queue.counts.ready:
                self._evicted(queue, message, EvictReason.SCHEDULED_OVERFLOW, "")
                return None
            self.evict(queue, queue.lowest(), EvictReason.SCHEDULED_OVERFLOW, message.id)
        # Looked for when the ring has room: with Artemis it depends on who is there.
        if queue.as_artemis:
            position = artemis.head_position(queue, message)
        else:
            position = message.position or due_position(message.due_ms, message.sequence)
        message = message._replace(position=position)
        queue.place(message)
        self.out.append(e.Due(queue.name, message))
        return message

    def wake_by(self, queue: Queue, at_ms: int) -> None:
        """The queue has something to do at that time; an earlier wake is kept."""
        if queue.wake_ms:
            if queue.wake_ms <= at_ms:
                return
            self.state.wakes.delete((queue.wake_ms, queue.name))
        queue.wake_ms = at_ms
        self.state.wakes.put_new((at_ms, queue.name), True)


def unsent(send: c.Send) -> Message:
    """The message of a send that has no place in a queue: its sequence is 0."""
    return Message(
        send.id, 0, 0, send.priority, send.sent_ms, send.expires_at_ms, send.due_ms, send.group,
        0, 0, (), send.size_bytes, send.payload, send.persistent,
    )  # fmt: skip


def send_of(message: Message, queue: str, sent_ms: int, due_ms: int = 0) -> c.Send:
    """A send of a message that was one before: kept, moved, or waiting for a decision."""
    return c.Send(
        queue, message.id, sent_ms, message.priority, due_ms, message.expires_at_ms,
        message.group, message.size_bytes, message.payload, message.persistent,
    )  # fmt: skip


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
