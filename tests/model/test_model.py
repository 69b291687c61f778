"""The engine and the naive model side by side, driven by hypothesis.

Quick by default; `RINGFAUST_HYPOTHESIS=deep` looks for much longer. A failure prints the steps
that lead to it and a `@reproduce_failure` line.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from ringfaust.core import commands as c
from ringfaust.core import limits
from tests.model import strategies as s
from tests.model.harness import BytesStore
from tests.model.profile import PROFILE, WITHOUT_LIMIT
from tests.model.side_by_side import SideBySide

pytestmark = WITHOUT_LIMIT


def has_consumers(machine: SideBySide) -> bool:
    return any(q.consumers for q in machine.all_queues())


def has_held(machine: SideBySide) -> bool:
    return any(q.held for q in machine.all_queues())


def has_waiting(machine: SideBySide) -> bool:
    return any(q.ready or q.scheduled for q in machine.all_queues())


def has_ended(machine: SideBySide) -> bool:
    return bool(machine.ended())


class Rules(SideBySide):
    """Each rule is one or a few commands."""

    # --- rules: messages and time -----------------------------------------------------------------

    @rule(
        wait=s.WAIT,
        message=s.MESSAGE,
        queue=s.DESTINATION,
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

    @rule(messages=st.lists(s.MESSAGE, min_size=2, max_size=6), to=st.sampled_from(["a", "a", "p"]))
    def send_mixed(self, messages: list[s.Draft], to: str) -> None:
        for message in messages:
            self.send(0, message, to, 1, 0)

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

    @rule(
        wait=s.WAIT,
        attach=s.ATTACH,
        again=st.sampled_from([False, False, False, True]),
        bad=s.BAD_JOINS,
    )
    def attach(self, wait: int, attach: c.Attach, again: bool, bad: dict[str, Any]) -> None:
        """Unless `again`: under a name that is not in use."""
        self.now += wait
        q = self.model.queues.get(attach.queue)
        free = [name for name in s.CONSUMERS if q is None or q.consumer(name) is None]
        if free and not again:
            attach = attach._replace(consumer=free[0])
        self.both(attach._replace(**bad))

    @rule(wait=s.WAIT, subscribe=s.SUBSCRIBE, bad=s.BAD_JOINS)
    def subscribe(self, wait: int, subscribe: c.Subscribe, bad: dict[str, Any]) -> None:
        self.now += wait
        self.both(subscribe._replace(**bad))

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
    @rule(wait=s.WAIT, session=s.SESSION, acked=st.lists(s.INDEX, max_size=4))
    def rollback(self, wait: int, session: str, acked: list[int]) -> None:
        self.now += wait
        picked = [each for index in acked if (each := self.pick_held(index))]
        acks = tuple(c.Ack(q.name, h.consumer, h.message.id, h.number) for q, h in picked)
        self.both(c.Rollback(session, acks))

    @rule(
        kind=st.sampled_from([c.Recover, c.Detach, c.Heartbeat]),
        queue=s.ANY_QUEUE,
        name=st.sampled_from(["nobody", "@window"]),
    )
    def stranger_does(self, kind: type[c.Detach], queue: str, name: str) -> None:
        self.both(kind(queue, name))

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
    @rule(
        wait=s.WAIT,
        indices=st.lists(s.INDEX, min_size=1, max_size=5),
        late=st.lists(st.integers(0, 200), max_size=2),
    )
    def ack_many(self, wait: int, indices: list[int], late: list[int]) -> None:
        """What one consumer holds, some of it twice, and some of what it had."""
        self.now += wait
        held = [each for index in indices if (each := self.pick_held(index))]
        q, first = held[0]
        pairs = [
            (h.number, h.message.id)
            for other, h in held
            if (other.name, h.consumer) == (q.name, first.consumer)
        ]
        over = self.ended()
        pairs += [(0, over[index % len(over)][2]) for index in late if over]
        self.both(c.AckMany(q.name, first.consumer, tuple(pairs)))

    @precondition(has_held)
    @rule(wait=s.WAIT, index=s.INDEX, delay_ms=st.sampled_from([0, 1, 5, -1]))
    def release_with_delay(self, wait: int, index: int, delay_ms: int) -> None:
        self.now += wait
        picked = self.pick_held(index)
        assert picked is not None
        q, h = picked
        self.both(c.Release(q.name, h.consumer, h.message.id, 0, delay_ms))

    @rule(
        queue=s.ANY_QUEUE,
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
        over = self.ended()
        self.both(kind(*over[index % len(over)]))

    # --- rules: distributed transactions ----------------------------------------------------------

    @rule(xid=s.XID, owner=s.OWNER, timeout_ms=s.XID_TIMEOUT)
    def begin_xid(self, xid: str, owner: str, timeout_ms: int) -> None:
        self.both(c.Begin(xid, owner, timeout_ms))

    @rule(xid=s.XID)
    def prepare_xid(self, xid: str) -> None:
        self.both(c.Prepare(xid))

    def open(self, xid: str) -> None:
        if xid not in [x.name for x in self.model.xids]:
            self.both(c.Begin(xid, "o"))

    @precondition(lambda machine: machine.model.xids)
    @rule(
        wait=s.WAIT,
        kind=st.sampled_from([c.Commit, c.Commit, c.RollbackXid]),
        xid=s.XID,
        prepared=st.booleans(),
    )
    def decide(self, wait: int, kind: type[c.Commit], xid: str, prepared: bool) -> None:
        self.now += wait
        if prepared:
            self.both(c.Prepare(xid))
        self.both(kind(xid))

    @rule(message=s.MESSAGE, queue=s.DESTINATION, xid=s.XID)
    def send_in(self, message: s.Draft, queue: str, xid: str) -> None:
        self.open(xid)
        self.sent += 1
        self.both(message.send(queue, f"m{self.sent}", self.now, xid))

    @precondition(has_held)
    @rule(
        wait=s.WAIT,
        indices=st.lists(s.INDEX, min_size=1, max_size=3),
        numbered=st.booleans(),
        xid=s.XID,
        owner=s.OWNER,
    )
    def ack_in(self, wait: int, indices: list[int], numbered: bool, xid: str, owner: str) -> None:
        self.now += wait
        self.open(xid)
        for index in indices:
            if picked := self.pick_held(index):
                q, h = picked
                number = h.number if numbered else 0
                self.both(c.Ack(q.name, h.consumer, h.message.id, number, xid, owner))

    # --- rules: the operator ----------------------------------------------------------------------

    @rule(wait=s.WAIT, queue=s.ANY_QUEUE, fields=s.SETTINGS)
    def configure(self, wait: int, queue: str, fields: dict[str, object]) -> None:
        self.now += wait
        self.both(c.Configure(queue, fields))

    @rule(wait=s.WAIT, address=s.ADDRESS, fields=s.ADDRESS_SETTINGS | s.BAD_ADDRESS_SETTINGS)
    def configure_address(self, wait: int, address: str, fields: dict[str, object]) -> None:
        self.now += wait
        self.both(c.ConfigureAddress(address, fields))

    @rule(
        wait=s.WAIT, a=s.RING_SETTINGS, b=s.RING_SETTINGS | s.BAD_SETTINGS, of_p=s.RING_SETTINGS,
        addresses=s.DECLARED_ADDRESSES, is_newer=st.sampled_from([True, True, False]),
        is_repeated=st.booleans(),
    )  # fmt: skip
    def apply(
        self,
        *,
        wait: int,
        a: Any,
        b: Any,
        of_p: Any,
        addresses: Any,
        is_newer: bool,
        is_repeated: bool,
    ) -> None:
        """Another configuration, for all queues at once (R128)."""
        self.now += wait
        like = {name: {"compat": self.compat} for name in (*s.QUEUES, "r")}
        for each in addresses.values():
            each["compat"] = self.compat
        one = addresses["p"]["subscriptions"]["one"]
        one.pop("window", None)  # when it opens in a queue that nobody has used yet, is left open
        if not self.is_demanded(one):
            del one["when_full"]
        revision = self.model.revision + is_newer
        document = {
            "queues": {"a": a, "b": b}, "addresses": addresses,
            "settings": {**like, "p": {**of_p, **like["r"]}},
        }  # fmt: skip
        command = c.Apply(max(revision, 1), document, "ann", "more")
        for _ in range(1 + is_repeated):
            self.both(command)
            self.untouched.step(command, self.now)

    @rule(wait=s.WAIT, queue=s.PART, fields=s.SETTINGS)
    def create_part(self, wait: int, queue: str, fields: dict[str, object]) -> None:
        self.now += wait
        self.both(c.CreateQueue(queue, fields))

    @rule(wait=s.WAIT, what=s.WHAT, queue=s.ANY_QUEUE, goes_on=st.booleans())
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
    @rule(wait=s.WAIT, index=s.INDEX, to=s.ANY_QUEUE)
    def move(self, wait: int, index: int, to: str) -> None:
        self.now += wait
        self.both(c.Move(*self.pick_waiting(index, scheduled=False), to))

    @rule(what=s.RARE, queue=s.ANY_QUEUE, fields=s.SETTINGS, bad=s.BAD_SETTINGS)
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

    @rule(kind=st.sampled_from(["none", "none", "applied", "replayed", "cold"]))
    def commit(self, kind: str) -> None:
        """After a crash nothing may have changed, now or later, but for bodies and open xids."""
        if kind == "none":
            self.partition.commit()
        else:
            self.crash(kind)

    @rule()
    def take_off_or_land(self) -> None:
        """Steps are done while the batch before them is being made durable."""
        if self.partition.in_flight is None:
            self.partition.begin_commit()
        else:
            self.partition.finish_commit()


class RulesInBytes(Rules):
    """The same over the bytes that hosts store."""

    store_type = BytesStore


class RulesOfArtemis(Rules):
    """The same with `compat: artemis` (section 13)."""

    compat = "artemis"


@pytest.mark.parametrize("machine", [Rules, RulesInBytes, RulesOfArtemis])
def test_engine_does_what_the_model_does(machine: type[SideBySide]) -> None:
    run_state_machine_as_test(machine, settings=PROFILE)
