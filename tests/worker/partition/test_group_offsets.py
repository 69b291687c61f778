"""When a partition commits its positions for the consumer group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ringfaust.kafka.offsets import CommittedOffset, repartition_metadata
from ringfaust.worker.partition.group_offsets import LAG_S
from ringfaust.worker.partition.route_changes import RouteSwitch
from ringfaust.worker.partition.work import PartitionWork


class Processor:
    """Has decided nothing but positions."""

    inputs_changed = False
    is_unfinished = False
    revision = 0

    def __init__(self, **positions: int) -> None:
        self.positions = positions
        self.inputs: dict[str, Any] = {}

    def next_wake_ms(self) -> None: ...

    def activity(self) -> None: ...

    def outputs(self) -> dict[Any, Any]:
        return {}

    def writes(self) -> None: ...

    def go_to(self, *_: object) -> None: ...


class Work:
    """The work of a partition with two topics, at a time that the test sets."""

    def __init__(self, group: dict[str, int], **positions: int) -> None:
        self.now_s = 100.0
        context: Any = SimpleNamespace(
            topics={"control": "control"},
            stops_at_gaps=False,
            is_metered=False,
            clock=SimpleNamespace(monotonic_s=lambda: self.now_s, wall_ms=lambda: 0),
            processor_config=SimpleNamespace(log_is_clock=True),
        )
        self.work = PartitionWork(0, frozenset({"in", "control"}), context)
        self.processor = self.work._processor = Processor(**positions)  # type: ignore[assignment]
        self.work._routes = RouteSwitch(0, self.work._processor, None)
        self.work._ends = None
        self.work._group._known = group
        self.work._looked = (self.work._given, 0)
        self.work._before = dict(positions)

    def open(self, committed: dict[str, CommittedOffset]) -> None:
        """Open the partition, whose logs have not changed."""
        self.work.check_inputs({}, committed)

    def read_to(self, topic: str, position: int) -> dict[str, int] | None:
        """What the group gets with the commit after a record was read; None: no commit."""
        self.processor.positions[topic] = position
        return self.take()

    def take(self, **options: Any) -> dict[str, int] | None:
        pending = self.work.take_commit(0, **options)
        return None if pending is None else dict(pending.offsets)


def test_the_group_follows_within_two_seconds_and_not_with_each_batch() -> None:
    work = Work({"in": 5}, **{"in": 5})
    assert work.read_to("in", 6) == {"in": 6}
    work.now_s += LAG_S / 2
    assert work.read_to("in", 7) == {}
    assert work.read_to("control", 1) == {}
    assert work.work.poll_timeout_s() == LAG_S / 2
    assert work.take() is None
    work.now_s += LAG_S / 2
    assert work.work.poll_timeout_s() == 0.0
    assert work.take() == {"in": 7, "control": 1}
    assert work.work.poll_timeout_s() is None


def test_the_group_is_up_to_date_after_the_last_commit() -> None:
    work = Work({"in": 5}, **{"in": 5})
    work.read_to("in", 6)
    assert work.read_to("in", 7) == {}
    assert work.take(is_last=True) == {"in": 7}
    assert work.take(is_last=True) is None


def test_a_probe_commits_the_positions_though_nothing_has_changed() -> None:
    work = Work({"in": 5}, gone=3, **{"in": 5})
    assert work.take() is None
    assert work.take(is_probe=True) == {"in": 5}


def test_a_group_that_is_ahead_is_corrected_at_once() -> None:
    """If not, the next start would take it for lost state: the log was cut, and the state knows."""
    work = Work({"in": 9}, **{"in": 5})
    work.work._group._next_s = work.now_s + LAG_S
    assert work.read_to("in", 6) == {"in": 6}


def test_a_group_that_lags_after_a_crash_is_corrected_without_new_records() -> None:
    work = Work({"in": 5}, **{"in": 8})
    assert work.work.poll_timeout_s() == 0.0
    assert work.take() == {"in": 8}


def test_topics_that_are_not_read_any_more_keep_their_offsets() -> None:
    work = Work({"in": 5}, gone=3, **{"in": 5})
    assert work.take() is None


def test_the_offsets_in_the_group_are_those_that_were_read_at_the_start() -> None:
    work = Work({}, **{"in": 5})
    work.open({"in": CommittedOffset(5)})
    assert work.take() is None


def test_the_offset_of_a_repartition_task_is_replaced_by_the_first_commit() -> None:
    """If not, the next start would take it for the position, and process records again."""
    work = Work({}, **{"in": 5})
    work.open({"in": CommittedOffset(5, repartition_metadata("id"))})
    assert work.read_to("in", 6) == {"in": 6}
    work.open({"in": CommittedOffset(6, repartition_metadata("id"))})
    assert work.take() == {"in": 6}


def test_the_offsets_name_the_changelog_that_has_their_state() -> None:
    work = Work({"in": 5}, **{"in": 5})
    work.work._changelog_id = "one"
    work.processor.positions["in"] = 6
    pending = work.work.take_commit(0)
    assert pending is not None
    assert CommittedOffset(6, pending.metadata).changelog_id == "one"
