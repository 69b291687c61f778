"""Consumers with selectors, and messages that they skip, beside the naive model (R14, R15).

Dispatch remembers how far it has looked for each selector. Here messages are skipped, and then
returned, delayed, evicted, moved or expired, while consumers with other selectors come and go.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from ringfaust.core import commands as c
from ringfaust.core import limits
from ringfaust.core.model import AckMode
from tests.model import strategies as s
from tests.model.harness import Partition
from tests.model.naive import Model
from tests.model.profile import PROFILE, WITHOUT_LIMIT
from tests.model.side_by_side import SideBySide
from tests.model.test_model import has_consumers, has_held, has_waiting

pytestmark = WITHOUT_LIMIT

RED, NOT_RED = "color = 'red'", "color <> 'red'"
DRAFT = st.builds(
    s.Draft,
    priority=st.sampled_from([4, 4, 4, 9]),
    delay_ms=st.sampled_from([0] * 8 + [4, 9]),
    ttl_ms=st.sampled_from([0] * 6 + [3, 30]),
    group=st.sampled_from(["", "", "", "g"]),
    size_bytes=st.just(100),
    payload=st.sampled_from([1, 1, 2, 2, 0]),  # red, blue, and without a color
    persistent=st.just(True),
    redrives=st.just(0),
    owner=st.just(""),
)
SETTINGS = st.fixed_dictionaries(
    {"ring_size": st.sampled_from([-1, -1, 12, 5])},
    optional={
        "evict": st.sampled_from(["oldest", "head", "lowest_priority"]),
        "redelivery_delay": st.sampled_from([0, 0, 3]),
        "max_attempts": st.sampled_from([-1, 3]),
        "batch": st.sampled_from([1, 2]),
        "max_active_consumers": st.sampled_from([-1, 2]),
    },
)
SELECTOR = st.sampled_from(["", "JMSPriority >= 4", "JMSRedelivered = FALSE", *[RED, NOT_RED] * 3])
MODE = st.sampled_from([AckMode.INDIVIDUAL] * 4 + [AckMode.CLIENT, AckMode.NONE])


class Selecting(SideBySide):
    """One queue, and consumers that want different messages of it."""

    @initialize(
        settings=SETTINGS,
        each_step_commits=st.booleans(),
        refill=st.sampled_from([1, 3, 1_000]),
        cache_bytes=st.sampled_from([0, 4_000, 1 << 30]),
        step_transitions=st.sampled_from([1, 3, 1_000, 1_000]),
        crashes_in_steps=st.booleans(),
        first=st.lists(SELECTOR, min_size=1, max_size=2),
    )
    def begin(  # type: ignore[override]
        self,
        *,
        settings: dict[str, Any],
        each_step_commits: bool,
        refill: int,
        cache_bytes: int,
        step_transitions: int,
        crashes_in_steps: bool,
        first: list[str],
    ) -> None:
        queues = {"a": {**settings, "compat": self.compat}}
        addresses: dict[str, Any] = {"p": {}, "r": {"routing": "anycast"}}
        self.partition = Partition(
            self.store_type(), queues, cache_bytes, refill=refill, addresses=addresses,
            step_transitions=step_transitions, crashes_in_steps=crashes_in_steps,
        )  # fmt: skip
        self.model = Model(queues, addresses=addresses, settings={})
        self.untouched = Model(queues, addresses=addresses, settings={})
        self.each_step_commits = each_step_commits
        self.now = 1_000
        self.sent = 0
        for selector in first:
            self.attach(selector, 2, 0, AckMode.INDIVIDUAL)

    @rule(drafts=st.lists(DRAFT, min_size=1, max_size=12), wait=s.WAIT)
    def send(self, drafts: list[s.Draft], wait: int) -> None:
        self.now += wait
        for draft in drafts:
            self.sent += 1
            self.both(draft.send("a", f"m{self.sent}", self.now))

    @rule(
        selector=SELECTOR, credit=st.integers(1, 4), priority=st.sampled_from([0, 0, 5]), mode=MODE
    )
    def attach(self, selector: str, credit: int, priority: int, mode: AckMode) -> None:
        q = self.model.queues.get("a")
        free = [name for name in s.CONSUMERS if q is None or q.consumer(name) is None]
        if free:
            self.both(c.Attach("a", free[0], credit, priority, mode, selector=selector))

    @precondition(has_consumers)
    @rule(index=s.INDEX, kind=st.sampled_from([c.Recover, c.Detach]))
    def consumer_does(self, index: int, kind: type[c.Detach]) -> None:
        self.both(kind(*self.pick_consumer(index)))

    @precondition(has_consumers)
    @rule(index=s.INDEX, add=st.integers(1, 4))
    def credit(self, index: int, add: int) -> None:
        self.both(c.Credit(*self.pick_consumer(index), add))

    @precondition(has_held)
    @rule(
        indices=st.lists(s.INDEX, min_size=1, max_size=5),
        kind=st.sampled_from([c.Ack, c.Ack, c.Release, c.Reject]),
        wait=s.WAIT,
    )
    def settle(self, indices: list[int], kind: type[c.Ack], wait: int) -> None:
        self.now += wait
        for index in indices:
            if picked := self.pick_held(index):
                q, h = picked
                self.both(kind(q.name, h.consumer, h.message.id, h.number))

    @precondition(has_held)
    @rule(index=s.INDEX, delay_ms=st.sampled_from([0, 3]))
    def release(self, index: int, delay_ms: int) -> None:
        picked = self.pick_held(index)
        assert picked is not None
        q, h = picked
        self.both(c.Release(q.name, h.consumer, h.message.id, 0, delay_ms))

    @precondition(has_waiting)
    @rule(index=s.INDEX, kind=st.sampled_from([c.DeliverNow, c.Remove]))
    def take(self, index: int, kind: type[c.Remove]) -> None:
        self.both(kind(*self.pick_waiting(index, scheduled=kind is not c.Remove)))

    @rule(fields=SETTINGS)
    def configure(self, fields: dict[str, object]) -> None:
        self.both(c.Configure("a", fields))

    @rule(goes_on=st.booleans())
    def pause_or_resume(self, goes_on: bool) -> None:
        self.both(c.Resume("a", "dispatch") if goes_on else c.Pause("a", "dispatch"))

    @rule(what=st.sampled_from(["sweep"] * 6 + ["purge", "delete"]), ms=s.MS)
    def time_passes(self, what: str, ms: int) -> None:
        self.now += ms
        commands = {"sweep": c.Sweep(), "purge": c.Purge("a"), "delete": c.DeleteQueue("a")}
        self.both(commands[what])

    @rule(kind=st.sampled_from(["none"] * 4 + ["applied", "replayed"]))
    def commit(self, kind: str) -> None:
        """A worker that comes back remembers nothing of what was skipped, and decides the same."""
        if kind == "none":
            self.partition.commit()
        else:
            self.crash(kind)


class SelectingOfArtemis(Selecting):
    """The same with `compat: artemis` (section 13)."""

    compat = "artemis"


@pytest.mark.parametrize("machine", [Selecting, SelectingOfArtemis])
@pytest.mark.parametrize("late", [1, 3])
def test_what_no_selector_wants_is_skipped_as_in_the_model(
    machine: type[SideBySide], late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`late`: how many messages before the place of a selector are remembered one by one."""
    monkeypatch.setattr(limits, "LATE", late)
    run_state_machine_as_test(machine, settings=PROFILE)


def test_a_group_whose_messages_leave_in_one_return_becomes_idle_once() -> None:
    """Both messages of the group find the ring full when they return (C2, R116)."""
    machine = SelectingOfArtemis()
    machine.begin(
        settings={"ring_size": 1}, each_step_commits=True, refill=1, cache_bytes=0,
        step_transitions=1_000, crashes_in_steps=False, first=[""],
    )  # fmt: skip
    one = s.Draft(4, 0, 0, "g", 100, 1, persistent=True, redrives=0, owner="")
    machine.send([one, one, one._replace(group="")], 0)
    machine.consumer_does(0, c.Recover)
    assert machine.model.queues["a"].counts["evicted"] == 2
    machine.same_state()
