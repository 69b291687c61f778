"""The commands of consumers: attach, settle, return what they hold, detach.

The handlers check who may ask for what; `transitions` decides what becomes of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.model import WINDOW, AckMode, Consumer, Delivery, Heard, Refusal, Stage
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import CommandRefused, Idle, bad
from ringfaust.core.selector import compile_selector
from ringfaust.core.transitions import Transitions, deliveries, roster
from ringfaust.errors import BadSelector

LEAVE, LEASES, ACK, RETURN = "leave", "leases", "ack", "return"
"""Stages of commands (R114)."""


class Consumers:
    """Handles the commands of consumers."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self._state = transitions.state
        self.to_auto_delete: list[Queue] = []
        """Non-durable queues whose last consumer has left in this step (R70)."""

    # --- joining and leaving ---------------------------------------------------------------------

    def attach(self, attach: c.Attach) -> None:
        """Attach a consumer to a queue (R10, R11)."""
        queue = self._transitions.queue(attach.queue)
        check(attach)
        if attach.consumer in queue.consumers:
            raise bad(attach.consumer, "a consumer of that name is attached; detach it first")
        if len(queue.consumers) >= limits.CONSUMERS:
            text = "the queue has no place left"
            raise CommandRefused(Refusal.CONSUMER_LIMIT, attach.consumer, text)
        most = self._most_active(queue)
        active, backups = self._places(queue)
        is_active = most < 0 or active < most
        if not is_active and backups >= queue.spec.max_backup_consumers:
            text = f"{active} active and {backups} backup consumers are attached: no place left"
            raise CommandRefused(Refusal.CONSUMER_LIMIT, attach.consumer, text)
        consumer = Consumer(
            attach.consumer, roster.next_order(queue), attach.credit, attach.priority,
            attach.ack_mode, attach.session, is_active, self._transitions.now, attach.selector,
            attach.credit_bytes,
        )  # fmt: skip
        # It is attached at that moment, before anything expires.
        self._transitions.run(queue, self._join, consumer, is_first=True)

    def _join(self, queue: Queue, consumer: Consumer) -> None:
        roster.add_consumer(self._state, queue, consumer)
        if deadline := self.deadline(queue, consumer):
            self._transitions.wake_by(queue, deadline)
        self._report_attached(queue, consumer)

    def _report_attached(self, queue: Queue, consumer: Consumer) -> None:
        attached = e.Attached(queue.name, consumer.name, consumer.active, consumer.priority)
        self._transitions.out.append(attached)

    def _places(self, queue: Queue) -> tuple[int, int]:
        """How many consumers are active, and how many are backups."""
        people = [consumer for consumer in queue.consumers.values() if consumer.name != WINDOW]
        active = sum(consumer.active for consumer in people)
        return active, len(people) - active

    def _most_active(self, queue: Queue) -> int:
        """How many consumers may be active at once; -1 for any number (R11, R70)."""
        most, address_name = queue.spec.max_active_consumers, address_of(queue.name)
        if most < 0 and address_name and not queue.spec.shared:
            address = self._state.address(address_name)
            if address is not None and address.spec.routing == "multicast":
                return 1
        return most

    def credit(self, credit: c.Credit) -> None:
        """Grant a consumer more credit (R10)."""
        queue, consumer = self._find_person(credit)
        if credit.add < 0 or consumer.credit + credit.add > limits.CREDIT:
            raise bad(consumer.name, f"credit must stay between 0 and {limits.CREDIT}")
        self._alive(queue, consumer)
        self._transitions.run(queue, roster.set_credit, consumer, consumer.credit + credit.add)

    def heartbeat(self, heartbeat: c.Heartbeat) -> None:
        """Note that a consumer is alive (R13). Nothing else happens: no funnel."""
        self._alive(*self._find(heartbeat))

    def _alive(self, queue: Queue, consumer: Consumer) -> None:
        """Note a sign of life of a consumer whose command is accepted (R13)."""
        self._state.use(queue)
        roster.save_sign_of_life(queue, consumer, self._transitions.now)

    def detach(self, detach: c.Detach) -> None:
        """Detach a consumer cleanly (R20)."""
        queue, consumer = self._find_person(detach)
        self._state.use(queue)
        self._transitions.expire(queue)
        self._transitions.perform(Stage(LEAVE, queue.name, (consumer.name, False)))

    def leave(self, queue: Queue, consumer: Consumer, *, timeout: bool) -> bool:
        """Detach a consumer: what it held returns, and backups take over (R11, R13, R20).

        Returns:
            False if the transaction is full before that (R114); call it again in the next one.
        """
        self._state.use(queue)
        if not self._transitions.requeue_held(queue, [consumer], delayed=False, clean=not timeout):
            return False
        deliveries.orphan_deliveries(queue, consumer)
        roster.remove_consumer(self._state, queue, consumer)
        self._transitions.out.append(e.Detached(queue.name, consumer.name, timeout))
        self.promote(queue)
        self._transitions.dispatch(queue)
        self.check_auto_delete(queue)
        return True

    def leave_stage(self, stage: Stage) -> None:
        """Detach the consumer that `args` names, as far as that fits into this transaction."""
        queue = self._transitions.queue(stage.queue)
        name, timeout = stage.args
        if not self.leave(queue, queue.consumers[name], timeout=timeout):
            self._transitions.stages.append(stage)

    def check_auto_delete(self, queue: Queue) -> None:
        """Have a non-durable queue deleted at the end of this step if nobody uses it (R70)."""
        if not (queue.spec.durable or queue.consumers or queue.orphans):
            self.to_auto_delete.append(queue)

    def promote(self, queue: Queue) -> None:
        """Make backups active, in attach order, while there is a place (R11)."""
        most = self._most_active(queue)
        active, _ = self._places(queue)
        for consumer in sorted(queue.consumers.values(), key=lambda consumer: consumer.order):
            if not consumer.active and (most < 0 or active < most):
                roster.activate(queue, consumer)
                active += 1
                self._report_attached(queue, consumer)

    def fit_window(self, queue: Queue) -> bool:
        """Attach, resize or detach the consumer of a managed window, as the setting says (R12).

        Returns:
            False if some of a detach is left (R114).
        """
        size = queue.spec.window
        consumer = queue.consumers.get(WINDOW)
        if consumer is not None:
            if size:
                roster.set_credit(queue, consumer, size)
            else:
                return self.leave(queue, consumer, timeout=False)
        elif size:
            order, now = roster.next_order(queue), self._transitions.now
            self._join(queue, Consumer(WINDOW, order, size, 0, AckMode.INDIVIDUAL, "", True, now))
        return True

    # --- silence ---------------------------------------------------------------------------------

    def deadline(self, queue: Queue, consumer: Consumer) -> int:
        """When silence ends a consumer's attachment, or a lease of the window; 0: never (R12, R13).

        It does so only if the consumer was heard until then; see `end_silent` (R110).
        """
        if consumer.name == WINDOW:
            lease_ms, number = queue.spec.window_lease, min(consumer.positions, default=0)
            if not (lease_ms and number):
                return 0
            first: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
            return first.handed_ms + lease_ms
        timeout_ms = queue.spec.consumer_timeout
        return consumer.seen_ms + timeout_ms if timeout_ms else 0

    def end_silent(self, queue: Queue, consumer: Consumer, heard: Heard, most: int) -> int:
        """Detach a silent consumer, or return overdue deliveries of the window (R12, R13, R110).

        Args:
            queue: the consumer's queue.
            consumer: it or, for its leases, the consumer of the window.
            heard: when consumers could be heard.
            most: how many leases to end.

        Returns:
            How many leases or consumers have ended.
        """
        if consumer.name != WINDOW:
            timeout_ms = queue.spec.consumer_timeout
            if not timeout_ms or not heard.covers(consumer.seen_ms, timeout_ms):
                return 0
            self._state.use(queue)
            self._transitions.expire(queue)
            self._transitions.perform(Stage(LEAVE, queue.name, (consumer.name, True)))
            return 1
        lease_ms = queue.spec.window_lease
        if not lease_ms:
            return 0
        done = last = 0
        for number in sorted(consumer.positions)[: max(most, 1)]:
            held: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
            if heard.covers(held.handed_ms, lease_ms):
                done, last = done + 1, number
        if done:
            self._state.use(queue)
            self._transitions.expire(queue)
            self._transitions.perform(Stage(LEASES, queue.name, (last,)))
        return done

    def watch_leases(self, queue: Queue) -> None:
        """Plan the end of leases in a state that was written before there were any (R12)."""
        window = queue.consumers.get(WINDOW)
        deadline = self.deadline(queue, window) if window else 0
        planned_ms = max(deadline, self._transitions.now + limits.UNHEARD_RECHECK_MS)
        if deadline and not 0 < queue.wake_ms <= planned_ms:
            self._state.use(queue)
            self._transitions.wake_by(queue, deadline)

    def leases_stage(self, stage: Stage) -> None:
        """End the leases up to that delivery, as many as fit into this transaction (R12, R114)."""
        queue = self._transitions.queue(stage.queue)
        self._state.use(queue)
        (last,) = stage.args
        window = [queue.consumers[WINDOW]]
        if self._transitions.requeue_held(queue, window, delayed=False, last=last):
            self._transitions.dispatch(queue)
        else:
            self._transitions.stages.append(stage)

    # --- settling --------------------------------------------------------------------------------

    def ack(self, ack: c.Ack) -> None:
        """Settle a delivery as accepted; in mode `client` also all before it (R16)."""
        queue, delivery = self.find_delivery(ack)
        consumer = queue.consumers[delivery.consumer]
        if consumer.ack_mode is AckMode.CLIENT:
            self._transitions.expire(queue)
            self._ack_all(queue, delivery)
            return
        # A consumer that had room was offered all it wants; but with Artemis the head may expire.
        dispatches = not consumer.is_open() or queue.policy.expires_when_met
        self._transitions.run(queue, self._transitions.acked, delivery, dispatches=dispatches)

    def ack_many(self, ack: c.AckMany) -> None:
        """Settle several deliveries of a consumer as accepted; refuse those that have ended."""
        queue = self._transitions.queue(ack.queue)
        consumer = queue.consumers.get(ack.consumer)
        found: dict[int, Delivery] = {}
        for number, message_id in ack.deliveries:
            delivery = _held(queue, consumer, message_id, number)
            if delivery is not None and delivery.number not in found:
                found[delivery.number] = delivery
                continue
            reason = Refusal.STALE_DELIVERY
            if delivery is None:
                reason = _why_not_held(queue, c.Ack(queue.name, ack.consumer, message_id, number))
            if reason is Refusal.BAD_COMMAND:
                raise CommandRefused(reason, message_id, _NO_DELIVERY[reason])
            text = _NO_DELIVERY[reason]
            self._transitions.out.append(e.Refused(queue.name, reason, message_id, text, number))
        if consumer is None or not found:
            raise Idle
        self._alive(queue, consumer)
        if consumer.ack_mode is AckMode.CLIENT:
            self._transitions.expire(queue)
            self._ack_all(queue, found[max(found)])
            return
        dispatches = not consumer.is_open() or queue.policy.expires_when_met
        self._transitions.run(queue, self._acked, found.values(), dispatches=dispatches)

    def _acked(self, queue: Queue, accepted: Iterable[Delivery]) -> None:
        for delivery in accepted:
            self._transitions.acked(queue, delivery)

    def covered(self, queue: Queue, delivery: Delivery) -> list[tuple[Queue, Delivery]]:
        """What an ack settles: in mode `client` all delivered before in the whole session (R16)."""
        consumer = queue.consumers[delivery.consumer]
        if consumer.ack_mode is not AckMode.CLIENT:
            return [(queue, delivery)]
        numbers = self._covered_numbers(queue, consumer, delivery.number)
        return [(other, other.deliveries.get(number)) for number, other in numbers]  # type: ignore[misc]

    def _covered_numbers(
        self, queue: Queue, consumer: Consumer, last: int
    ) -> list[tuple[int, Queue]]:
        found = [
            (number, other_queue)
            for other_queue, other in self._companions(queue, consumer)
            for number in other.positions
            if number <= last
        ]
        return sorted(found, key=_number)

    def _ack_all(self, queue: Queue, last: Delivery) -> None:
        """Settle deliveries of several queues: each stage of the funnel for all of them."""
        consumer = queue.consumers[last.consumer]
        covered = self._covered_numbers(queue, consumer, last.number)
        touched = dict.fromkeys([other_queue for _, other_queue in covered])
        for other_queue in touched:
            self._transitions.expire(other_queue)
        args = (consumer.name, last.number, [other_queue.name for other_queue in touched])
        self._transitions.perform(Stage(ACK, queue.name, args))

    def ack_stage(self, stage: Stage) -> None:
        """Settle as many of them as fit into this transaction (R114)."""
        name, last, touched = stage.args
        queue = self._transitions.queue(stage.queue)
        for number, other_queue in self._covered_numbers(queue, queue.consumers[name], last):
            if not self._transitions.has_room:
                self._transitions.stages.append(stage)
                return
            delivery: Delivery = other_queue.deliveries.get(number)  # type: ignore[assignment]
            self._transitions.spend(delivery.size_bytes)
            self._state.use(other_queue)
            self._transitions.acked(other_queue, delivery)
        for other_name in touched:
            self._transitions.dispatch(self._transitions.queue(other_name))

    def release(self, release: c.Release) -> None:
        """Return one delivery: a returning set of one (R23)."""
        if release.delay_ms is not None and not 0 <= release.delay_ms <= limits.TIME_MS:
            raise bad(release.message, f"delay_ms must be 0 or more, not {release.delay_ms}")
        queue, delivery = self.find_delivery(release)
        self._transitions.run(queue, self._release, delivery, release.delay_ms)

    def _release(self, queue: Queue, delivery: Delivery, delay_ms: int | None) -> None:
        self._transitions.requeue(queue, [delivery], delayed=True, delay_ms=delay_ms, alone=True)

    def reject(self, reject: c.Reject) -> None:
        """Settle a delivery as dead (R41)."""
        queue, delivery = self.find_delivery(reject)
        self._transitions.run(queue, self._transitions.rejected, delivery, reject.text)

    def find_delivery(self, settle: c.Ack | c.Release | c.Reject) -> tuple[Queue, Delivery]:
        """The delivery that a consumer settles.

        Raises:
            CommandRefused: there is none; with the reason that R103 names.
        """
        queue = self._transitions.queue(settle.queue)
        consumer = queue.consumers.get(settle.consumer)
        delivery = _held(queue, consumer, settle.message, settle.delivery)
        if consumer is None or delivery is None:
            reason = _why_not_held(queue, settle)
            raise CommandRefused(reason, settle.message, _NO_DELIVERY[reason])
        self._alive(queue, consumer)
        return queue, delivery

    # --- returning -------------------------------------------------------------------------------

    def recover(self, recover: c.Recover) -> None:
        """Return all that a consumer holds; it stays attached (R20)."""
        queue, consumer = self._find(recover)
        self._alive(queue, consumer)
        self._transitions.expire(queue)
        self._transitions.perform(Stage(RETURN, queue.name, (consumer.name,)))

    def return_stage(self, stage: Stage) -> None:
        """Return as much of what these consumers hold as fits into this transaction (R114)."""
        queue = self._transitions.queue(stage.queue)
        self._state.use(queue)
        consumers = [queue.consumers[name] for name in stage.args]
        if self._transitions.requeue_held(queue, consumers, delayed=True):
            self._transitions.dispatch(queue)
        else:
            self._transitions.stages.append(stage)

    def _requeue(self, queue: Queue, held: Iterable[Delivery], acked: Iterable[int]) -> None:
        self._transitions.requeue(queue, held, delayed=True, acked=frozenset(acked))

    def rollback(self, rollback: c.Rollback) -> None:
        """Return, per queue as one set, all that the consumers of a session hold (R80)."""
        members = list(self._state.session(rollback.session))
        if not members:
            raise bad(rollback.session, "no consumer is attached in a session of that name")
        by_queue: dict[str, list[str]] = {}
        for (queue_name, consumer_name), _ in members:
            by_queue.setdefault(queue_name, []).append(consumer_name)
        held: dict[int, tuple[Queue, Delivery]] = {}
        queues = [self._transitions.queue(queue_name) for queue_name in by_queue]
        for queue in queues:
            for consumer in sorted((queue.consumers[n] for n in by_queue[queue.name]), key=_order):
                self._alive(queue, consumer)
                if queue.policy.ends_set_first:
                    held.update((each.number, (queue, each)) for each in queue.held_by(consumer))
        acked = _acked(held, rollback.acked)
        first = [held[number] for number in acked]
        rest = [each for number, each in held.items() if number not in acked]
        for queue in queues:
            if queue.policy.ends_set_first:  # C2, C9: also the order of the acks matters
                returning = [delivery for where, delivery in first + rest if where is queue]
                self._transitions.run(queue, self._requeue, returning, acked)
            else:
                self._transitions.expire(queue)
                self._transitions.perform(Stage(RETURN, queue.name, tuple(by_queue[queue.name])))

    def _companions(self, queue: Queue, consumer: Consumer) -> Iterable[tuple[Queue, Consumer]]:
        """The consumers of a consumer's session; without a session only itself."""
        if not consumer.session:
            yield queue, consumer
            return
        for (queue_name, name), _ in list(self._state.session(consumer.session)):
            other_queue = self._transitions.queue(queue_name)
            self._state.use(other_queue)
            yield other_queue, other_queue.consumers[name]

    def _find(
        self, command: c.Credit | c.Heartbeat | c.Detach | c.Recover
    ) -> tuple[Queue, Consumer]:
        queue = self._transitions.queue(command.queue)
        consumer = queue.consumers.get(command.consumer)
        if consumer is None:
            raise bad(command.consumer, "no consumer of that name is attached; attach it first")
        return queue, consumer

    def _find_person(self, command: c.Credit | c.Detach) -> tuple[Queue, Consumer]:
        """As `_find`, but not the consumer of a managed window."""
        if command.consumer == WINDOW:
            raise bad(WINDOW, "a managed window is changed by the queue's setting `window`")
        return self._find(command)


