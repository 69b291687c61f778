"""What time brings and what an operator asks for (R13, R31, R32, R34, R90)."""

from __future__ import annotations

from dataclasses import asdict, fields

from ringfaust.core import commands as c
from ringfaust.core import levels
from ringfaust.core.settings import AddressSpec, QueueSpec
from ringfaust.errors import BadSetting
from tests.model.naive_parts import Refuse, need
from tests.model.naive_queue import Message, Queue
from tests.model.naive_xids import Deciding

_SETTINGS = {each.name for each in fields(QueueSpec)}


class Operating(Deciding):
    """What sweeps and operators do."""

    # --- time (R13, R31, R32) ---------------------------------------------------------------------

    def on_Sweep(self, _: c.Sweep) -> None:
        self.end_overdue()
        for _name, q in sorted(self.queues.items()):
            self.expire(q)
            while q.scheduled and q.by_due_time()[0][0] <= self.now:
                due_ms, m = q.by_due_time()[0]
                if q.as_artemis:  # C4
                    due = [other for at, other in q.by_due_time() if at == due_ms]
                    self.come_due_together(q, due)
                else:
                    self.come_due(q, m, due_ms)
            timeout = q.spec.consumer_timeout
            for k in sorted(q.consumers, key=lambda k: k.order):
                if timeout and k.seen_ms + timeout <= self.now and k.name != "@window":
                    self.detach(q, k, "timeout")
                elif k.name == "@window":
                    self.end_leases(q)

    def end_leases(self, q: Queue) -> None:
        """R12: what a window has had for too long comes back."""
        lease = q.spec.window_lease
        late = [h for h in q.held_by("@window") if lease and h.handed_ms + lease <= self.now]
        if late:
            self.expire(q)
            self.requeue(q, late, "timeout")
            self.dispatch(q)

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

    # --- queues -----------------------------------------------------------------------------------

    def on_CreateQueue(self, do: c.CreateQueue) -> None:
        self.create(do)

    def on_Configure(self, do: c.Configure) -> None:
        q = self.queue(do.queue)
        own = {**q.own, **do.settings}
        back = [name for name, value in do.settings.items() if value is None and name in _SETTINGS]
        own = {name: value for name, value in own.items() if name not in back}
        spec = self.spec(do.queue, own)
        q.own, q.spec = own, spec
        now = {name: getattr(spec, name) for name in back}
        self.say("configured", q, {**do.settings, **now}, False)
        self.fit(q)

    def fit(self, q: Queue) -> None:
        """What new settings demand at once."""
        if not q.spec.dedup_window:
            q.sent = {}
        self.expire(q)
        while q.spec.shrink == "eager" and q.is_over():
            self.evict(q, q.by_position()[0], "shrink", "")
        self.fit_window(q)
        self.promote(q)
        if any(k.active and q.has_room(k) for k in q.consumers):
            self.dispatch(q)

    def on_Apply(self, do: c.Apply) -> None:
        """Each queue as if it had been configured; what an operator has set still wins (R128)."""
        if self.applied == (do.revision, do.configuration, do.who):
            return
        need(do.revision > self.revision)
        new = do.configuration
        try:
            for fields in (*new["queues"].values(), *new["settings"].values()):
                QueueSpec().with_fields(fields)
            for address in new["addresses"].values():
                plain = {name: each for name, each in address.items() if name != "subscriptions"}
                AddressSpec().with_fields(plain)
        except BadSetting as error:
            raise Refuse("bad_command") from error
        self.revision, self.applied = do.revision, (do.revision, do.configuration, do.who)
        self.declared, self.settings = new["queues"], new["settings"]
        self.declared_addresses = new["addresses"]
        self.facts.append(("applied", "", do.revision, do.who, do.text))
        for a in self.addresses.values():
            a.spec = self.address_spec(a.name, a.own)
            self.fit_kept(a)
        for _name, q in sorted(self.queues.items()):
            before, q.spec = q.spec, self.spec_now(q)
            changed = differing(before, q.spec)
            if not changed:
                continue
            if q.sequences or q.orders:
                self.say("configured", q, changed, False)
            self.fit(q)

    def on_RaiseLevel(self, do: c.RaiseLevel) -> None:
        """Another format, which nobody notices (R129)."""
        need(do.level <= levels.NEWEST)

    def spec_now(self, q: Queue) -> QueueSpec:
        """A ring of none that was allowed with Artemis's rules is left out without them."""
        try:
            return self.spec(q.name, q.own)
        except Refuse:
            own = {name: value for name, value in q.own.items() if name != "ring_size"}
            return self.spec(q.name, own)

    def on_DeleteQueue(self, do: c.DeleteQueue) -> None:
        q = self.queue(do.queue)
        need(not any(h.xid for h in q.held))
        self.delete(q)

    def delete(self, q: Queue) -> None:
        """What is held returns; what is ready is evicted, what is scheduled removed."""
        del self.queues[q.name]
        q.paused.add("dispatch")
        self.expire(q)
        for k in sorted(q.consumers, key=lambda k: k.order):
            self.detach(q, k, "detach")
        for m in q.by_position():
            self.evict(q, m, "purge", "")
        for _, m in q.by_due_time():
            self.take_out(q, m)
        self.say("deleted", q, q.all_counts())
        for a in self.addresses.values():
            a.members = [name for name in a.members if name != q.name]

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

    # --- messages ---------------------------------------------------------------------------------

    def on_Purge(self, do: c.Purge) -> None:
        q = self.queue(do.queue)
        self.expire(q)
        for m in q.by_position():
            self.evict(q, m, "purge", "")

    def on_Remove(self, do: c.Remove) -> None:
        q = self.queue(do.queue)
        self.take_out(q, self.waiting(q, do.message))

    def on_Move(self, do: c.Move) -> None:
        """It goes as a new message; if the other queue would refuse it, it stays."""
        target = self.queue(do.to)
        q = self.queue(do.queue)
        m = self.waiting(q, do.message)
        due_ms = next((at for at, other in q.scheduled if other is m and at > self.now), 0)
        sent = c.Send(
            do.to, m.id, self.now, m.priority, due_ms, m.expires_ms, m.group, m.size_bytes,
            m.payload, m.persistent,
        )  # fmt: skip
        if reason := self.refusal(target, sent):
            raise Refuse(reason)
        self.withdraw(q, m)
        self.left(q, m)
        q.counts["moved_out"] += 1
        self.say("moved_out", q, m.id, do.to)
        self.enter(target, sent)

    def on_CancelScheduled(self, do: c.CancelScheduled) -> None:
        q = self.queue(do.queue)
        self.take_out(q, self.waiting(q, do.message, only_scheduled=True))

    def on_DeliverNow(self, do: c.DeliverNow) -> None:
        q = self.queue(do.queue)
        m = self.waiting(q, do.message, only_scheduled=True)
        self.expire(q)
        if any(m is other for _, other in q.scheduled) and q.as_artemis:
            self.come_due_together(q, [m])
        elif any(m is other for _, other in q.scheduled):
            self.come_due(q, m, self.now)


def differing(before: QueueSpec, now: QueueSpec) -> dict[str, object]:
    """The settings that are not as before, as they are now."""
    was = asdict(before)
    return {name: value for name, value in asdict(now).items() if value != was[name]}
