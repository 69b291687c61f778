"""Sends, the limits that they meet, and scheduled messages that come due."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import new
from ringfaust.core.model import (
    AckMode,
    DeadReason,
    EvictReason,
    Message,
    Refusal,
    Stage,
    plain_position,
)
from ringfaust.core.queue import Queue
from ringfaust.core.transitions import sent_ids
from ringfaust.core.transitions.placement import place, schedule, unplace, unschedule, weigh
from ringfaust.core.transitions.returning import Returning
from ringfaust.core.transitions.sends import unsent

LIMITS = "limits"
"""The stage of a send that brings its queue within the limits."""


class Transitions(Returning):
    """All arrows; this last part of them leads into the queue."""

    def enter(self, queue: Queue, send: c.Send) -> None:
        """Add a sent message (R1, R2, R30, R33, R50, R60).

        The funnel of a send. It differs from `run` because it is the hot path: only the message
        that was sent is offered to consumers, and at most one leaves a full ring.
        """
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
        if due_ms:
            due_ms = queue.policy.due_ms(due_ms, now)
        message = new.new_message(
            send.id, sequence, 0 if due_ms else plain_position(sequence), send.priority,
            send.sent_ms, send.expires_at_ms, due_ms, send.group, 0, 0, (), send.size_bytes,
            send.payload, send.persistent, False,
        )  # fmt: skip
        weigh(queue, message)
        if send.expires_at_ms:
            if queue.policy.has_expired(send.expires_at_ms, now):
                self.out.append(e.Added(queue.name, message))
                self._expired(queue, message)
                return
            self.wake_by(queue, send.expires_at_ms)
        if due_ms:
            self.out.append(e.Scheduled(queue.name, message))
            if due_ms > now:
                schedule(queue, message)
                self.wake_by(queue, due_ms)
            else:
                self.come_due(queue, [message])  # C7
        else:
            place(queue, message)
            self.out.append(new.added(queue.name, message))
            ring_size = queue.spec.ring_size
            was_taken = queue.consumers and self._offer(queue, message)
            if not was_taken and 0 <= ring_size < queue.counts.ready:
                self.evict(queue, queue.victim(), EvictReason.OVERFLOW, message.id)
            if queue.expiring and queue.policy.expires_when_met:
                self._meet_expired(queue)
        if queue.is_limited:
            self._keep_limits(queue, message)

    def forget_sent(self, queue: Queue) -> bool:
        """Forget the ids of all messages that came in (R119).

        Returns:
            False if the transaction is full before that (R114).
        """
        while queue.sent_bounds != (0, 0):
            if not self.has_room:
                return False
            for message_id in sent_ids.forget_page(queue):
                self.spend(len(message_id))
        return True

    # --- limits ----------------------------------------------------------------------------------

    def refusal(self, queue: Queue, send: c.Send) -> Refusal | None:
        """Why the queue refuses the message, or None (R60)."""
        spec = queue.spec
        size_bytes = send.size_bytes
        if 0 <= spec.max_message_bytes < size_bytes:
            return Refusal.TOO_LARGE
        if spec.when_full == "block" and 0 <= spec.max_bytes < size_bytes:
            return Refusal.TOO_LARGE  # it would block the queue for ever
        if spec.when_full != "reject_newest":
            return None
        messages, total_bytes = queue.counts.messages + 1, queue.size_bytes + size_bytes
        if queue.exceeds(messages, total_bytes):
            gone = self._would_leave(queue, send)
            if gone is None or queue.exceeds(messages - 1, total_bytes - gone.size_bytes):
                return Refusal.QUEUE_FULL
        return None

    def _would_leave(self, queue: Queue, send: c.Send) -> Message | None:
        """Which message would leave because of this send, before the limits are tested."""
        now, sequence = self.now, queue.sequence + 1
        message = unsent(send)._replace(
            sequence=sequence, position=plain_position(sequence), expires_at_ms=0, due_ms=0
        )
        if queue.policy.has_expired(send.expires_at_ms, now):
            return message
        if send.due_ms > now:
            return None
        taker = None if "dispatch" in queue.paused else queue.taker(message)
        if taker is not None:
            return message if taker.ack_mode is AckMode.NONE else None
        if not 0 <= queue.spec.ring_size <= queue.counts.ready:
            return None
        place(queue, message)
        victim = queue.victim()
        unplace(queue, message)
        return victim

    def _refuse(self, queue: Queue, send: c.Send, refusal: Refusal) -> None:
        """Send the message to the dead topic instead of adding it (R42, R60, R100)."""
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
        """Bring the queue within its limits after a send (R60)."""
        when_full = queue.spec.when_full
        if when_full == "block":
            return  # an operator or a transaction has added it although the queue is full
        if not queue.exceeds(queue.counts.messages, queue.size_bytes):
            return
        if when_full == "drop_newest":
            self._drop_newest(queue, message)
        else:
            self.perform(Stage(LIMITS, queue.name, (message.id,)))

    def limits_stage(self, stage: Stage) -> None:
        """Evict as much of what is beyond the limits as fits into this transaction (R114)."""
        queue = self.queue(stage.queue)
        self.state.use(queue)
        is_lowest = queue.spec.when_full == "drop_lowest_priority"
        while queue.counts.ready and queue.exceeds(queue.counts.messages, queue.size_bytes):
            if not self.has_room:
                self.stages.append(stage)
                return
            victim = queue.oldest_of_lowest_priority() if is_lowest else queue.lowest()
            self.spend(victim.size_bytes)
            self.evict(queue, victim, EvictReason.LIMIT, stage.args[0])

    def _drop_newest(self, queue: Queue, message: Message) -> None:
        """Evict what was just sent, unless a consumer has it already (R4)."""
        if message.due_ms > self.now:
            unschedule(queue, message)
            self._evicted(queue, message, EvictReason.LIMIT, message.id)
        elif message.due_ms:  # C7: if no consumer took it, it is at the head
            first = queue.level_of(message).first()
            if first is not None and first[1].sequence == message.sequence:
                self.evict(queue, first[1], EvictReason.LIMIT, message.id)
        elif queue.is_ready(message):
            self.evict(queue, message, EvictReason.LIMIT, message.id)

    # --- time ------------------------------------------------------------------------------------

    def come_due_until(self, queue: Queue, most: int) -> int:
        """Make due messages ready, until about `most` were; how many (R32)."""
        done = 0
        while done < most and not self.stages:  # with Artemis each batch is dispatched first (C4)
            due = queue.due_together(self.now)
            if not due:
                break
            for message in due:
                unschedule(queue, message)
            self.come_due(queue, due)
            done += len(due)
        return done

    def deliver_now(self, queue: Queue, message: Message) -> None:
        """Make a scheduled message due now (R34)."""
        if not queue.is_scheduled(message):  # it has expired in this step
            return
        unschedule(queue, message)
        self.come_due(queue, [message._replace(due_ms=self.now)])

    def come_due(self, queue: Queue, due: list[Message]) -> None:
        """Test unscheduled messages against the ring, and make them ready if it has room (R31).

        Each is offered to consumers before the next is tested, with Artemis after all were (C4).
        """
        policy = queue.policy
        for message in policy.due_order(due):
            ready = self._make_ready(queue, message)
            if ready and not policy.tests_due_batch:
                self._offer(queue, ready)
        if policy.tests_due_batch:
            self.dispatch(queue)

    def _make_ready(self, queue: Queue, message: Message) -> Message | None:
        """Place a due message, unless the ring has no room for it (R31)."""
        if 0 <= queue.spec.ring_size <= queue.counts.ready:
            # A ring of size 0 (C10) has no other message to displace.
            if queue.spec.scheduled_when_full == "drop" or not queue.counts.ready:
                self._evicted(queue, message, EvictReason.SCHEDULED_OVERFLOW, "")
                return None
            self.evict(queue, queue.lowest(), EvictReason.SCHEDULED_OVERFLOW, message.id)
        # Only now, when the ring has room: with Artemis the position depends on who is in it.
        position = queue.policy.due_position(message, queue.level_of(message))
        message = new.at_position(message, position)
        place(queue, message)
        self.out.append(new.due(queue.name, message))
        return message
