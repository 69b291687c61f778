"""The commands of consumers: to join, to settle what they hold, to give it back, to leave.

What becomes of a message is decided in `ring`; here is who may ask for it, and for which.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.model import AckMode, Consumer, Delivery, Refusal
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import Refused, bad
from ringfaust.core.selector import compile_selector
from ringfaust.core.transitions import Transitions
from ringfaust.errors import BadSelector

WINDOW = "@window"
"""Name of the consumer that stands for a managed window (R12)."""


class Consumers:
    """The consumers of one partition."""

    def __init__(self, ring: Transitions) -> None:
        self._ring = ring
        self._state = ring.state
        self.to_auto_delete: list[Queue] = []
        """Queues that end with their last consumer, which has left in this step (R70)."""

    # --- joining and leaving ---------------------------------------------------------------------

    def attach(self, attach: c.Attach) -> None:
        """R10, R11."""
        queue = self._ring.queue(attach.queue)
        check(attach)
        if attach.consumer in queue.consumers:
            raise bad(attach.consumer, "a consumer of that name is attached; detach it first")
        if len(queue.consumers) >= limits.CONSUMERS:
            raise Refused(Refusal.CONSUMER_LIMIT, attach.consumer, "the queue has no place left")
        most = self._most_active(queue)
        active, backups = self._places(queue)
        is_active = most < 0 or active < most
        if not is_active and backups >= queue.spec.max_backup_consumers:
            text = f"{active} active and {backups} backup consumers are attached: no place left"
            raise Refused(Refusal.CONSUMER_LIMIT, attach.consumer, text)
        self._state.use(queue)
        queue.orders += 1
        consumer = Consumer(
            attach.consumer, queue.orders, attach.credit, attach.priority, attach.ack_mode,
            attach.session, is_active, self._ring.now, attach.selector, attach.credit_bytes,
        )  # fmt: skip
        self._join(queue, consumer)
        self._ring.dispatch(queue)

    def _join(self, queue: Queue, consumer: Consumer) -> None:
        queue.add_consumer(consumer)
        queue.history.arrive(consumer.name)
        if consumer.session:
            self._state.session(consumer.session).put_new((queue.name, consumer.name), True)
        if deadline := self.deadline(queue, consumer):
            self._ring.wake_by(queue, deadline)
        self._attached_now(queue, consumer)
        self._ring.expire(queue)

    def _attached_now(self, queue: Queue, consumer: Consumer) -> None:
        attached = e.Attached(queue.name, consumer.name, consumer.active, consumer.priority)
        self._ring.out.append(attached)

    def _places(self, queue: Queue) -> tuple[int, int]:
        """How many consumers are active, and how many backups."""
        people = [consumer for consumer in queue.consumers.values() if consumer.name != WINDOW]
        active = sum(consumer.active for consumer in people)
        return active, len(people) - active

    def _most_active(self, queue: Queue) -> int:
        """How many consumers may be active at once; -1 any number (R11, R70)."""
        most, address_name = queue.spec.max_active_consumers, address_of(queue.name)
        if most < 0 and address_name and not queue.spec.shared:
            address = self._state.address(address_name)
            if address is not None and address.spec.routing == "multicast":
                return 1
        return most

    def credit(self, credit: c.Credit) -> None:
        """R10."""
        queue, consumer = self._find_person(credit)
        if credit.add < 0 or consumer.credit + credit.add > limits.CREDIT:
            raise bad(consumer.name, f"credit would not stay from 0 to {limits.CREDIT}")
        self._alive(queue, consumer)
        consumer.credit += credit.add
        self._ring.expire(queue)
        self._ring.dispatch(queue)

    def heartbeat(self, heartbeat: c.Heartbeat) -> None:
        """R13."""
        self._alive(*self._find(heartbeat))

    def _alive(self, queue: Queue, consumer: Consumer) -> None:
        """It gave a sign of life, and is about to change something."""
        self._state.use(queue)
        consumer.seen_ms = self._ring.now
        queue.save_consumer(consumer)

    def detach(self, detach: c.Detach) -> None:
        """R20."""
        queue, consumer = self._find_person(detach)
        self._state.use(queue)
        self.part(queue, consumer, timeout=False)

    def part(self, queue: Queue, consumer: Consumer, *, timeout: bool) -> None:
        """A consumer leaves; what it held returns; backups take over; then dispatch."""
        self._ring.requeue(queue, queue.held_by(consumer), delayed=False, clean=not timeout)
        queue.orphan(consumer)
        queue.drop_consumer(consumer)
        queue.history.depart(consumer.name)
        if consumer.session:
            self._state.session(consumer.session).delete((queue.name, consumer.name))
        self._ring.out.append(e.Detached(queue.name, consumer.name, timeout))
        self.promote(queue)
        self._ring.dispatch(queue)
        self.check_auto_delete(queue)

    def check_auto_delete(self, queue: Queue) -> None:
        """If it is not durable and nobody is left, it ends with this step (R70)."""
        if not (queue.spec.durable or queue.consumers or queue.orphans):
            self.to_auto_delete.append(queue)

    def promote(self, queue: Queue) -> None:
        """Backups become active, in attach order, while there is a place (R11)."""
        most = self._most_active(queue)
        active, _ = self._places(queue)
        for consumer in sorted(queue.consumers.values(), key=lambda consumer: consumer.order):
            if not consumer.active and (most < 0 or active < most):
                consumer.active = True
                active += 1
                queue.save_consumer(consumer)
                self._attached_now(queue, consumer)

    def fit_window(self, queue: Queue) -> None:
        """R12: a managed window is a consumer that nobody has to attach."""
        size = queue.spec.window
        consumer = queue.consumers.get(WINDOW)
        if consumer is not None:
            if size:
                consumer.credit = size
                queue.save_consumer(consumer)
            else:
                self.part(queue, consumer, timeout=False)
        elif size:
            queue.orders += 1
            individual = AckMode.INDIVIDUAL
            self._join(
                queue, Consumer(WINDOW, queue.orders, size, 0, individual, "", True, self._ring.now)
            )

    def deadline(self, queue: Queue, consumer: Consumer) -> int:
        """When its silence ends its attachment (R13); 0: never."""
        timeout_ms = queue.spec.consumer_timeout
        if not timeout_ms or consumer.name == WINDOW:
            return 0
        return consumer.seen_ms + timeout_ms

    # --- settling --------------------------------------------------------------------------------

    def ack(self, ack: c.Ack) -> None:
        """R16."""
        queue, delivery = self.settled(ack)
        consumer = queue.consumers[delivery.consumer]
        if consumer.ack_mode is AckMode.CLIENT:
            self._ack_all(self.covered(queue, delivery))
            return
        had_room = consumer.is_open()
        self._ring.acked(queue, delivery)
        # Who had room was offered all that it wants already; with Artemis the head may expire.
        if not had_room or queue.as_artemis:
            self._ring.dispatch(queue)

    def covered(self, queue: Queue, delivery: Delivery) -> list[tuple[Queue, Delivery]]:
        """What an ack settles: in mode `client` all delivered before in its whole session (R16)."""
        consumer = queue.consumers[delivery.consumer]
        if consumer.ack_mode is not AckMode.CLIENT:
            return [(queue, delivery)]
        found = [
            (other_queue, held)
            for other_queue, other in self._companions(queue, consumer)
            for held in other_queue.held_by(other)
            if held.number <= delivery.number
        ]
        return sorted(found, key=lambda pair: pair[1].number)

    def _ack_all(self, covered: list[tuple[Queue, Delivery]]) -> None:
        touched = dict.fromkeys(queue for queue, _ in covered)
        for queue in touched:
            self._ring.expire(queue)
        for queue, held in covered:
            self._ring.acked(queue, held)
        for queue in touched:
            self._ring.dispatch(queue)

    def release(self, release: c.Release) -> None:
        """R23: a returning set of one."""
        if release.delay_ms is not None and not 0 <= release.delay_ms <= limits.TIME_MS:
            raise bad(release.message, f"delay_ms must be 0 or more, not {release.delay_ms}")
        queue, delivery = self.settled(release)
        self._ring.requeue(queue, [delivery], delayed=True, delay_ms=release.delay_ms, alone=True)
        self._ring.dispatch(queue)

    def reject(self, reject: c.Reject) -> None:
        """R41."""
        queue, delivery = self.settled(reject)
        self._ring.rejected(queue, delivery, reject.text)
        self._ring.dispatch(queue)

    def settled(self, settle: c.Ack | c.Release | c.Reject) -> tuple[Queue, Delivery]:
        """The delivery that is meant, or the refusal that R103 names."""
        queue = self._ring.queue(settle.queue)
        consumer = queue.consumers.get(settle.consumer)
        numbers = consumer.held.get(settle.message, ()) if consumer else ()
        for number in numbers:
            if not settle.delivery or settle.delivery == number:
                delivery: Delivery | None = queue.deliveries.get(number)
                assert consumer is not None and delivery is not None
                if not delivery.xid:
                    self._alive(queue, consumer)
                    if queue.expiring:
                        self._ring.expire(queue)
                    return queue, delivery
        reason = queue.history.classify(settle.consumer, settle.message)
        if numbers and settle.delivery in (0, *numbers) or _is_orphaned(queue, settle):
            reason = Refusal.STALE_DELIVERY  # settled in an undecided transaction
        raise Refused(reason, settle.message, _NO_DELIVERY[reason])

    # --- coming back -----------------------------------------------------------------------------

    def recover(self, recover: c.Recover) -> None:
        """R20: it stays, and gives all it holds back."""
        queue, consumer = self._find(recover)
        self._alive(queue, consumer)
        self._ring.requeue(queue, queue.held_by(consumer), delayed=True)
        self._ring.dispatch(queue)

    def rollback(self, rollback: c.Rollback) -> None:
        """R80: per queue one set of all that the session's consumers hold."""
        members = list(self._state.session(rollback.session))
        if not members:
            raise bad(rollback.session, "no consumer is attached in a session of that name")
        by_queue: dict[str, list[str]] = {}
        for (queue_name, consumer_name), _ in members:
            by_queue.setdefault(queue_name, []).append(consumer_name)
        held: dict[int, tuple[Queue, Delivery]] = {}
        queues = [self._ring.queue(queue_name) for queue_name in by_queue]
        for queue in queues:
            for consumer in sorted((queue.consumers[n] for n in by_queue[queue.name]), key=_order):
                self._alive(queue, consumer)
                held.update((each.number, (queue, each)) for each in queue.held_by(consumer))
        acked = _acked(held, rollback.acked)
        first = [held[number] for number in acked]
        rest = [each for number, each in held.items() if number not in acked]
        for queue in queues:
            returning = [delivery for where, delivery in first + rest if where is queue]
            self._ring.requeue(queue, returning, delayed=True, acked=acked)
            self._ring.dispatch(queue)

    def _companions(self, queue: Queue, consumer: Consumer) -> Iterable[tuple[Queue, Consumer]]:
        """The consumers of its session, or itself alone."""
        if not consumer.session:
            yield queue, consumer
            return
        for (queue_name, name), _ in list(self._state.session(consumer.session)):
            other_queue = self._ring.queue(queue_name)
            self._state.use(other_queue)
            yield other_queue, other_queue.consumers[name]

    def _find(
        self, command: c.Credit | c.Heartbeat | c.Detach | c.Recover
    ) -> tuple[Queue, Consumer]:
        queue = self._ring.queue(command.queue)
        consumer = queue.consumers.get(command.consumer)
        if consumer is None:
            raise bad(command.consumer, "no consumer of that name is attached; attach it first")
        return queue, consumer

    def _find_person(self, command: c.Credit | c.Detach) -> tuple[Queue, Consumer]:
        if command.consumer == WINDOW:
            raise bad(WINDOW, "a managed window is changed by the queue's setting `window`")
        return self._find(command)