def _order(consumer: Consumer) -> int:
    return consumer.order


def _number(pair: tuple[int, Queue]) -> int:
    return pair[0]


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
            found |= dict.fromkeys([each for each in sorted(held) if each <= meant[0]])
        else:
            found |= dict.fromkeys(meant[:1])
    return found


def check(attach: c.Attach | c.Subscribe) -> None:
    """Check the values of an attach or a subscribe.

    Raises:
        CommandRefused: one of them is invalid (R15, R103).
    """
    if attach.consumer == WINDOW:
        raise bad(WINDOW, "this name is reserved for managed windows")
    if not 0 <= attach.credit <= limits.CREDIT:
        raise bad(attach.consumer, f"credit must be from 0 to {limits.CREDIT}")
    if not 0 <= attach.credit_bytes <= limits.CREDIT_BYTES:
        raise bad(attach.consumer, f"credit_bytes must be from 0 to {limits.CREDIT_BYTES}")
    try:
        if attach.selector:
            compile_selector(attach.selector)
    except BadSelector as error:
        raise CommandRefused(Refusal.BAD_SELECTOR, attach.consumer, str(error)) from None


def _held(queue: Queue, consumer: Consumer | None, message_id: str, number: int) -> Delivery | None:
    """The delivery of that message that the consumer may settle; number 0: the oldest."""
    if consumer is None:
        return None
    for each in consumer.held.get(message_id, ()):
        if not number or number == each:
            delivery: Delivery | None = queue.deliveries.get(each)
            assert delivery is not None
            if not delivery.xid:
                return delivery
    return None


