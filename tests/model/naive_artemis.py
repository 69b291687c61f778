"""What is different with `compat: artemis` (section 13).

A message's place is (rank, number), as with all queues: plain ones have rank 1. What comes to the
head gets a rank below all that are ready in its priority. The number is the sequence of what was
sent plainly; of what was scheduled when sent it is 0.
"""

from __future__ import annotations

from ringfaust.core import commands as c
from tests.model.naive_parts import Address, Parts
from tests.model.naive_queue import Held, Message, Queue


class Artemis(Parts):
    """Parts of the model that ask whether the queue is like Artemis'."""

    def dispatch(self, q: Queue) -> None:
        if not q.as_artemis:
            super().dispatch(q)
        elif "dispatch" not in q.paused:
            for m in q.in_delivery_order():
                if not any(k.active and q.has_room(k) for k in q.consumers):
                    break
                if m.is_expired(self.now):
                    self.meet(q, m)
                elif (k := q.taker(m)) is not None:
                    self.hand_over(q, m, k)
            self.meet_heads(q)

    def meet_heads(self, q: Queue) -> None:
        """C1: the next one leaves if it has expired, whether a consumer has credit or not."""
        while "dispatch" not in q.paused and q.consumers and q.ready:
            head = q.in_delivery_order()[0]
            if not head.is_expired(self.now):
                return
            self.meet(q, head)

    def meet(self, q: Queue, m: Message) -> None:
        """C12: to meet an expired message is a turn."""
        self.leave_expired(q, m)
        highest = max(k.priority for k in q.consumers)
        orders = sorted(k.order for k in q.consumers if k.priority == highest)
        last, _ = q.cursors.get(highest, (0, 0))
        after = [order for order in orders if order > last]
        q.cursors[highest] = ((after or orders)[0], q.spec.batch)

    def begin_turns_anew(self, q: Queue) -> None:
        """C12: a consumer has come or gone."""
        if q.as_artemis:
            q.cursors = {}

    def offer(self, q: Queue, m: Message) -> None:
        """A sent message passes those that nobody wanted; then who is next may be met."""
        if not q.as_artemis:
            self.dispatch(q)
        elif "dispatch" not in q.paused and (k := q.taker(m)) is not None:
            self.hand_over(q, m, k)

    @staticmethod
    def rotate(a: Address, do: c.Send) -> None:
        """C11: what an address keeps is a ring as any other: one comes, the next one (C1) goes."""
        a.kept.append(do)
        if len(a.kept) > a.spec.retroactive_count:
            highest = max(each.priority for each in a.kept)
            a.kept.remove(next(each for each in a.kept if each.priority == highest))

    # --- coming due (C4, C5, C6, C7) --------------------------------------------------------------

    def come_due_together(self, q: Queue, due: list[Message]) -> None:
        """Each to the head, the latest first; what came back counts as sent before the others."""
        came_back = sorted((m for m in due if m.turn), key=lambda m: (m.turn, m.number))
        sent = sorted((m for m in due if not m.turn), key=lambda m: m.sequence)
        for m in reversed(came_back + sent):
            self.withdraw(q, m)
            if q.is_full() and (q.spec.scheduled_when_full == "drop" or not q.ready):
                self.evict(q, m, "scheduled_overflow", "")
                continue
            if q.is_full():
                self.evict(q, q.by_position()[0], "scheduled_overflow", m.id)
            self.to_head(q, m)
            q.ready.append(m)
            self.say("due", q, m.id)
        self.dispatch(q)

    @staticmethod
    def to_head(q: Queue, m: Message) -> None:
        ranks = [other.place[0] for other in q.ready if other.priority == m.priority]
        m.place = (min([1, *ranks]) - 1, m.number)

    # --- coming back (C2, C3, C6, C8, C9) ---------------------------------------------------------

    def come_back(self, q: Queue, h: Held, turn: int, delay: int, *, is_tested: bool) -> None:
        """After the tests of R40: once against the ring, then it waits or is ready."""
        m = h.message
        if is_tested and q.is_full():
            self.evict(q, m, "return_overflow", "")
        elif delay > 0:
            m.turn = turn
            q.scheduled.append((self.now + delay, m))
            self.say("returned", q, m.id, m.attempts, self.now + delay)
        else:
            self.sort_in(q, m)
            q.ready.append(m)
            self.say("returned", q, m.id, m.attempts, 0)

    def sort_in(self, q: Queue, m: Message) -> None:
        """Where Artemis finds a place for its number, also in a ring that is not in order."""
        same = [other for other in q.in_delivery_order() if other.priority == m.priority]
        if m.number and all(other.place[0] == 1 for other in same):
            m.place = (1, m.number)
        elif not same or m.number <= same[0].number:
            self.to_head(q, m)
        elif m.number >= same[-1].number:
            m.place = (same[-1].place[0], m.number)
        else:
            index = next(i for i, other in enumerate(same) if m.number <= other.number)
            m.place = (same[index - 1].place[0], m.number)
