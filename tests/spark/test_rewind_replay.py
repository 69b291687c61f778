"""The replay of a queue's history: with the same settings it repeats the history exactly."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Fields
from ringfaust.protocol.events import WRITERS, event_tail
from ringfaust.spark.rewind.replay import Departure, EventLine, IncompleteHistory, Replay
from tests.model import histories
from tests.model.harness import DictStore, Partition
from tests.model.profile import PROFILE, WITHOUT_LIMIT
from tests.spark.rewind_log import QUEUES, History

pytestmark = WITHOUT_LIMIT

Steps = list[list[EventLine]]
"""The lines of a queue, step by step."""


def lines_by_queue(
    history: Iterable[tuple[c.Command, int, int, list[e.Effect]]],
) -> dict[str, Steps]:
    """The lines of each queue, as a replay reads them, from (command, step, time, effects)."""
    found: dict[str, Steps] = defaultdict(list)
    for number, (command, step, now_ms, effects) in enumerate(history):
        by = "tick" if isinstance(command, c.Sweep) else f"control/0/{number}"
        kind = "cancel_scheduled" if isinstance(command, c.CancelScheduled) else None
        by_queue: dict[str, list[EventLine]] = defaultdict(list)
        for effect in effects:
            if isinstance(effect, e.Refused):
                continue
            text = WRITERS[type(effect)](effect, step) + event_tail(now_ms, by)
            fields = {k: v for k, v in json.loads(text).items() if k in EventLine._fields}
            if "settings" in fields:
                fields["settings"] = json.dumps(fields["settings"])
            by_queue[effect.queue].append(EventLine(command=kind, **fields))
        for queue, lines in by_queue.items():
            found[queue].append(lines)
    return found


def busy_lines(seed: int, commands: int) -> dict[str, Steps]:
    """The lines of each queue in a busy history."""
    history = History(seed)
    state = history.partition.state
    return lines_by_queue(
        (command, state.step, state.now_ms, effects)
        for command, effects in (history.draw() for _ in range(commands))
    )


def replayed(steps: Steps, settings: Fields, given: Fields) -> list[Departure]:
    replay = Replay(settings, given)
    return [departure for lines in steps for departure in replay.replay_step(lines)]


def evictions(departures: Iterable[Departure]) -> list[tuple[Any, ...]]:
    return [(d.step, d.sequence, d.id, d.reason) for d in departures if d.event == "evicted"]


def evictions_in_history(steps: Steps) -> list[tuple[Any, ...]]:
    return [
        (line.step, line.sequence, line.id, line.reason)
        for lines in steps
        for line in lines
        if line.event == "evicted"
    ]


@pytest.mark.parametrize("seed", range(8))
def test_the_original_settings_repeat_the_evictions_of_a_busy_history(seed: int) -> None:
    for queue, steps in busy_lines(seed, 800).items():
        assert evictions(replayed(steps, QUEUES[queue], {})) == evictions_in_history(steps)


@PROFILE
@given(declared=histories.DECLARED_RINGS, history=histories.RING_HISTORY)
def test_the_original_settings_repeat_the_evictions_of_generated_histories(
    declared: dict[str, Any], history: list[tuple[c.Command, int]]
) -> None:
    partition = Partition(DictStore(), declared)
    state = partition.state
    done = lines_by_queue(
        (command, state.step, state.now_ms, effects)
        for command, effects in (
            (each, partition.step(each, now).all_effects) for each, now in history
        )
    )
    for queue, steps in done.items():
        assert evictions(replayed(steps, declared.get(queue, {}), {})) == evictions_in_history(
            steps
        )


def test_without_a_ring_only_a_purge_evicts() -> None:
    for queue, steps in busy_lines(3, 800).items():
        without = evictions(replayed(steps, QUEUES[queue], {"ring_size": -1}))
        assert {reason for *_, reason in without} <= {"purge"}


def test_a_plain_ring_of_n_keeps_the_last_n() -> None:
    sends = [
        [EventLine(n, "added", n, f"in/0/{n}", None, n, f"m{n}", n, 4, 100)] for n in range(1, 101)
    ]
    for size in (1, 7, 99, 100, 1_000):
        gone = replayed(sends, {"ring_size": 10}, {"ring_size": size})
        assert [d.sequence for d in gone] == list(range(1, 101 - min(size, 100)))
        assert {d.ring_size for d in gone} <= {size}


def test_a_slot_takes_at_most_one_message_and_ends_as_in_history() -> None:
    """A ring of 1 has fewer messages to dispatch: the consumer waits and gets no more later."""
    sends = [
        [EventLine(n, "added", n, f"in/0/{n}", None, n, f"m{n}", n, 4, 100)] for n in (1, 2, 3)
    ]
    attached = EventLine(4, "attached", 10, "control/0/0", None, consumer="me")
    taken = [
        EventLine(4, "dispatched", 10, "control/0/0", None, n, f"m{n}", consumer="me", delivery=n)
        for n in (1, 2, 3)
    ]
    acked = [
        [EventLine(4 + n, "acked", 20 + n, f"control/0/{n}", None, n, f"m{n}", delivery=n)]
        for n in (1, 2)
    ]
    late = [[EventLine(7, "added", 30, "in/0/4", None, 4, "m4", 30, 4, 100)]]
    later = [[EventLine(8, "added", 40, "in/0/5", None, 5, "m5", 40, 4, 100)]]
    gone = replayed(
        [*sends, [attached, *taken], *acked, *late, *later], {"ring_size": 10}, {"ring_size": 1}
    )
    # m1 and m2 are evicted by m3, which takes the slot of m1; the slots of m2 and m3 stay free,
    # until that of m2 ends; that of m3 takes m4, and m5 stays.
    assert [(d.event, d.id) for d in gone] == [
        ("evicted", "m1"),
        ("evicted", "m2"),
        ("acked", "m3"),
    ]


@pytest.mark.parametrize("timeout", [False, True])
def test_a_message_that_is_lost_while_it_is_held_does_not_come_back(timeout: bool) -> None:
    """Its body was lost in a crash (R82). Here another one of the same consumer returns."""
    sends = [
        [EventLine(n, "added", n, f"in/0/{n}", None, n, f"m{n}", n, 4, 100)] for n in (1, 2, 3)
    ]
    attached = EventLine(4, "attached", 10, "control/0/0", None, consumer="me")
    taken = [
        EventLine(4, "dispatched", 10, "control/0/0", None, n, f"m{n}", consumer="me", delivery=n)
        for n in (1, 2)
    ]
    late = [[EventLine(5, "added", 20, "in/0/4", None, 4, "m4", 20, 4, 100)]]
    gone = [
        EventLine(6, "lost", 30, "control/0/1", None, 1, "m1"),
        EventLine(6, "returned", 30, "control/0/1", None, 2, "m2", delivery=2),
        EventLine(6, "detached", 30, "control/0/1", None, consumer="me", timeout=timeout),
    ]
    for lines in (gone, [gone[1], gone[0], gone[2]]):
        left = replayed([*sends, [attached, *taken], *late, lines], {"ring_size": 3}, {})
        assert [(each.event, each.id, each.step) for each in left] == [("removed", "m1", 6)]


def test_an_incomplete_history_is_refused() -> None:
    with pytest.raises(IncompleteHistory, match="message 7 follows 0"):
        replayed([[EventLine(9, "added", 1, "in/0/9", None, 7, "m7", 1, 4, 100)]], {}, {})
