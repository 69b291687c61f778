"""A naive model of one partition, written from the contract and not from the engine.

It shares with the engine only the nouns: commands, settings, reasons. What the contract leaves
open it leaves open too: the order of effects of different queues, and with it the numbers of
deliveries of different queues in one step, which the test takes over from the engine.
"""

from __future__ import annotations

from math import floor

from ringfaust.core import command as c
from ringfaust.core import limits
from ringfaust.core.model import AckMode, QueueSpec
from tests.model.naive_parts import Fact, Parts, Refuse, need
from tests.model.naive_queue import Consumer, Held, Message, Queue


class Model(Parts):
    """One partition. `step` takes a command and a time and gives the facts, in order."""

    def step(self, command: c.Command, now_ms: int) -> list[Fact]:
        before, self.now = self.now, max(self.now, now_ms)
        self.facts = []
        self.given = []
        try:
            getattr(self, "on_" + type(command).__name__)(command)
        except Refuse as refusal:
            self.now = before
            assert not self.facts, "a refusal must come before any change"
            self.facts = [("refused", getattr(command, "queue", ""), *refusal.args)]
        return self.facts

    # --- sending (R2, R3, R30, R33, R50) ----------------------------------------------------------

    def on_Send(self, do: c.Send) -> None:
        q = self.queue(do.queue)
        self.expire(q)
        self.enter(q, do)

    def enter(self, q: Queue, do: c.Send) -> None:
        """A message comes into the queue, by a send or a move."""
        q.sequences += 1
        q.counts["added"] += 1
        is_expired = 0 < do.expires_at_ms <= self.now
        is_scheduled = do.due_ms > self.now and not is_expired
        m = Message(
            do.id, q.sequences, do.priority, do.sent_ms, do.expires_at_ms,
            do.due_ms if is_scheduled else 0, do.group, do.size_bytes, do.payload,
        )  # fmt: skip
        self.say("scheduled" if is_scheduled else "added", q, m.id, m.sequence)
        if is_expired:
            self.leave_expired(q, m)
            return
        if is_scheduled:
            q.scheduled.append((do.due_ms, m))
            return
        m.place = (1, 0, m.sequence)
        q.ready.append(m)
        self.dispatch(q)
        if m in q.ready and q.is_over():
            self.evict(q, q.victim(), "overflow", m.id)

    # --- consumers (R10, R11, R13) ----------------------------------------------------------------

    def on_Attach(self, do: c.Attach) -> None:
        q = self.queue(do.queue)
        need(0 <= do.credit <= limits.CREDIT)
        need(q.consumer(do.consumer) is None)
        active = self.has_place(q)
        backups = [k for k in q.consumers if not k.active]
        if not active and len(backups) >= q.spec.max_backup_consumers:
            raise Refuse("consumer_limit")
        q.orders += 1
        q.consumers.append(
            Consumer(
                do.consumer,
                q.orders,
                do.credit,
                do.priority,
                do.ack_mode,
                do.session,
                active,
                self.now,
            )  # fmt: skip
        )
        q.ended.setdefault(do.consumer, {})
        self.say("attached", q, do.consumer, active, do.priority)
        self.expire(q)
        self.dispatch(q)

    def on_Credit(self, do: c.Credit) -> None:
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
        q, k = self.attached(do.queue, do.consumer)
        self.detach(q, k, "detach")

    def detach(self, q: Queue, k: Consumer, why: str) -> None:
        """It goes, what it held comes back, the groups it had are free, a backup moves up."""
        self.expire(q)
        self.give_back(q, q.held_by(k.name), why)
        q.consumers.remove(k)
        q.owners = {group: name for group, name in q.owners.items() if name != k.name}
        self.say("detached", q, k.name, why == "timeout")
        self.promote(q)
        self.dispatch(q)

    def promote(self, q: Queue) -> None:
        for k in sorted(q.consumers, key=lambda k: k.order):
            if not k.active and self.has_place(q):
                k.active = True
                self.say("attached", q, k.name, True, k.priority)

    def has_place(self, q: Queue) -> bool:
        most = q.spec.max_active_consumers
        return most == -1 or len([k for k in q.consumers if k.active]) < most

    # --- settling (R16, R23, R41, R103) -----------------------------------------------------------

    def on_Ack(self, do: c.Ack) -> None:
        q, k, held = self.holding(do)
        acked = [(q, held)]
        if k.mode is AckMode.CLIENT:
            acked = [
                (other, h)
                for other, member in self.session(k.session) or [(q, k)]
                for h in other.held_by(member.name)
                if h.number <= held.number
            ]
        for other in {id(q): q for q, _ in acked}.values():
            self.expire(other)
        for other, h in sorted(acked, key=lambda pair: pair[1].number):
            self.end(other, h)
            self.accept(other, h)
        for other in {id(q): q for q, _ in acked}.values():
            self.dispatch(other)

    def on_Release(self, do: c.Release) -> None:
        need(do.delay_ms is None or do.delay_ms >= 0)
        q, _, held = self.holding(do)
        self.expire(q)
        self.give_back(q, [held], "release", do.delay_ms)
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
        self.give_back(q, q.held_by(k.name), "recover")
        self.dispatch(q)

    def on_Rollback(self, do: c.Rollback) -> None:
        members = self.session(do.session)
        need(members)
        for q in {id(q): q for q, _ in members}.values():
            names = [k.name for other, k in members if other is q]
            self.expire(q)
            self.give_back(q, [h for h in q.held if h.consumer in names], "rollback")
            self.dispatch(q)
        for _, k in members:
            k.seen_ms = self.now

    def holding(self, do: c.Ack | c.Release | c.Reject) -> tuple[Queue, Consumer, Held]:
        """The delivery that a settle names, or why there is none (R103)."""
        q = self.queue(do.queue)
        k = q.consumer(do.consumer)
        for h in q.held_by(do.consumer):
            if h.message.id == do.message and do.delivery in (0, h.number):
                assert k is not None
                k.seen_ms = self.now
                return q, k, h
        need(do.consumer in q.ended)
        raise Refuse(q.ended[do.consumer].get(do.message, "unknown_delivery"))

    # --- coming back (R20 to R24, R40) ------------------------------------------------------------

    def give_back(
        self, q: Queue, returning: list[Held], why: str, own_delay: int | None = None
    ) -> None:
        """The returning set, newest first."""
        for h in sorted(returning, key=lambda h: h.message.place, reverse=True):
            m = h.message
            self.end(q, h)
            if why == "detach":
                m.attempts -= 1
            delay = self.redelivery_delay(q.spec, m.attempts) if own_delay is None else own_delay
            if why in ("detach", "timeout"):
                delay = 0
            if q.spec.max_attempts != -1 and m.attempts >= q.spec.max_attempts:
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

    @staticmethod
    def redelivery_delay(spec: QueueSpec, attempt: int) -> int:
        """Without the jitter, which is not the contract's to fix."""
        delay = spec.redelivery_delay * spec.redelivery_multiplier ** (attempt - 1)
        if spec.redelivery_delay_max >= 0:
            delay = min(delay, spec.redelivery_delay_max)
        return floor(delay)

    # --- time (R13, R31, R32) ---------------------------------------------------------------------

    def on_Sweep(self, _: c.Sweep) -> None:
        for _, q in sorted(self.queues.items()):
            self.expire(q)
            while q.scheduled and q.by_due_time()[0][0] <= self.now:
                due_ms, m = q.by_due_time()[0]
                self.come_due(q, m, due_ms)
            timeout = q.spec.consumer_timeout
            for k in sorted(q.consumers, key=lambda k: k.order):
                if timeout and k.seen_ms + timeout <= self.now:
                    self.detach(q, k, "timeout")

    def come_due(self, q: Queue, m: Message, due_ms: int) -> None:
        """The ring test of one due message, then dispatch."""
        q.scheduled = [pair for pair in q.scheduled if pair[1] is not m]
        if m.place is None:
            m.place = (0, due_ms, m.sequence)
        if q.is_full() and q.spec.scheduled_when_full == "drop":
            self.evict(q, m, "scheduled_overflow", "")
            return
        if q.is_full():
            self.evict(q, q.by_position()[0], "scheduled_overflow", m.id)
        q.ready.append(m)
        self.say("due", q, m.id)
        self.dispatch(q)

    def expire(self, q: Queue) -> None:
        """What has outlived its time leaves before anything else happens (R50)."""
        for m in q.expired(self.now):
            self.leave_expired(q, m)

    # --- the operator (R34, R90) ------------------------------------------------------------------

    def on_CreateQueue(self, do: c.CreateQueue) -> None:
        need(0 < len(do.queue) <= limits.NAME_CHARS)
        need(do.queue not in self.queues and do.queue not in self.declared)
        q = self.make(do.queue, do.settings)
        self.say("configured", q, dict(do.settings), True)

    def on_Configure(self, do: c.Configure) -> None:
        q = self.queue(do.queue)
        own = {**q.own, **do.settings}
        spec = self.spec(do.queue, own)
        q.own, q.spec = own, spec
        self.say("configured", q, dict(do.settings), False)
        self.expire(q)
        while q.spec.shrink == "eager" and q.is_over():
            self.evict(q, q.by_position()[0], "shrink", "")
        self.promote(q)
        self.dispatch(q)

    def on_DeleteQueue(self, do: c.DeleteQueue) -> None:
        q = self.queue(do.queue)
        q.paused.add("dispatch")
        self.expire(q)
        for k in sorted(q.consumers, key=lambda k: k.order):
            self.detach(q, k, "detach")
        for m in q.by_position():
            self.evict(q, m, "purge", "")
        for _, m in q.by_due_time():
            self.take_out(q, m)
        self.say("deleted", q, q.all_counts())
        del self.queues[q.name]

    def on_Pause(self, do: c.Pause) -> None:
        q = self.queue(do.queue)
        need(do.what in ("pulling", "dispatch"))
        q.paused.add(do.what)
        self.say("paused", q, do.what, True)

    def on_Resume(self, do: c.Resume) -> None:
        q = self.queue(do.queue)
        need(do.what in ("pulling", "dispatch"))
        q.paused.discard(do.what)
        self.say("paused", q, do.what, False)
        self.expire(q)
        self.dispatch(q)

    def on_Purge(self, do: c.Purge) -> None:
        q = self.queue(do.queue)
        self.expire(q)
        for m in q.by_position():
            self.evict(q, m, "purge", "")

    def on_Remove(self, do: c.Remove) -> None:
        q = self.queue(do.queue)
        self.take_out(q, self.waiting(q, do.message))

    def on_Move(self, do: c.Move) -> None:
        target = self.queue(do.to)
        q = self.queue(do.queue)
        m = self.waiting(q, do.message)
        due_ms = next((due for due, other in q.scheduled if other is m), 0)
        self.withdraw(q, m)
        q.counts["moved_out"] += 1
        self.say("moved_out", q, m.id, do.to)
        self.expire(target)
        self.enter(
            target,
            c.Send(
                do.to,
                m.id,
                self.now,
                m.priority,
                due_ms,
                m.expires_ms,
                m.group,
                m.size_bytes,
                m.payload,
            ),  # fmt: skip
        )

    def on_CancelScheduled(self, do: c.CancelScheduled) -> None:
        q = self.queue(do.queue)
        self.take_out(q, self.waiting(q, do.message, only_scheduled=True))

    def on_DeliverNow(self, do: c.DeliverNow) -> None:
        q = self.queue(do.queue)
        m = self.waiting(q, do.message, only_scheduled=True)
        self.expire(q)
        if any(m is other for _, other in q.scheduled):
            self.come_due(q, m, self.now)
