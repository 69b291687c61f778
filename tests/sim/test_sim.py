"""Seeds of the simulator; `make sim SEEDS=2000` runs more."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ringfaust.core.table import Kind
from ringfaust.protocol.stored_rows import write_json
from tests.sim.bookkeeper import groups_of
from tests.sim.plan import PARTITIONS, Plan, partition_for
from tests.sim.queue_book import Wrong
from tests.sim.run import History, failure, history, play, shrink
from tests.sim.script import DISKS
from tests.sim.world import World

SEEDS = 200
EVENTS = {
    "added", "applied", "scheduled", "due", "dispatched", "acked", "returned", "evicted overflow",
    "evicted return_overflow", "evicted scheduled_overflow", "evicted limit", "evicted shrink",
    "evicted purge", "expired", "lost", "unrouted", "pending", "decided", "dead undeliverable",
    "dead rejected", "dead limit", "dead too_large", "removed", "moved_out", "attached",
    "detached", "configured", "configured_address", "paused", "deleted", "done",
    "refused unknown_delivery", "refused stale_delivery", "refused evicted",
    "refused unknown_queue", "refused consumer_limit", "refused queue_full", "refused too_large",
    "refused duplicate",
    "refused bad_selector", "refused bad_command", "unreadable undecodable", "unreadable skipped",
    "gap",
}  # fmt: skip
"""All events that occur. A seed would have to be very large for the others."""


@pytest.mark.timeout(900)  # some 15 s, but a machine may be busy
def test_seeds() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        wrong = failure(history(seed), seen)
        assert not wrong, f"{wrong}\nagain: make sim SEEDS=1 FIRST={seed}"
    assert seen.keys() == EVENTS, "the seeds no longer cause every event"


# --- the simulator itself -------------------------------------------------------------------------

PLAN = Plan({"a": {"ring_size": 2, "consumer_timeout": 0}}, {})
SENDS = [("send", "keyed", "a", {"id": f"m{number}"}) for number in range(4)]
WORK = ("work", 0, [("control", 9), ("keyed", 9)], 3)


def lines_of(world: World, *events: str, partition: int = 0) -> list[str]:
    log = world.broker.log("events", partition).records()
    lines = [line for record in log for line in (record.value or b"").decode().split("\n")]
    return [line for line in lines if any(f'"{event}"' in line for event in events)]


def test_a_commit_may_bring_two_messages_with_one_id() -> None:
    def control(**command: str) -> tuple[object, ...]:
        return ("say", partition_for("a"), command, 1)

    send = ("send", "keyed", "a", {"id": "twin", "xid": "x", "xid-owner": "o"})
    begun = [control(type="begin", xid="x", owner="o"), WORK, send, send, WORK]
    world = play(
        PLAN,
        [*begun, control(type="prepare", xid="x"), WORK, control(type="commit", xid="x"), WORK],
    )
    assert [line.count('"id":"twin"') for line in lines_of(world, "added")] == [1, 1]


def test_a_crash_between_transaction_and_store_loses_and_repeats_nothing() -> None:
    for stages in range(4):
        for disk in DISKS[1:]:
            crash = [("commit", 0, stages, ""), ("crash", 0, disk)]
            world = play(PLAN, [*SENDS, (*WORK[:3], 0), *crash, WORK])
            assert [len(lines_of(world, event)) for event in ("added", "evicted")] == [4, 2]


@pytest.mark.parametrize("how", ["clean", "handover", "dirty"])
def test_a_standby_takes_over_and_takes_it_back(how: str) -> None:
    """R127. Its store is open; the old owner's own store has fallen behind when it returns."""
    moves: list[Any] = []
    for to in (1, 0, 1):
        moves += [("standby", 0, to, 2), ("send", "keyed", "a", {"id": f"n{to}"}), WORK]
        moves += [("standby", 0, to, 1), ("assign", 0, to, how), WORK, ("standby", 0, 1 - to, 99)]
    world = play(PLAN, [*SENDS, WORK, *moves, WORK])
    assert [len(lines_of(world, event)) for event in ("added", "evicted")] == [7, 5]


@pytest.mark.parametrize("level", [1, 2])
def test_an_older_worker_takes_over_until_the_level_is_raised(level: int) -> None:
    """R129. Then another worker serves what it is assigned."""
    raised = [("raise_level",), WORK, WORK] if level > 1 else []
    world = World(PLAN)
    try:
        for step in (*SENDS, WORK, *raised, ("change_version", True, "keep"), ("assign", 0, 0, "")):
            world.do(step)
        world.do(("send", "keyed", "a", {"id": "n"}))
        world.do(WORK)
        assert [bool(worker.drivers) for worker in world.workers] == [level == 1, level > 1]
        world.finish()
        assert len(lines_of(world, "added")) == 5
    finally:
        world.close()


