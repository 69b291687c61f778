"""How messages leave a queue other than by an ack: evicted, expired, dead, lost, removed, moved."""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core import effects as e
from ringfaust.core import limits, new
from ringfaust.core.model import DeadReason, Delivery, EvictReason, Message
from ringfaust.core.queue import Queue
from ringfaust.core.transitions import history
from ringfaust.core.transitions.placement import take_out, unplace, unschedule, unweigh
from ringfaust.core.transitions.step import StepInProgress


class Leaving(StepInProgress):
    """The arrows that lead out of the queue."""

    def evict(self, queue: Queue, message: Message, reason: EvictReason, cause: str) -> None:
        """Evict a ready message; one that has expired leaves as expired (R3).

        `cause`: the id of the message that needs the place, or empty.
        """
        unplace(queue, message)
        expires_at_ms = message.expires_at_ms
        if expires_at_ms and queue.policy.has_expired(expires_at_ms, self.now):
            self._expired(queue, message)
        else:
            self._evicted(queue, message, reason, cause)

    def _evicted(self, queue: Queue, message: Message, reason: EvictReason, cause: str) -> None:
        """Record the eviction of a message that is in no table any more (R6)."""
        unweigh(queue, message)
        queue.counts.evicted += 1
        if message.holders:
            history.mark_evicted(queue.history, message.holders, message.id)
        spec = queue.spec
        self.out.append(
            new.evicted(
                queue.name, message, reason, cause, spec.ring_size, queue.counts.ready,
                self.now, spec.evicted_payload,
            )
        )  # fmt: skip

    def evict_down_to(self, queue: Queue, ready: int, reason: EvictReason) -> bool:
        """Evict ready messages, lowest position first, until so many are left (R5, R90).

        Returns:
            False if the transaction is full before that (R114).
        """
        while queue.counts.ready > ready:
            if not self.has_room:
                return False
            message = queue.lowest()
            self.spend(message.size_bytes)
            self.evict(queue, message, reason, "")
        return True

    def expire(self, queue: Queue, most: int = limits.SWEEP_AT_ONCE) -> int:
        """Expire up to `most` messages, by (time, sequence) (R32, R50). Returns how many left."""
        done = 0
        while done < most and (found := queue.first_expired(self.now)) is not None:
            message, is_scheduled = found
            if is_scheduled:
                unschedule(queue, message)
            else:
                unplace(queue, message)
            self._expired(queue, message)
            done += 1
        return done

    def _expired(self, queue: Queue, message: Message, delivery: int = 0) -> None:
        unweigh(queue, message)
        queue.counts.expired += 1
        last_holder = message.holders[-1] if message.holders else ""
        self.out.append(e.Expired(queue.name, message, last_holder, delivery))

    def _dead(self, queue: Queue, delivery: Delivery, reason: DeadReason, text: str) -> None:
        """Send a message to the dead topic (R42)."""
        unweigh(queue, delivery.message)
        queue.counts.dead += 1
        self.out.append(e.Dead(queue.name, delivery.message, reason, delivery.consumer, text))

    def lose(self, queue: Queue, bodyless: Iterable[Message]) -> None:
        """Drop messages whose bodies a crash has taken (R82)."""
        for message in bodyless:
            take_out(queue, message)
            self._lost(queue, message)

    def _lost(self, queue: Queue, message: Message) -> None:
        unweigh(queue, message)
        queue.counts.lost += 1
        self.out.append(e.Lost(queue.name, message))

    def remove(self, queue: Queue, message: Message) -> None:
        """Remove a ready or scheduled message for an operator (R34, R90)."""
        take_out(queue, message)
        unweigh(queue, message)
        queue.counts.removed += 1
        self.out.append(e.Removed(queue.name, message))

    def move_out(self, queue: Queue, message: Message, target: Queue) -> None:
        """Remove a ready or scheduled message that an operator moves to another queue (R90)."""
        take_out(queue, message)
        unweigh(queue, message)
        queue.counts.moved_out += 1
        self.out.append(e.MovedOut(queue.name, message, target.name))
