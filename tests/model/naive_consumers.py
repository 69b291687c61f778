"""What consumers ask for: to join, to settle, to give back, to leave (R10–R24, R40, R41)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor

from ringfaust.core import commands as c
from ringfaust.core import limits
from ringfaust.core.model import AckMode
from ringfaust.core.settings import QueueSpec
from tests.model.naive_parts import Refuse, need
from tests.model.naive_queue import Consumer, Held, Queue
from tests.model.naive_selectors import BAD_SELECTORS
from tests.model.naive_sending import Sending

WINDOW = "@window"
"""Stands for a managed window (R12)."""


class Consuming(Sending):
    """What consumers do."""

    def on_Attach(self, do: c.Attach) -> None:
        q = self.queue(do.queue)
        self.check(do)
        need(q.consumer(do.consumer) is None)
        active = self.has_place(q)
        backups = [k for k in q.consumers if not k.active]
        if not active and len(backups) >= q.spec.max_backup_consumers:
            raise Refuse("consumer_limit")
        priorities = {k.priority for k in q.consumers}
        if do.priority not in priorities and len(priorities) >= limits.CONSUMER_PRIORITIES:
            raise Refuse("limit")
        self.arrive(q, Consumer(
            do.consumer, 0, do.credit, do.priority, do.ack_mode, do.session, active, self.now,
            do.selector, do.credit_bytes,
        ))  # fmt: skip
        self.expire(q)
        self.dispatch(q)

    def check(self, do: c.Attach | c.Subscribe) -> None:
        need(do.consumer != WINDOW)
        need(0 <= do.credit <= limits.CREDIT)
        need(0 <= do.credit_bytes <= limits.CREDIT_BYTES)
        if do.selector in BAD_SELECTORS:
            raise Refuse("bad_selector")

    def arrive(self, q: Queue, k: Consumer) -> None:
        q.orders += 1
        k.order = q.orders
        q.consumers.append(k)
        self.begin_turns_anew(q)
        q.ended.setdefault(k.name, {})
        self.say("attached", q, k.name, k.active, k.priority)

    def on_Subscribe(self, do: c.Subscribe) -> None:
        """R70."""
        self.check(do)
        a = self.address(do.address)
        if a is None:
            raise Refuse("unknown_queue")
        need(a.spec.routing == "multicast")
        name = do.consumer
        if do.subscription:
            name = f"{do.client}.{do.subscription}" if do.client else do.subscription
        name = f"{a.name}::{name}"
        if name in a.members:
            spec = self.queue(name).spec
            need(do.subscription and spec.durable and spec.selector == do.selector)
        else:
            own = {"selector": do.selector, "shared": do.shared, "durable": bool(do.subscription)}
            self.create(c.CreateQueue(name, own))
        self.on_Attach(c.Attach(
            name, do.consumer, do.credit, do.priority, do.ack_mode, do.session, "",
            do.credit_bytes,
        ))  # fmt: skip

    def on_Credit(self, do: c.Credit) -> None:
        need(do.consumer != WINDOW)
        q, k = self.attached(do.queue, do.consumer)
        need(do.add >= 0 and k.credit + do.add <= limits.CREDIT)
        self.expire(q)
        k.credit += do.add
        k.seen_ms = self.now
        self.dispatch(q)

    def on_Heartbeat(self, do: c.Heartbeat) -> None:
        _, k = self.attached(do.queue, do.consumer)
        k.seen_ms = self.now

    def on_Detach(self, do: c.Detach) -> None:
        need(do.consumer != WINDOW)
        q, k = self.attached(do.queue, do.consumer)
        self.detach(q, k, "detach")

    def detach(self, q: Queue, k: Consumer, why: str) -> None:
        """It goes, what it held comes back, the groups it had are free, a backup moves up.

        What it has settled in an undecided transaction waits for that alone (R81).
        """
        self.expire(q)
        self.requeue(q, q.held_by(k.name), why)
        for h in q.held:
            if h.consumer == k.name:
                h.is_orphan = True
                q.ended[k.name][h.message.id] = "stale_delivery"
        q.consumers.remove(k)
        if k.priority not in [other.priority for other in q.consumers]:
            q.cursors.pop(k.priority, None)  # R120
        self.begin_turns_anew(q)
        q.owners = {group: name for group, name in q.owners.items() if name != k.name}
        self.say("detached", q, k.name, why == "timeout")
        self.promote(q)
        self.dispatch(q)
        self.end_if_alone(q)

    def end_if_alone(self, q: Queue) -> None:
        """One that is not durable ends with its last consumer (R70)."""
        in_doubt = [h for h in q.held if h.is_orphan]
        if not (q.spec.durable or q.consumers or in_doubt) and q.name in self.queues:
            self.delete(q)

    def delete(self, q: Queue) -> None:
        raise NotImplementedError

    def promote(self, q: Queue) -> None:
        for k in sorted(q.consumers, key=lambda k: k.order):
            if not k.active and self.has_place(q):
                k.active = True
                self.say("attached", q, k.name, True, k.priority)

    def has_place(self, q: Queue) -> bool:
        """One for a subscription that is not shared (R70), unless its settings say how many."""
        most = q.spec.max_active_consumers
        a = self.addresses.get(q.name.partition("::")[0])
        if most == -1 and a is not None and a.spec.routing == "multicast" and not q.spec.shared:
            most = 1
        return most == -1 or len([k for k in q.consumers if k.active and k.name != WINDOW]) < most

    def fit_window(self, q: Queue) -> None:
        """R12."""
        k = q.consumer(WINDOW)
        if k is not None and not q.spec.window:
            self.detach(q, k, "detach")
        elif k is not None:
            k.credit = q.spec.window
        elif q.spec.window:
            mode = AckMode.INDIVIDUAL
            self.arrive(q, Consumer(WINDOW, 0, q.spec.window, 0, mode, "", True, self.now))

    # --- settling (R16, R23, R41, R103) -----------------------------------------------------------

    def on_Ack(self, do: c.Ack) -> None:
        x = self.own_xid(do) if do.xid else None
        q, k, held = self.holding(do)
        acked = [(q, held)]
        if k.mode is AckMode.CLIENT:
            acked = [
                (other, h)
                for other, member in self.session(k.session) or [(q, k)]
                for h in other.held_by(member.name)
                if h.number <= held.number
            ]
        acked.sort(key=lambda pair: pair[1].number)
        if x is not None:  # R81: later
            self.expire(q)
            for other, h in acked:
                h.xid = x.name
                x.operations.append((other, h))
                self.say("pending", other, x.name, h.message.id)
            return
        for other in {id(q): q for q, _ in acked}.values():
            self.expire(other)
        for other, h in acked:
            self.end(other, h)
            self.accept(other, h)
        for other in {id(q): q for q, _ in acked}.values():
            self.dispatch(other)

    def on_AckMany(self, do: c.AckMany) -> None:
        q = self.queue(do.queue)
        found: list[tuple[Consumer, Held]] = []
        for number, message in do.deliveries:
            try:
                _, k, held = self.holding(c.Ack(do.queue, do.consumer, message, number))
                if held in [h for _, h in found]:
                    raise Refuse("stale_delivery")
            except Refuse as no:
                if no.args == ("bad_command",):
                    raise
                self.say("refused", q, *no.args)
            else:
                found.append((k, held))
        if not found:
            self.now = self.before  # nothing has changed
            return
        k, last = max(found, key=lambda pair: pair[1].number)
        if k.mode is AckMode.CLIENT:
            self.on_Ack(c.Ack(do.queue, do.consumer, last.message.id, last.number))
            return
        self.expire(q)
        for _, held in found:
            self.end(q, held)
            self.accept(q, held)
        self.dispatch(q)

    def own_xid(self, do: c.Ack):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def on_Release(self, do: c.Release) -> None:
        need(do.delay_ms is None or do.delay_ms >= 0)
        q, _, held = self.holding(do)
        self.expire(q)
        self.requeue(q, [held], "release", do.delay_ms)
        self.dispatch(q)

    def on_Reject(self, do: c.Reject) -> None:
        q, _, held = self.holding(do)
        self.expire(q)
        self.end(q, held)
        self.die(q, held, "rejected", do.text)
        self.dispatch(q)

    def on_Recover(self, do: c.Recover) -> None:
        q, k = self.attached(do.queue, do.consumer)
        k.seen_ms = self.now
        self.expire(q)
        self.requeue(q, q.held_by(k.name), "recover")
        self.dispatch(q)

    def on_Rollback(self, do: c.Rollback) -> None:
        members = self.session(do.session)
        need(members)
        all_acked = self.acked_in(members, do.acked)
        for q in {id(q): q for q, _ in members}.values():
            own = sorted((k for other, k in members if other is q), key=lambda k: k.order)
            held = [h for k in own for h in q.held_by(k.name)]
            acked = [h for h in all_acked if h in held]
            self.expire(q)
            rest = [h for h in held if h not in acked]
            self.requeue(q, acked + rest, "rollback", acked=acked)
            self.dispatch(q)
        for _, k in members:
            k.seen_ms = self.now

    @staticmethod
    def acked_in(members: list[tuple[Queue, Consumer]], acks: Iterable[c.Ack]) -> list[Held]:
        """What was acked in a transaction that is rolled back, in that order (R16, C2)."""
        found: list[Held] = []
        held = [(q, k, h) for q, k in members for h in q.held_by(k.name)]
        held.sort(key=lambda each: each[2].number)
        for ack in acks:
            meant = [
                (k, h)
                for q, k, h in held
                if (q.name, k.name, h.message.id) == (ack.queue, ack.consumer, ack.message)
                and ack.delivery in (0, h.number)
                and h not in found
            ]
            if meant and meant[0][0].mode is AckMode.CLIENT:
                last = meant[0][1].number
                found += [h for *_, h in held if h.number <= last and h not in found]
            elif meant:
                found.append(meant[0][1])
        return found

    def holding(self, do: c.Ack | c.Release | c.Reject) -> tuple[Queue, Consumer, Held]:
        """The delivery that a settle names, or why there is none (R103)."""
        q = self.queue(do.queue)
        k = q.consumer(do.consumer)
        mine = [
            h
            for h in q.held
            if h.consumer == do.consumer
            and not h.is_orphan
            and h.message.id == do.message
            and do.delivery in (0, h.number)
        ]
        for h in mine:
            if not h.xid:
                assert k is not None
                k.seen_ms = self.now
                return q, k, h
        if mine:
            raise Refuse("stale_delivery")
        need(do.consumer in q.ended)
        raise Refuse(q.ended[do.consumer].get(do.message, "unknown_delivery"))

    # --- coming back (R20 to R24, R40) ------------------------------------------------------------

    def requeue(
        self,
        q: Queue,
        returning: list[Held],
        why: str,
        own_delay: int | None = None,
        acked: Sequence[Held] = (),
    ) -> None:
        """The returning set, newest first; with Artemis the last first, after the dead (C2)."""
        staying: list[tuple[Held, int]] = []
        if not q.as_artemis:
            returning = sorted(returning, key=lambda h: h.message.place, reverse=True)
        for h in returning:
            m = h.message
            is_tried = h in acked or why in ("timeout", "xid")
            if why == "detach" or (q.as_artemis and not is_tried):  # C9
                m.attempts -= 1
            delay = self.redelivery_delay(q.spec, m.attempts) if own_delay is None else own_delay
            if why in ("detach", "timeout"):
                delay = 0
            is_dead = q.spec.max_attempts != -1 and m.attempts >= q.spec.max_attempts
            if q.as_artemis and not m.is_bodyless and not is_dead:
                staying.append((h, delay))
                continue
            self.end(q, h)
            if m.is_bodyless:
                self.lose(q, m)
            elif is_dead:
                self.die(q, h, "undeliverable", "")
            elif m.is_expired(self.now):
                self.leave_expired(q, m)
            elif delay > 0:
                q.scheduled.append((self.now + delay, m))
                self.say("returned", q, m.id, m.attempts, self.now + delay)
            elif q.is_full():
                self.evict(q, m, "return_overflow", "")
            else:
                q.ready.append(m)
                self.say("returned", q, m.id, m.attempts, 0)

        for turn, (h, delay) in reversed(list(enumerate(staying, 1))):
            self.end(q, h)
            self.come_back(q, h, turn, delay, is_tested=why != "release")

    @staticmethod
    def redelivery_delay(spec: QueueSpec, attempt: int) -> int:
        """Without the jitter, which is not the contract's to fix."""
        delay = spec.redelivery_delay * spec.redelivery_multiplier ** max(attempt - 1, 0)
        if spec.redelivery_delay_max >= 0:
            delay = min(delay, spec.redelivery_delay_max)
        return floor(delay)