def _why_not_held(queue: Queue, settle: c.Ack | c.Release | c.Reject) -> Refusal:
    """Why a consumer may not settle this delivery (R103)."""
    consumer = queue.consumers.get(settle.consumer)
    numbers = consumer.held.get(settle.message, ()) if consumer else ()
    reason = queue.history.classify(settle.consumer, settle.message)
    is_held = settle.delivery in numbers if settle.delivery else bool(numbers)
    if is_held or _is_orphaned(queue, settle):
        return Refusal.STALE_DELIVERY  # settled in an undecided transaction
    return reason


def _is_orphaned(queue: Queue, settle: c.Ack | c.Release | c.Reject) -> bool:
    """Tell whether a detached consumer has settled this in an undecided transaction (R81, R103)."""
    return queue.orphans > 0 and any(
        held.is_orphan
        and (held.consumer, held.message.id) == (settle.consumer, settle.message)
        and settle.delivery in (0, held.number)
        for _, held in queue.deliveries
    )


_NO_DELIVERY = {
    Refusal.BAD_COMMAND: "no consumer of that name ever attached to this queue",
    Refusal.UNKNOWN_DELIVERY: "this consumer never held that message, or too long ago",
    Refusal.STALE_DELIVERY: "the delivery was settled or returned",
    Refusal.EVICTED: "the delivery returned, and the message was evicted since",
}