def test_an_older_worker_does_not_know_how_to_raise_the_level() -> None:
    older = [("change_version", True, "keep"), ("assign", 0, 0, ""), ("raise_level",), WORK]
    world = play(PLAN, [*SENDS, *older, ("change_version", False, "keep"), ("raise_level",), WORK])
    assert len(lines_of(world, "unreadable")) == 1
    assert len(lines_of(world, "done")) == 1


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((bytes((Kind.QUEUE,)) + b"a", bytes((0x83,)), []), "level 1 has no version 3"),
        (
            (bytes((Kind.UNFINISHED,)), write_json([[["fill", "a", []]], "a", 0, False, []]), []),
            "level 1 has no stages {'fill'}",
        ),
    ],
)
def test_a_row_that_the_older_version_does_not_read_is_found(row: Any, says: str) -> None:
    world = World(PLAN)
    try:
        world.do(("change_version", True, "keep"))
        for step in (*SENDS, ("assign", 0, 0, ""), WORK):
            world.do(step)
        world.broker.write(("changelog", 0), [row])
        with pytest.raises(Wrong, match=says):
            world.do(("change_version", True, "lose"))
            world.do(("assign", 0, 0, ""))
    finally:
        world.close()


def test_a_late_commit_has_no_effect_on_the_next_transaction() -> None:
    """R117: it comes while the next batch is half written."""
    world = play(PLAN, [*SENDS, ("late", 0, [("keyed", 2)]), WORK])
    assert [len(lines_of(world, event)) for event in ("added", "evicted")] == [4, 2]


def test_a_commit_that_is_sent_twice_breaks_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """R117: what a late commit does if the Kafka client has sent another one."""
    monkeypatch.setattr("ringfaust.transactional.vendor.NOT_REPEATED", ())
    with pytest.raises(Wrong):
        play(PLAN, [*SENDS, ("late", 0, [("keyed", 2)]), WORK])


def test_time_acts_though_every_cycle_has_records() -> None:
    """R110: the log of the assignment has been read, even if it has grown since."""
    world = World(Plan({"a": {"ring_size": 2}, "b": {}}, {}))  # both in one partition
    try:
        world.do(("send", "keyed", "b", {"id": "short", "ttl-ms": 20}))
        for number in range(8):
            world.do(("send", "keyed", "a", {"id": f"m{number}"}))
            world.do(("send", "keyed", "a", {"id": f"n{number}"}))
            world.do(("advance", 10))
            world.do(("work", 0, [("keyed", 2)], 3))
        assert lines_of(world, "expired")
    finally:
        world.close()


def test_a_long_step_detaches_nobody() -> None:
    """R110: the heartbeats of that time are in the log, and the worker has not read them yet."""
    world = World(Plan({"a": {"consumer_timeout": 60}}, {}))
    who = {"queue": "a", "consumer": "k1"}
    try:
        world.do(("say", 0, {"type": "attach", **who, "credit": 1}, 1))
        for _ in range(2):  # the second one finds the log of the assignment read
            world.do(WORK)
        for _ in range(10):
            world.do(("advance", 20))
            world.do(("say", 0, {"type": "heartbeat", **who}, 1))
        world.do(("cycle", 0))
        for _ in range(3):
            world.do(WORK)
        assert lines_of(world, "done")
        assert not lines_of(world, "detached")
        world.do(("advance", 2_000))
        for _ in range(3):
            world.do(WORK)
            world.do(("advance", 1_000))
        assert lines_of(world, "detached")
    finally:
        world.close()


def test_a_zombie_is_fenced() -> None:
    half_done = (*WORK[:3], 2)
    world = play(PLAN, [*SENDS, half_done, ("assign", 0, 1, "zombie"), ("zombie", "commit"), WORK])
    assert len(lines_of(world, "added")) == 4


def test_the_reply_to_a_refused_copy_names_the_retained_message() -> None:
    subscription = {"max_message_bytes": 20}
    plan = Plan({}, {"prices": {"retroactive_count": 1, "subscriptions": {"all": subscription}}})
    work = ("work", partition_for("prices"), [("keyed", 9)], 3)
    delete = {"type": "delete_queue", "queue": "prices::all"}
    world = play(
        plan,
        [
            ("send", "keyed", "prices", {"id": "large", "size": 30}),
            work,
            ("say", partition_for("prices"), delete, 1),
            (*work[:2], [("control", 9)], 3),
            ("send", "keyed", "prices", {"id": "small"}),
        ],
    )
    replies = world.broker.log("replies", partition_for("prices")).records()
    assert [record.key for record in replies if b"too_large" in record.value] == [b"large"] * 2