def _order(consumer: Consumer) -> int:
    return consumer.order


def _acked(held: dict[int, tuple[Queue, Delivery]], acks: Iterable[c.Ack]) -> dict[int, None]:
    """Numbers of the held deliveries that the acks cover, in their order (R16, C2)."""
    numbers: dict[tuple[str, str, str], list[int]] = {}
    for number in sorted(held):
        queue, delivery = held[number]
        key = (queue.name, delivery.consumer, delivery.message.id)
        numbers.setdefault(key, []).append(number)
    found: dict[int, None] = {}
    for ack in acks:
        meant = numbers.get((ack.queue, ack.consumer, ack.message), [])
        meant = [each for each in meant if each not in found and ack.delivery in (0, each)]
        if meant and held[meant[0]][0].consumers[ack.consumer].ack_mode is AckMode.CLIENT:
            found |= dict.fromkeys(each for each in sorted(held) if each <= meant[0])
        else:
            found |= dict.fromkeys(meant[:1])
    return found


def check(attach: c.Attach | c.Subscribe) -> None:
    """See that it makes sense, wherever it goes.

    Raises:
        Refused: it does not (R15, R103).
    """
    if attach.consumer == WINDOW:
        raise bad(WINDOW, "this name stands for a managed window")
    if not 0 <= attach.credit <= limits.CREDIT:
        raise bad(attach.consumer, f"credit must be from 0 to {limits.CREDIT}")
    if not 0 <= attach.credit_bytes <= limits.CREDIT_BYTES:
        raise bad(attach.consumer, f"credit_bytes must be from 0 to {limits.CREDIT_BYTES}")
    try:
        if attach.selector:
            compile_selector(attach.selector)
    except BadSelector as error:
        raise Refused(Refusal.BAD_SELECTOR, attach.consumer, str(error)) from None


def _is_orphaned(queue: Queue, settle: c.Ack | c.Release | c.Reject) -> bool:
    """Did a consumer of that name leave behind just this, settled but not decided (R81, R103)?"""
    return queue.orphans > 0 and any(
        held.is_orphan
        and (held.consumer, held.message.id) == (settle.consumer, settle.message)
        and settle.delivery in (0, held.number)
        for _, held in queue.deliveries
    )


_NO_DELIVERY = {
    Refusal.BAD_COMMAND: "a consumer of that name never attached to this queue",
    Refusal.UNKNOWN_DELIVERY: "this consumer never had that message, or too long ago",
    Refusal.STALE_DELIVERY: "the delivery is settled, or it came back",
    Refusal.EVICTED: "the delivery came back and the message was evicted since",
}
