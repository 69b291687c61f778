"""Seeds of the simulator; `make sim SEEDS=2000` runs more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.plan import Plan, home
from tests.sim.queue_book import Wrong
from tests.sim.run import History, fault, history, play, shrink
from tests.sim.world import World

SEEDS = 200
TOLD = {
    "added", "scheduled", "due", "dispatched", "acked", "returned", "evicted overflow",
    "evicted return_overflow", "evicted scheduled_overflow", "evicted limit", "evicted shrink",
    "evicted purge", "expired", "lost", "unrouted", "pending", "decided", "dead undeliverable",
    "dead rejected", "dead limit", "dead too_large", "removed", "moved_out", "attached",
    "detached", "configured", "configured_address", "paused", "deleted", "done",
    "refused unknown_delivery", "refused stale_delivery", "refused evicted",
    "refused unknown_queue", "refused consumer_limit", "refused queue_full", "refused too_large",
    "refused bad_selector", "refused bad_command", "unreadable undecodable",
}  # fmt: skip
"""All that events can tell; a seed would have to be very large to be too_large."""


@pytest.mark.timeout(900)  # some 15 s, but a machine may be busy
def test_seeds() -> None:
    told: Counter[str] = Counter()
    for seed in range(SEEDS):
        wrong = fault(history(seed), told)
        assert not wrong, f"{wrong}\nagain: make sim SEEDS=1 FIRST={seed}"
    assert told.keys() == TOLD, "the seeds no longer bring about all that they should"


# --- the simulator itself -------------------------------------------------------------------------

PLAN = Plan({"a": {"ring_size": 2, "consumer_timeout": 0}}, {})
SENDS = [("send", "keyed", "a", {"id": f"m{number}"}) for number in range(4)]
WORK = ("work", 0, [("control", 9), ("keyed", 9)], 3)


def told(world: World, event: str) -> list[str]:
    log = world.broker.log("events", 0)
    lines = [line for record in log.read(0, 999)[0] for line in record.value.split(b"\n")]
    return [line.decode() for line in lines if b'"%b"' % event.encode() in line]


def test_a_crash_between_transaction_and_store_loses_and_doubles_nothing() -> None:
    for stages in range(4):
        for disk in ("keep", "tail", "lose"):
            crash = [("land", 0, stages, False), ("crash", 0, disk)]
            world = play(PLAN, [*SENDS, (*WORK[:3], 0), *crash, WORK])
            assert [len(told(world, event)) for event in ("added", "evicted")] == [4, 2]


def test_a_zombie_is_fenced() -> None:
    half_done = (*WORK[:3], 2)
    world = play(PLAN, [*SENDS, half_done, ("assign", 0, 1, "zombie"), ("zombie", "land"), WORK])
    assert len(told(world, "added")) == 4


def test_a_copy_that_a_queue_refuses_is_not_told_of_the_send_that_made_the_queue() -> None:
    subscription = {"max_message_bytes": 20}
    plan = Plan({}, {"prices": {"retroactive_count": 1, "subscriptions": {"all": subscription}}})
    work = ("work", home("prices"), [("keyed", 9)], 3)
    delete = {"type": "delete_queue", "queue": "prices::all"}
    world = play(
        plan,
        [
            ("send", "keyed", "prices", {"id": "large", "size": 30}),
            work,
            ("say", home("prices"), delete, 1),
            (*work[:2], [("control", 9)], 3),
            ("send", "keyed", "prices", {"id": "small"}),
        ],
    )
    replies = world.broker.log("replies", home("prices")).read(0, 9)[0]
    assert [record.key for record in replies if b"too_large" in record.value] == [b"large"] * 2


def test_a_history_shrinks_to_what_fails() -> None:
    given = history(3)

    def fails(fewer: History) -> bool:
        return sum(step[0] == "crash" for step in fewer.steps) >= 2

    shortest = shrink(given, fails)
    assert [step[0] for step in shortest.steps] == ["crash", "crash"]
    assert shortest.plan == Plan({}, {})


def test_the_same_seed_is_the_same_history() -> None:
    assert history(7) == history(7)
    assert eval(str(history(7)), {"play": lambda *given: given, "Plan": Plan}) == tuple(history(7))


def test_the_books_do_not_take_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    real = World.finish

    def lose_one(self: World) -> None:
        self.broker.write(("evicted", 0), [(None, None, [("ringfaust-source", b"keyed/0/0")])])
        real(self)

    monkeypatch.setattr(World, "finish", lose_one)
    with pytest.raises(Wrong, match="evicted has 1 records of 0"):
        play(PLAN, [])