def test_a_refusal_comes_last_however_large_the_step_before_it() -> None:
    """The command finds its address, which fills a subscription; that takes two transactions."""
    subscriptions = {"all": {"ring_size": 2, "max_bytes": 10, "window": 1}}
    prices = {"retroactive_count": 3, "subscriptions": subscriptions}
    plan = Plan({}, {"prices": prices}, step_transitions=1)
    where = partition_for("prices")
    delete = {"type": "delete_queue", "queue": "prices::all"}
    remove = {"type": "remove", "queue": "prices::bob", "message": "m", "reply": "r"}
    world = play(
        plan,
        [
            *(("send", "keyed", "prices", {"id": f"m{number}"}) for number in range(2)),
            ("work", where, [("keyed", 9)], 3),
            ("say", where, delete, 1),
            ("say", where, remove, 1),
            ("work", where, [("control", 9)], 3),
        ],
    )
    logs = [world.broker.log("replies", number) for number in range(PARTITIONS)]
    replies = [reply for log in logs for reply in log.records() if reply.key == b"r"]
    assert [b"unknown_queue" in reply.value for reply in replies] == [True]


def test_a_refusal_does_not_take_back_the_number_of_what_was_lost_before_it() -> None:
    """R82: a search for a message is cut, the commit fails, and the look drops lost bodies."""
    plan = Plan({"a": {}, "b": {}}, {}, step_transitions=1, has_non_persistent=True)
    lossy = {"id": "m2", "delivery-mode": "non_persistent"}
    move = {"type": "move", "queue": "b", "message": "m9", "to": "a"}
    world = play(
        plan,
        [
            *(("send", "keyed", "b", {"id": f"m{number}"}) for number in range(2)),
            ("send", "keyed", "a", lossy),
            *[("work", 0, [("keyed", 1)], 3)] * 4,
            ("say", 0, move, 1),
            ("work", 0, [("control", 1)], 3),
            ("assign", 0, 1, "zombie"),
            *[("work", 0, [], 3)] * 9,
            ("assign", 0, 0, "zombie"),
        ],
    )
    assert lines_of(world, "lost")
    assert lines_of(world, "refused")


@pytest.mark.parametrize("by", ["tick", "control/0/1"])
def test_what_a_start_finds_lost_within_a_large_step_belongs_to_it(by: str) -> None:
    lines = [
        {"step": 1, "by": by, "event": "expired"},
        {"step": 1, "by": "start", "event": "lost"},
        {"step": 2, "by": "start", "event": "lost"},
    ]
    assert groups_of(lines) == [lines[:2], lines[2:]]


def test_a_failing_history_shrinks_to_the_steps_that_fail() -> None:
    given = history(3)

    def fails(fewer: History) -> bool:
        return sum(step[0] == "crash" for step in fewer.steps) >= 2

    shortest = shrink(given, fails)
    assert [step[0] for step in shortest.steps] == ["crash", "crash"]
    assert shortest.plan == Plan({}, {})


def test_the_same_seed_is_the_same_history() -> None:
    assert history(7) == history(7)
    assert eval(str(history(7)), {"play": lambda *given: given, "Plan": Plan}) == tuple(history(7))


def test_the_bookkeeper_finds_a_record_that_no_event_announces() -> None:
    world = World(PLAN)
    world.broker.write(("evicted", 0), [(None, None, [("ringfaust-source", b"keyed/0/0")])])
    with pytest.raises(Wrong, match="evicted has 1 records of 0"):
        world.finish()


SIMULATOR = [path for path in Path(__file__).parent.glob("*.py") if "test" not in path.name]
PATCHES = {"setattr", "delattr", "patch", "monkeypatch", "__self__", "__dict__", "__code__", "mock"}


@pytest.mark.parametrize("path", sorted(SIMULATOR), ids=lambda path: path.name)
def test_the_simulator_patches_nothing(path: Path) -> None:
    """It passes everything to the worker's tasks as arguments."""
    tree = ast.parse(path.read_text())
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            assert name not in PATCHES, f"line {node.lineno}: {ast.unparse(node)}"
            is_change = isinstance(node.ctx, ast.Store | ast.Del)
            owner = ast.unparse(node).partition(".")[0] if isinstance(node, ast.Attribute) else ""
            assert not (is_change and owner in imported), f"line {node.lineno} changes {owner}"
