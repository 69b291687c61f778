"""The engine and the naive model side by side: what both report must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.table import Kind
from tests.model import strategies as s
from tests.model.harness import (
    BytesStore,
    DictStore,
    Partition,
    address_in_model,
    address_in_store,
    bodyless_in,
    by_queue,
    fact,
    first_thing_to_do,
    queue_names,
    view_of_model,
    view_of_store,
    xids_in_model,
    xids_in_store,
)
from tests.model.naive import Model
from tests.model.naive_queue import Held, Message, Queue


class SideBySide(RuleBasedStateMachine):
    """What a machine of rules stands on; after each rule both sides must agree."""

    store_type: type[DictStore] | type[BytesStore] = DictStore
    compat = "default"
    """Section 13: of all queues."""

    @initialize(
        queues=st.fixed_dictionaries({"a": s.SETTINGS, "b": s.SETTINGS}),
        addresses=s.DECLARED_ADDRESSES,
        of_p=s.RING_SETTINGS,
        each_step_commits=st.booleans(),
        refill=st.sampled_from([1, 2, 3]),
        cache_bytes=st.sampled_from([0, 2_500, 1 << 30]),
        step_transitions=st.sampled_from([1, 2, 3, 1_000, 1_000]),
        crashes_in_steps=st.booleans(),
        attaches=st.lists(s.PLAIN_ATTACH, min_size=1, max_size=3),
    )
    def begin(
        self,
        *,
        queues: Any,
        addresses: Any,
        of_p: Any,
        each_step_commits: bool,
        refill: int,
        cache_bytes: int,
        step_transitions: int,
        crashes_in_steps: bool,
        attaches: list[c.Attach],
    ) -> None:
        for each in addresses.values():
            each["compat"] = self.compat
        for each in (*queues.values(), addresses["p"]["subscriptions"]["one"]):
            if not self.is_demanded(each):
                del each["when_full"]
        like: dict[str, Any] = {name: {"compat": self.compat} for name in (*s.QUEUES, "r")}
        declared = {"addresses": addresses, "settings": {**like, "p": {**of_p, **like["r"]}}}
        self.partition = Partition(
            self.store_type(), queues, cache_bytes, refill=refill,
            step_transitions=step_transitions, crashes_in_steps=crashes_in_steps, **declared,
        )  # fmt: skip
        self.model = Model(queues, **declared)
        self.untouched = Model(queues, **declared)
        self.each_step_commits = each_step_commits
        self.now = 1_000
        self.sent = 0
        for attach in attaches:
            self.both(attach)

    # --- both sides -------------------------------------------------------------------------------

    def both(self, command: c.Command, now: int | None = None) -> None:
        """One step, the same facts. A send that is not pulled now is no step."""
        if not self.is_demanded(getattr(command, "settings", {})):
            return
        if isinstance(command, c.Send):
            pausing_queue = self.model.pausing_queue(command)
            assert self.partition.engine.pausing_queue(command) == pausing_queue
            if pausing_queue is not None:
                return
        now = self.now if now is None else now
        effects = self.partition.step(command, now).all_effects
        facts = self.model.step(command, now)
        done, expected = by_queue(map(fact, effects)), by_queue(facts)
        assert done == expected, f"{command}: the engine did {done}, the model {expected}"
        self.number(effects)
        if self.each_step_commits:
            self.partition.commit()

    def is_demanded(self, settings: Mapping[str, object]) -> bool:
        """Section 13 does not say how a ring with `compat: artemis` and a refusal go together."""
        return self.compat == "default" or settings.get("when_full") != "reject_newest"

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

    def crash(self, kind: str) -> None:
        """The host comes back with what was committed; bodies may be gone (R82)."""
        partition, store = self.partition, self.partition.store
        if kind == "applied":
            partition.commit()
        else:  # it is in the changelog alone
            partition.finish_commit()
            partition.begin_commit()
            store.replay(partition.in_flight or [])
            partition.legal_effects.committed()
        if kind == "cold":
            store.lose_bodies()
        bodyless = bodyless_in(store)
        all_of_it = [(q.name, m) for q in self.model.queues.values() for m in q.everything()]
        if kind == "applied":
            assert bodyless == {(name, m.sequence) for name, m in all_of_it if m.is_bodyless}
        if kind == "cold":
            assert bodyless == {(name, m.sequence) for name, m in all_of_it if not m.persistent}
        partition.start()
        self.model.crash(bodyless)
        self.both(c.Start(), partition.state.now_ms)

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "partition"):
            return
        durable = self.partition.would_be_durable()
        members = set()
        for name in sorted({*queue_names(durable), *self.model.queues}):
            engine_view = view_of_store(durable, name)
            model_view = view_of_model(self.model, name)
            if engine_view is None:  # never touched by more than a look
                self.untouched.queue(name)
                engine_view = view_of_model(self.untouched, name)
            assert engine_view == model_view
            q = self.model.queues[name]
            members |= {(k.session, name, k.name) for k in q.consumers if k.session}
            self.will_wake(durable, name)
        sessions = [
            (session, *key)
            for session in s.SESSIONS
            for key, _ in durable.scan(Kind.SESSION, "", session, None, 99)
        ]
        assert set(sessions) == members
        for name in s.ADDRESSES:
            assert address_in_store(durable, name) == address_in_model(self.model, name)
        assert xids_in_store(durable) == xids_in_model(self.model)
        wakes = {key[0] for key, _ in durable.scan(Kind.WAKE, "", 0, None, 99) if not key[1]}
        assert wakes == {x.until for x in self.model.xids if not x.is_prepared}

    def will_wake(self, durable: Any, name: str) -> None:
        """A sweep comes in time, and the partition keeps at most one wake for a queue."""
        due = first_thing_to_do(self.model, name)
        wakes = [key[0] for key, _ in durable.scan(Kind.WAKE, "", 0, None, 99) if key[1] == name]
        assert len(wakes) <= 1
        assert due is None or (wakes and wakes[0] <= due)

    # --- what to aim at ---------------------------------------------------------------------------

    def all_queues(self) -> list[Queue]:
        return [q for _, q in sorted(self.model.queues.items())]

    def pick_held(self, index: int) -> tuple[Queue, Held] | None:
        all_held = [(q, h) for q in self.all_queues() for h in q.held]
        return all_held[index % len(all_held)] if all_held else None

    def pick_consumer(self, index: int) -> tuple[str, str]:
        names = [(q.name, k.name) for q in self.all_queues() for k in q.consumers]
        return names[index % len(names)] if names else ("a", "nobody")

    def pick_waiting(self, index: int, scheduled: bool) -> tuple[str, str]:
        found: list[tuple[str, Message]] = []
        for q in self.all_queues():
            found += [(q.name, m) for _, m in q.by_due_time()]
            if not scheduled:
                found += [(q.name, m) for m in q.in_delivery_order()]
        if not found:
            return "a", "nothing"
        name, m = found[index % len(found)]
        return name, m.id

    def ended(self) -> list[tuple[str, str, str]]:
        """(queue, consumer, message) of deliveries that are over; the evicted come first."""
        return [
            (q.name, name, message)
            for reason in ("evicted", "stale_delivery")
            for q in self.all_queues()
            for name, over in q.ended.items()
            for message in over
            if over[message] == reason
        ]
