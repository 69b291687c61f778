"""Promises about whole histories: determinism (R102), refusals (R103), crashes at any point."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import command as c
from ringfaust.core import effect as e
from ringfaust.core import limits
from tests.model import strategies as s
from tests.model.harness import BytesStore, DictStore, Partition
from tests.model.profile import PROFILE, WITHOUT_LIMIT

pytestmark = WITHOUT_LIMIT

History = list[tuple[c.Command, int]]
STORES = pytest.mark.parametrize("store_type", [DictStore, BytesStore])


def rows_of(partition: Partition) -> Any:
    """What is durable."""
    store = partition.store
    if isinstance(store, BytesStore):
        return dict(store.durable.items_from(b""))
    return {row: store.get(row) for row in store.rows}


@STORES
@PROFILE
@given(
    declared=s.DECLARED,
    history=s.HISTORY,
    commits=st.sets(st.integers(0, 60)),
    refill=st.sampled_from([1, 2, 1_000]),
    cache_bytes=st.sampled_from([0, 2_500, 1 << 30]),
)
def test_neither_batches_nor_memory_change_effects_or_state(
    *,
    store_type: type[DictStore] | type[BytesStore],
    declared: dict[str, Any],
    history: History,
    commits: set[int],
    refill: int,
    cache_bytes: int,
) -> None:
    """R102: each step a batch, all one, or many that fly over each other: the same bytes."""
    usual = limits.REFILL
    plain = Partition(store_type(), declared)
    other = Partition(store_type(), declared, cache_bytes)
    for index, (command, now) in enumerate(history):
        expected = plain.step(command, now)
        plain.commit()
        limits.REFILL = refill
        try:
            assert other.step(command, now) == expected
            if index in commits:
                other.land()
                other.take_off()
        finally:
            limits.REFILL = usual
    other.commit()
    assert rows_of(other) == rows_of(plain)


@STORES
@PROFILE
@given(declared=s.DECLARED, history=s.HISTORY, data=st.data())
def test_a_crash_at_any_point_changes_nothing(
    store_type: type[DictStore] | type[BytesStore],
    declared: dict[str, Any],
    history: History,
    data: st.DataObject,
) -> None:
    """What was not committed is lost and done again, with the same effects."""
    plain = Partition(store_type(), declared)
    expected = [plain.step(command, now) for command, now in history]
    plain.commit()
    crashing = Partition(store_type(), declared)
    done = 0
    while done < len(history):
        commit_at = data.draw(st.integers(done + 1, len(history)))
        crash_at = data.draw(st.integers(done, commit_at))
        for index in range(done, crash_at):
            assert crashing.step(*history[index]) == expected[index]
        crashing.start()
        for index in range(done, commit_at):
            assert crashing.step(*history[index]) == expected[index]
        crashing.commit()
        crashing.start()
        done = commit_at
    assert rows_of(crashing) == rows_of(plain)


@PROFILE
@given(declared=s.DECLARED, history=s.HISTORY, in_one_batch=st.booleans())
def test_a_refusal_is_alone_and_changes_nothing(
    declared: dict[str, Any], history: History, in_one_batch: bool
) -> None:
    partition = Partition(DictStore(), declared)
    for command, now in history:
        before = partition.would_be_durable().rows
        effects = partition.step(command, now)
        if any(isinstance(one, e.Refused) for one in effects):
            assert len(effects) == 1
            assert partition.would_be_durable().rows == before
            assert in_one_batch or partition.commit() == []
        if not in_one_batch:
            partition.commit()


@PROFILE
@given(declared=s.DECLARED, history=s.HISTORY)
def test_a_deleted_queue_leaves_nothing_behind(declared: dict[str, Any], history: History) -> None:
    partition = Partition(DictStore(), declared)
    for command, now in history:
        partition.step(command, now)
    for name in s.QUEUES:
        partition.step(c.DeleteQueue(name), 10_000)
    partition.commit()
    assert {row[0].name for row in partition.store.rows} <= {"CLOCK"}
