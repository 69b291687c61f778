"""Promises about whole histories: determinism (R102), refusals (R103), crashes at any point."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.table import Kind
from tests.model.harness import BytesStore, DictStore, Partition, queue_names
from tests.model.histories import DECLARED, HISTORY, History
from tests.model.profile import PROFILE, WITHOUT_LIMIT

pytestmark = WITHOUT_LIMIT

STORES = pytest.mark.parametrize("store_type", [DictStore, BytesStore])
StoreType = type[DictStore] | type[BytesStore]


def rows_of(partition: Partition) -> Any:
    """What is durable."""
    store = partition.store
    if isinstance(store, BytesStore):
        return dict(store.durable.items_from(b""))
    return {row: store.get(row) for row in store.rows}


@STORES
@PROFILE
@given(
    declared=DECLARED,
    history=HISTORY,
    commits=st.sets(st.integers(0, 60)),
    looks=st.sets(st.integers(0, 60)),
    refill=st.sampled_from([1, 2, 1_000]),
    cache_bytes=st.sampled_from([0, 2_500, 1 << 30]),
)
def test_batches_memory_and_reads_do_not_change_effects_or_state(
    *,
    store_type: StoreType,
    declared: dict[str, Any],
    history: History,
    commits: set[int],
    looks: set[int],
    refill: int,
    cache_bytes: int,
) -> None:
    """R102: each step a batch, all one, or many that fly over each other: the same bytes."""
    plain = Partition(store_type(), **declared)
    other = Partition(store_type(), **declared, cache_bytes=cache_bytes, refill=refill)
    for index, (command, now) in enumerate(history):
        expected = plain.step(command, now).all_effects
        plain.commit()
        if index in looks and isinstance(command, c.Send):
            other.engine.pausing_queue(command)
        assert other.step(command, now).all_effects == expected
        if index in commits:
            other.finish_commit()
            other.begin_commit()
    other.commit()
    assert rows_of(other) == rows_of(plain)


@STORES
@PROFILE
@given(declared=DECLARED, history=HISTORY, data=st.data())
def test_a_crash_at_any_point_has_the_effect_of_a_start(
    store_type: StoreType, declared: dict[str, Any], history: History, data: st.DataObject
) -> None:
    """What was not committed is lost and done again, after the rollback of open xids (R81)."""
    plain, crashing = Partition(store_type(), **declared), Partition(store_type(), **declared)
    done = 0
    while done < len(history):
        commit_at = data.draw(st.integers(done + 1, len(history)))
        crash_at = data.draw(st.integers(done, commit_at))
        for command, now in history[done:crash_at]:
            crashing.step(command, now)
        crashing.start()
        start: History = [(c.Start(), plain.state.now_ms)]
        for command, now in start + history[done:commit_at]:
            assert crashing.step(command, now).all_effects == plain.step(command, now).all_effects
        crashing.commit()
        plain.commit()
        done = commit_at
    assert rows_of(crashing) == rows_of(plain)


@STORES
@PROFILE
@given(declared=DECLARED, history=HISTORY, crashes=st.sets(st.integers(0, 100), max_size=5))
def test_a_cold_crash_loses_only_non_persistent_messages_and_delivers_none_of_them(
    store_type: StoreType, declared: dict[str, Any], history: History, crashes: set[int]
) -> None:
    """R82. That the accounts balance is checked at each commit (R100)."""
    partition = Partition(store_type(), **declared)
    gone: set[tuple[str, int, int]] = set()
    lives = dict.fromkeys(declared["queues"], 0)
    for index, (command, now) in enumerate(history):
        effects = partition.step(command, now).all_effects
        if index in crashes:
            partition.commit()
            partition.store.lose_bodies()
            partition.start()
            effects += partition.step(c.Start(), now).all_effects
        for one in effects:
            life = lives.setdefault(one.queue, 0)
            if isinstance(one, e.Deleted):
                lives[one.queue] += 1
            elif isinstance(one, e.Dispatched):
                assert (one.queue, life, one.delivery.message.sequence) not in gone
                assert not one.delivery.message.is_bodyless
            elif isinstance(one, e.Lost):
                assert not one.message.persistent
                gone.add((one.queue, life, one.message.sequence))
            elif isinstance(one, e.Acked):
                gone.add((one.queue, life, one.delivery.message.sequence))
        partition.commit()


def is_refused(command: c.Command, effects: list[e.Effect]) -> bool:
    """The command as a whole; a part of an address' sends, or of a transaction's, is no refusal."""
    return [type(one) for one in effects] == [e.Refused] and not isinstance(command, c.Commit)


@PROFILE
@given(declared=DECLARED, history=HISTORY, in_one_batch=st.booleans())
def test_a_refusal_changes_nothing(
    declared: dict[str, Any], history: History, in_one_batch: bool
) -> None:
    partition = Partition(DictStore(), **declared)
    for command, now in history:
        before = partition.would_be_durable().rows
        effects = partition.step(command, now).all_effects
        is_to_address = isinstance(command, c.Send) and command.queue in declared["addresses"]
        # Whatever names an address makes those of its declared queues that are not there.
        is_whole = (Kind.QUEUE, "", 0, "p::one") in before
        if is_refused(command, effects) and is_whole and not is_to_address:
            assert partition.would_be_durable().rows == before
            assert in_one_batch or partition.commit() == []
        if not in_one_batch:
            partition.commit()


@PROFILE
@given(declared=DECLARED, history=HISTORY)
def test_deleted_queues_and_decided_xids_leave_nothing_behind(
    declared: dict[str, Any], history: History
) -> None:
    partition = Partition(DictStore(), **declared)
    for command, now in history:
        partition.step(command, now)
    partition.step(c.Prepare("x"), 10_000)
    partition.step(c.Commit("x"), 10_000)
    partition.step(c.RollbackXid("y"), 10_000)
    for address in declared["addresses"]:
        partition.step(c.ConfigureAddress(address, {"retroactive_count": 0}), 10_000)
    partition.commit()
    for name in queue_names(partition.store):
        partition.step(c.DeleteQueue(name), 10_000)
    partition.commit()
    assert {Kind(row[0]).name for row in partition.store.rows} <= {
        "CLOCK",
        "ADDRESS",
        "CONFIGURATION",
    }
