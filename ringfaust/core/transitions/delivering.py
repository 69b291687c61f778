"""Dispatch to consumers, the settling of deliveries, and the funnel of the commands around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringfaust.core import new
from ringfaust.core.model import WINDOW, AckMode, Consumer, DeadReason, Delivery, Message, Stage
from ringfaust.core.queue import Place, Queue
from ringfaust.core.transitions import groups, history
from ringfaust.core.transitions.deliveries import (
    end_delivery,
    move_cursor,
    open_delivery,
    skip_consumer,
)
from ringfaust.core.transitions.leaving import Leaving
from ringfaust.core.transitions.placement import unplace, unweigh

DISPATCH = "dispatch"
"""The stage of a command that hands out what is ready."""


class Delivering(Leaving):
    """The arrows to consumers and, by an ack or a reject, out of the queue."""

    # --- the funnel ------------------------------------------------------------------------------

    def run(
        self,
        queue: Queue,
        change: Callable[..., object],
        *args: Any,
        is_first: bool = False,
        dispatches: bool = True,
    ) -> None:
        """Run one change of a queue through the funnel: expire, do, dispatch.

        A change tests the ring itself where it makes messages ready (`requeue`, `come_due`); a
        send also tests the limits and has its own, faster way through (`enter`).

        Args:
            queue: what is changed.
            change: called with the queue and `args`.
            args: the arguments of `change`.
            is_first: the change is reported before what expires: it does not depend on that.
            dispatches: False if no consumer can take more than before.
        """
        self.state.use(queue)
        if not is_first:
            self.expire(queue)
        change(queue, *args)
        if is_first:
            self.expire(queue)
        if dispatches:
            self.dispatch(queue)

    # --- dispatch --------------------------------------------------------------------------------

    def _offer(self, queue: Queue, message: Message) -> bool:
        """Deliver this ready message if a consumer can take it. True if one did."""
        if "dispatch" in queue.paused or (consumer := queue.taker(message)) is None:
            return False
        self._deliver(queue, message, consumer)
        return True

    def dispatch(self, queue: Queue) -> None:
        """Deliver what can go, in order; a message that cannot go blocks no other (R14)."""
        if "dispatch" in queue.paused or not queue.counts.ready:
            return
        if queue.has_open_consumer() or (queue.expiring and queue.policy.expires_when_met):
            if self.stages or not self.has_room:
                self.stages.append(Stage(DISPATCH, queue.name))
            else:
                self._dispatch(queue, None)

    def dispatch_stage(self, stage: Stage) -> None:
        """Dispatch as much as fits into this transaction, behind the place in `args` (R114)."""
        queue = self.queue(stage.queue)
        self.state.use(queue)
        self._dispatch(queue, stage.args or None)

    def _dispatch(self, queue: Queue, after: Any) -> None:
        if queue.has_open_consumer():
            place = self._deliver_in_order(queue, after)
            if place is not None:
                self.stages.append(Stage(DISPATCH, queue.name, place))
                return
        if queue.expiring and queue.policy.expires_when_met:
            self._meet_expired(queue)

    def _meet_expired(self, queue: Queue) -> None:
        """Expire the messages at the head, even if no consumer has credit (C1)."""
        if "dispatch" in queue.paused or not queue.consumers:
            return
        for message in queue.in_order():
            if not 0 < message.expires_at_ms <= self.now:
                return
            self._met(queue, message)

    def _met(self, queue: Queue, expired: Message) -> None:
        """Expire a message that dispatch has come to."""
        unplace(queue, expired)
        self._expired(queue, expired)
        if queue.policy.expires_when_met:
            skip_consumer(queue)

    def _deliver_in_order(self, queue: Queue, after: Any) -> Place | None:
        """Deliver in order, behind the place `after`. Return where this transaction is full."""
        for place, message in queue.in_order_after(after):
            if not self.has_room:
                return after  # type: ignore[no-any-return]
            self.spend(message.size_bytes)
            after = place
            if 0 < message.expires_at_ms <= self.now:  # more than one sweep expires (R50), or C1
                self._met(queue, message)
                continue
            consumer = queue.taker(message)
            if consumer is not None:
                self._deliver(queue, message, consumer)
                if not queue.has_open_consumer():
                    break
        return None

    def _deliver(self, queue: Queue, message: Message, consumer: Consumer) -> None:
        """Deliver one ready message to one consumer (R10, R11, R14, R24)."""
        unplace(queue, message)
        if message.group and queue.owner(message.group) is None:
            groups.set_owner(queue, message.group, consumer)
        move_cursor(queue, consumer)
        message = new.held_by(message, consumer.name)
        self.state.deliveries = number = self.state.deliveries + 1
        delivery = new.new_delivery(number, consumer.name, message, self.now)
        self.out.append(new.dispatched(queue.name, delivery))
        if consumer.ack_mode is AckMode.NONE:  # gone on dispatch; it uses no credit (R10, R16)
            history.remember(queue.history, consumer.name, message.id)
            self._acked(queue, delivery)
        else:
            open_delivery(queue, delivery, consumer)
            if consumer.name == WINDOW and queue.spec.window_lease:  # R12
                self.wake_by(queue, self.now + queue.spec.window_lease)

    # --- settling --------------------------------------------------------------------------------

    def acked(self, queue: Queue, delivery: Delivery) -> None:
        """A consumer has accepted a delivery (R16)."""
        self._end(queue, delivery)
        self._acked(queue, delivery)

    def _acked(self, queue: Queue, delivery: Delivery) -> None:
        unweigh(queue, delivery.message)
        queue.counts.acked += 1
        self.out.append(new.acked(queue.name, delivery))

    def rejected(self, queue: Queue, delivery: Delivery, text: str) -> None:
        """A consumer has rejected a delivery, with its reason (R41)."""
        self._end(queue, delivery)
        self._dead(queue, delivery, DeadReason.REJECTED, text)

    def _end(self, queue: Queue, delivery: Delivery) -> None:
        end_delivery(queue, delivery)
        history.remember(queue.history, delivery.consumer, delivery.message.id)
