"""The engine and the naive model side by side, driven by hypothesis.

Quick by default; `RINGFAUST_HYPOTHESIS=deep` looks for much longer. A failure prints the steps
that lead to it and a `@reproduce_failure` line.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ringfaust.core import command as c
from ringfaust.core import effect as e
from ringfaust.core import limits
from ringfaust.core.table import Kind
from tests.model import strategies as s
from tests.model.harness import (
    BytesStore,
    DictStore,
    Partition,
    by_queue,
    fact,
    first_thing_to_do,
    view_of_model,
    view_of_store,
)
from tests.model.naive import Model
from tests.model.naive_queue import Held, Message, Queue
from tests.model.profile import PROFILE, WITHOUT_LIMIT

pytestmark = WITHOUT_LIMIT


def has_consumers(machine: SideBySide) -> bool:
    return any(q.consumers for q in machine.model.queues.values())


def has_held(machine: SideBySide) -> bool:
    return any(q.held for q in machine.model.queues.values())


def has_waiting(machine: SideBySide) -> bool:
    return any(q.ready or q.scheduled for q in machine.model.queues.values())


def ended(machine: SideBySide) -> list[tuple[str, str, str]]:
    """(queue, consumer, message) of deliveries that are over; the evicted come first."""
    return [
        (q.name, name, message)
        for reason in ("evicted", "stale_delivery")
        for _, q in sorted(machine.model.queues.items())
        for name, over in q.ended.items()
        for message in over
        if over[message] == reason
    ]


def has_ended(machine: SideBySide) -> bool:
    return bool(ended(machine))


class SideBySide(RuleBasedStateMachine):
    """Each rule is one or a few commands; after each of them both sides must agree."""

    store_type: type[DictStore] | type[BytesStore] = DictStore

    @initialize(
        a=s.SETTINGS,
        b=s.SETTINGS,
        each_step_commits=st.booleans(),
        refill=st.sampled_from([1, 2, 3]),
        cache_bytes=st.sampled_from([0, 2_500, 1 << 30]),
        attaches=st.lists(s.ATTACH, max_size=4),
    )
    def begin(
        self,
        *,
        a: Any,
        b: Any,
        each_step_commits: bool,
        refill: int,
        cache_bytes: int,
        attaches: list[c.Attach],
    ) -> None:
        self.usual_refill, limits.REFILL = limits.REFILL, refill
        declared = {"a": a, "b": b}
        self.partition = Partition(self.store_type(), declared, cache_bytes)
        self.model = Model(declared)
        self.each_step_commits = each_step_commits
        self.now = 1_000
        self.sent = 0
        for attach in attaches:
            self.both(attach)

    def teardown(self) -> None:
        if hasattr(self, "usual_refill"):
            limits.REFILL = self.usual_refill

    # --- both sides -------------------------------------------------------------------------------

    def both(self, command: c.Command) -> None:
        """One step, the same facts."""
        effects = self.partition.step(command, self.now)
        facts = self.model.step(command, self.now)
        assert by_queue(map(fact, effects)) == by_queue(facts), command
        self.number(effects)
        if self.each_step_commits:
            self.partition.commit()

    def number(self, effects: list[e.Effect]) -> None:
        """The model takes over the engine's delivery numbers, which must count up."""
        last = max([h.number for q in self.model.queues.values() for h in q.held], default=0)
        given = [one for one in effects if isinstance(one, e.Dispatched)]
        assert [one.delivery.number for one in given] == sorted(
            {one.delivery.number for one in given}
        )
        for name in {one.queue for one in given}:
            numbers = [one.delivery.number for one in given if one.queue == name]
            held = [h for queue, h in self.model.given if queue == name]
            for h, number in zip(held, numbers, strict=True):
                assert number > last
                h.number = number

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "partition"):
            return
        durable = self.partition.would_be_durable()
        members = set()
        for name in s.QUEUES:
            engine_view = view_of_store(durable, name)
            model_view = view_of_model(self.model, name)
            if engine_view is None and model_view is not None:  # never touched by more than a look
                untouched = Model(self.model.declared)
                untouched.queue(name)
                engine_view = view_of_model(untouched, name)
            assert engine_view == model_view
            if name in self.model.queues:
                q = self.model.queues[name]
                members |= {(k.session, name, k.name) for k in q.consumers if k.session}
                self.will_wake(durable, name)
        sessions = [
            (session, *key)
            for session in s.SESSIONS
            for key, _ in durable.scan(Kind.SESSION, "", session, None, 99)
        ]
        assert set(sessions) == members

    def will_wake(self, durable: Any, name: str) -> None:
        """A sweep comes in time, and the partition keeps at most one wake for a queue."""
        due = first_thing_to_do(self.model, name)
        wakes = [key[0] for key, _ in durable.scan(Kind.WAKE, "", 0, None, 99) if key[1] == name]
        assert len(wakes) <= 1
        assert due is None or (wakes and wakes[0] <= due)

    # --- what to aim at ---------------------------------------------------------------------------

    def pick_held(self, index: int) -> tuple[Queue, Held] | None:
        all_held = [(q, h) for _, q in sorted(self.model.queues.items()) for h in q.held]
        return all_held[index % len(all_held)] if all_held else None

    def pick_consumer(self, index: int) -> tuple[str, str]:
        names = [
            (q.name, k.name) for _, q in sorted(self.model.queues.items()) for k in q.consumers
        ]
        return names[index % len(names)] if names else ("a", "nobody")

    def pick_waiting(self, index: int, scheduled: bool) -> tuple[str, str]:
        found: list[tuple[str, Message]] = []
        for _, q in sorted(self.model.queues.items()):
            found += [(q.name, m) for _, m in q.by_due_time()]
            if not scheduled:
                found += [(q.name, m) for m in q.in_delivery_order()]
        if not found:
            return "a", "nothing"
        name, m = found[index % len(found)]
        return name, m.id

    # --- rules: messages and time -----------------------------------------------------------------

    @rule(
        wait=s.WAIT,
        message=s.MESSAGE,
        queue=s.QUEUE,
        count=st.integers(1, 5),
        again=st.integers(0, 12),
    )
    def send(self, wait: int, message: s.Draft, queue: str, count: int, again: int) -> None:
        """`again` 12: an id that was sent before."""
        self.now += wait
        for _ in range(count):
            if again < 12:
                self.sent += 1
            self.both(message.send(queue, f"m{self.sent}", self.now))

    @rule(messages=st.lists(s.MESSAGE, min_size=2, max_size=6))
    def send_mixed(self, messages: list[s.Draft]) -> None:
        for message in messages:
            self.send(0, message, "a", 1, 0)

    @rule(ms=s.MS)
    def clock_goes_back(self, ms: int) -> None:
        """Somebody's clock does; nothing may come of it but what was due anyway."""
        self.now -= ms
        self.both(c.Sweep())
        self.now += ms

    @rule(ms=s.MS)
    def sweep(self, ms: int) -> None:
        self.now += ms
        self.both(c.Sweep())

    # --- rules: consumers -------------------------------------------------------------------------

    @rule(wait=s.WAIT, attach=s.ATTACH, again=st.booleans())
    def attach(self, wait: int, attach: c.Attach, again: bool) -> None:
        """Unless `again`: under a name that is not in use."""
        self.now += wait
        q = self.model.queues.get(attach.queue)
        free = [name for name in s.CONSUMERS if q is None or q.consumer(name) is None]
        if free and not again:
            attach = attach._replace(consumer=free[0])
        self.both(attach)

    @precondition(has_consumers)
    @rule(wait=s.WAIT, index=s.INDEX, add=st.sampled_from([1, 1, 2, 5, 0, limits.CREDIT, -1]))
    def credit(self, wait: int, index: int, add: int) -> None:
        self.now += wait
        self.both(c.Credit(*self.pick_consumer(index), add))

    @precondition(has_consumers)
    @rule(wait=s.WAIT, index=s.INDEX, kind=st.sampled_from([c.Recover, c.Detach, c.Heartbeat]))
    def consumer_does(self, wait: int, index: int, kind: type[c.Detach]) -> None:
        self.now += wait
        self.both(kind(*self.pick_consumer(index)))

    @precondition(has_consumers)
    @rule(wait=s.WAIT, session=s.SESSION)
    def rollback(self, wait: int, session: str) -> None:
        self.now += wait
        self.both(c.Rollback(session))

    @rule(kind=st.sampled_from([c.Recover, c.Detach, c.Heartbeat]), queue=s.QUEUE)
    def stranger_does(self, kind: type[c.Detach], queue: str) -> None:
        self.both(kind(queue, "nobody"))

    # --- rules: settling --------------------------------------------------------------------------

    @precondition(has_held)
    @rule(
        wait=s.WAIT,
        indices=st.lists(s.INDEX, min_size=1, max_size=3),
        numbered=st.booleans(),
        kind=st.sampled_from([c.Ack, c.Ack, c.Release, c.Reject]),
    )
    def settle(self, wait: int, indices: list[int], numbered: bool, kind: type[c.Ack]) -> None:
        self.now += wait
        for index in indices:
            if picked := self.pick_held(index):
                q, h = picked
                self.both(kind(q.name, h.consumer, h.message.id, h.number if numbered else 0))

    @precondition(has_held)
    @rule(wait=s.WAIT, index=s.INDEX, delay_ms=st.sampled_from([0, 1, 5, -1]))
    def release_with_delay(self, wait: int, index: int, delay_ms: int) -> None:
        self.now += wait
        picked = self.pick_held(index)
        assert picked is not None
        q, h = picked
        self.both(c.Release(q.name, h.consumer, h.message.id, 0, delay_ms))

    @rule(
        queue=s.QUEUE,
        consumer=s.CONSUMER,
        back=st.integers(0, 8),
        number=st.sampled_from([0, 0, 0, 1, 2, 10**9]),
        kind=st.sampled_from([c.Ack, c.Release, c.Reject]),
    )
    def settle_anything(
        self, queue: str, consumer: str, back: int, number: int, kind: type[c.Ack]
    ) -> None:
        self.both(kind(queue, consumer, f"m{max(self.sent - back, 0)}", number))

    @precondition(has_ended)
    @rule(index=st.integers(0, 200), kind=st.sampled_from([c.Ack, c.Release, c.Reject]))
    def settle_too_late(self, index: int, kind: type[c.Ack]) -> None:
        """What its consumer had, and perhaps has again."""
        over = ended(self)
        self.both(kind(*over[index % len(over)]))

    # --- rules: the operator ----------------------------------------------------------------------

    @rule(wait=s.WAIT, queue=s.QUEUE, fields=s.SETTINGS)
    def configure(self, wait: int, queue: str, fields: dict[str, object]) -> None:
        self.now += wait
        self.both(c.Configure(queue, fields))

    @rule(wait=s.WAIT, what=s.WHAT, queue=s.QUEUE, goes_on=st.booleans())
    def pause_or_resume(self, wait: int, what: str, queue: str, goes_on: bool) -> None:
        self.now += wait
        self.both(c.Resume(queue, what) if goes_on else c.Pause(queue, what))

    @precondition(has_waiting)
    @rule(
        wait=s.WAIT,
        index=s.INDEX,
        kind=st.sampled_from([c.DeliverNow, c.CancelScheduled, c.Remove]),
    )
    def take(self, wait: int, index: int, kind: type[c.Remove]) -> None:
        self.now += wait
        self.both(kind(*self.pick_waiting(index, scheduled=kind is not c.Remove)))

    @precondition(has_waiting)
    @rule(wait=s.WAIT, index=s.INDEX, to=s.QUEUE)
    def move(self, wait: int, index: int, to: str) -> None:
        self.now += wait
        self.both(c.Move(*self.pick_waiting(index, scheduled=False), to))

    @rule(what=s.RARE, queue=s.QUEUE, fields=s.SETTINGS, bad=s.BAD_SETTINGS)
    def rare(self, what: str, queue: str, fields: Any, bad: Any) -> None:
        """What would spoil a history if it happened as often as the rest."""
        commands: dict[str, c.Command] = {
            "purge": c.Purge(queue),
            "delete": c.DeleteQueue(queue),
            "create": c.CreateQueue("c", fields),
            "create badly": c.CreateQueue("d", bad),
            "create again": c.CreateQueue(queue, fields),
            "configure badly": c.Configure(queue, bad),
            "take nothing": c.Remove(queue, "nothing"),
        }
        if what in commands:
            self.both(commands[what])

    # --- rules: the host --------------------------------------------------------------------------

    @rule(crash=st.booleans())
    def commit(self, crash: bool) -> None:
        """After a crash nothing may have changed, now or later."""
        self.partition.commit()
        if crash:
            self.partition.start()

    @rule()
    def take_off_or_land(self) -> None:
        """Steps are done while the batch before them is being made durable."""
        if self.partition.flying is None:
            self.partition.take_off()
        else:
            self.partition.land()


class SideBySideInBytes(SideBySide):
    """The same over the bytes that hosts store."""

    store_type = BytesStore


@pytest.mark.parametrize("machine", [SideBySide, SideBySideInBytes])
def test_engine_does_what_the_model_does(machine: type[SideBySide]) -> None:
    run_state_machine_as_test(machine, settings=PROFILE)
