"""How messages come in: the ring, the limits, addresses (R2, R3, R30, R33, R43, R50, R60–R71)."""

from __future__ import annotations

import copy

from ringfaust.core import commands as c
from ringfaust.core import limits
from tests.model.naive_artemis import Artemis
from tests.model.naive_parts import Address, Refuse, need
from tests.model.naive_queue import Message, Queue
from tests.model.naive_selectors import selects


def message_of(do: c.Send) -> Message:
    """The message as it is sent; it has no place in a queue yet."""
    return Message(
        do.id, 0, do.priority, do.sent_ms, do.expires_at_ms, do.due_ms, do.group, do.size_bytes,
        do.payload, do.persistent,
    )  # fmt: skip


class Sending(Artemis):
    """What sends do."""

    def send(self, do: c.Send) -> None:
        """To a queue, or to each of an address' that wants it."""
        a = self.address(do.queue)
        if a is not None:
            self.publish(a, do)
            return
        q = self.queue(do.queue)
        need(not self.loops(q, do))
        if self.repeats(q, do):
            raise Refuse("duplicate")
        self.enter(q, do)

    def publish(self, a: Address, do: c.Send) -> None:
        all_of_it = [self.queues[name] for name in a.members]
        wanting = [q for q in all_of_it if selects(q.spec.selector, message_of(do))]
        for q in wanting:
            if self.loops(q, do):
                self.say("refused", q, "bad_command")
            elif self.repeats(q, do):
                self.say("refused", q, "duplicate")
            else:
                self.enter(q, do)
        if not wanting:
            self.facts.append(("unrouted", a.name, do.id))
        if a.has_ring is None:
            a.has_ring = a.spec.retroactive_count > 0
        if a.spec.compat == "default":
            a.kept.append(do)
            self.fit_kept(a)
        elif a.has_ring:
            self.rotate(a, do)

    @staticmethod
    def loops(q: Queue, do: c.Send) -> bool:
        """It was sent again too often (R43)."""
        return q.spec.max_redrives != -1 and do.redrives > q.spec.max_redrives

    @staticmethod
    def repeats(q: Queue, do: c.Send) -> bool:
        """Its producer sent it before (R119)."""
        if do.id not in q.sent:
            return False
        sent_ms, sequence = q.sent[do.id]
        is_redrive = do.redrive_of == f"{q.name}/{sequence}"
        return not is_redrive and do.sent_ms < sent_ms + q.spec.dedup_window

    def enter(self, q: Queue, do: c.Send) -> None:
        """A message comes into the queue: by a send, a move, or as a copy."""
        self.expire(q)
        if reason := self.refusal(q, do):
            q.counts["refused"] += 1
            self.say("refused", q, reason)
            self.say("dead", q, do.id, "limit" if reason == "queue_full" else reason, "", "")
            return
        m = self.append(q, do)
        if not m.is_expired(self.now) or q.as_artemis:
            self.keep_limits(q, m)

    def append(self, q: Queue, do: c.Send) -> Message:
        """All but the limits."""
        q.sequences += 1
        q.counts["added"] += 1
        if q.spec.dedup_window:
            q.sent[do.id] = do.sent_ms, q.sequences
        is_expired = 0 < do.expires_at_ms <= self.now and not q.as_artemis
        is_past = 0 < do.due_ms <= self.now and q.as_artemis  # C7
        is_scheduled = (do.due_ms > self.now or is_past) and not is_expired
        m = message_of(do)
        m.sequence = q.sequences
        q.idle_groups = [group for group in q.idle_groups if group != m.group]
        m.due_ms = do.due_ms if is_scheduled else 0
        self.say("scheduled" if is_scheduled else "added", q, m.id, m.sequence)
        if is_expired:
            self.leave_expired(q, m)
        elif is_past:
            self.come_due_together(q, [m])
        elif is_scheduled:
            q.scheduled.append((do.due_ms, m))
        else:
            m.place = (1, m.sequence)
            m.number = m.sequence
            q.ready.append(m)
            self.offer(q, m)
            if m in q.ready and q.is_over():
                self.evict(q, q.victim(), "overflow", m.id)
            if q.as_artemis:
                self.meet_heads(q)
        return m

    # --- limits (R60) -----------------------------------------------------------------------------

    def refusal(self, q: Queue, do: c.Send) -> str:
        """Why the queue does not take the message; empty: it does."""
        spec = q.spec
        if -1 != spec.max_message_bytes < do.size_bytes:
            return "too_large"
        if spec.when_full == "block" and -1 != spec.max_bytes < do.size_bytes:
            return "too_large"  # it could never come in
        if spec.when_full == "reject_newest" and max(spec.max_messages, spec.max_bytes) != -1:
            # As the limits are tested after the ring: try it, and look.
            trial = Sending({})
            trial.now = self.now
            other = copy.deepcopy(q)
            trial.append(other, do)
            if other.exceeds(0, 0):
                return "queue_full"
        return ""

    def keep_limits(self, q: Queue, m: Message) -> None:
        when_full = q.spec.when_full
        if when_full == "drop_newest" and q.exceeds(0, 0):
            if m in q.ready or any(m is other for _, other in q.scheduled):
                self.evict(q, m, "limit", m.id)
        while when_full in ("drop_oldest", "drop_lowest_priority") and q.exceeds(0, 0):
            if not q.ready:
                return
            victim = q.by_position()[0] if when_full == "drop_oldest" else q.least()
            self.evict(q, victim, "limit", m.id)

    def pausing_queue(self, do: c.Send) -> str | None:
        """The queue for which the message has to stay where it is (R60, R61, R90)."""
        a = self.addresses.get(do.queue)
        names = a.members if a else [do.queue]
        for name in names:
            q = self.queues.get(name)
            if q is None and name in self.declared:
                q = Queue(name, {}, self.spec(name, {}))
            if q is not None and not do.xid:
                is_blocked = q.spec.when_full == "block" and q.exceeds(1, 1)
                if is_blocked or "pulling" in q.paused:
                    return name
        return None

    # --- addresses (R70, R71) ---------------------------------------------------------------------

    def fit_kept(self, a: Address) -> None:
        count = a.spec.retroactive_count
        if a.spec.compat == "default":
            a.kept = a.kept[-count:] if count else []

    def join(self, a: Address, q: Queue) -> None:
        """A new queue of the address first gets what that has kept."""
        a.members.append(q.name)
        kept = a.kept if a.spec.retroactive_count else []
        if q.as_artemis:  # C11
            kept = sorted(kept, key=lambda do: -do.priority)
        for do in kept:
            wants = selects(q.spec.selector, message_of(do))
            if wants and not 0 < do.expires_at_ms <= self.now:
                copied = do._replace(queue=q.name, sent_ms=self.now, due_ms=0, redrives=0)
                self.enter(q, copied)

    # --- queues of an address ---------------------------------------------------------------------

    def create(self, do: c.CreateQueue) -> None:
        """A queue, of an address or not."""
        name, is_part, rest = do.queue.partition("::")
        need(self.address(do.queue) is None)
        a = self.address(name) if is_part else None
        if is_part and a is None:
            raise Refuse("unknown_queue")
        need(0 < len(do.queue) <= limits.NAME_CHARS)
        need(rest or not is_part)
        need(do.queue not in self.queues and do.queue not in self.declared)
        need(a is None or a.spec.routing == "multicast" or not a.members)
        self.spec(do.queue, do.settings)
        self.facts.append(("configured", do.queue, dict(do.settings), True))
        q = self.make(do.queue, do.settings)
        if a is not None:
            self.join(a, q)

    def on_ConfigureAddress(self, do: c.ConfigureAddress) -> None:
        a = self.address(do.address)
        if a is None:
            raise Refuse("unknown_queue")
        own = {**a.own, **do.settings}
        spec = self.address_spec(a.name, own)
        need(spec.routing == "multicast" or len(a.members) <= 1)
        a.own, a.spec = own, spec
        self.fit_kept(a)
        self.facts.append(("configuredaddress", a.name, dict(do.settings)))
