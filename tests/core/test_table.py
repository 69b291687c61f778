"""Windows over the store, against a sorted dict."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ringfaust.core import commands as c
from ringfaust.core.catalog import Catalog
from ringfaust.core.engine import Engine
from ringfaust.core.limits import REFILL_BYTES
from ringfaust.core.queue import Queue
from ringfaust.core.state import State
from ringfaust.core.table import FIRST_REFILL, ROW_BYTES, Key, Kind, Ordered, Row, Rows, WriteSet
from tests.model.harness import DictStore, rows_of

KEYS = st.integers(0, 25)


class Value(NamedTuple):
    text: str
    size_bytes: int


VALUES = st.builds(Value, st.text(max_size=2), st.integers(0, 100))


class Windows(RuleBasedStateMachine):
    """One table beside a plain dict; the table is asked in every way there is."""

    @initialize(
        rows=st.dictionaries(KEYS, VALUES, max_size=12),
        refill=st.sampled_from([1, 2, 3, 1_000]),
        refill_bytes=st.sampled_from([1, 1_300, 1 << 20]),
        cache_bytes=st.sampled_from([0, 4_000, 1 << 20]),
    )
    def begin(
        self, rows: dict[int, Value], refill: int, refill_bytes: int, cache_bytes: int
    ) -> None:
        self.store = DictStore()
        self.store.apply(((Kind.RING, "q", 0, key), value) for key, value in rows.items())
        self.write_set = WriteSet(self.store, refill)
        self.write_set.refill_bytes = refill_bytes
        self.write_set.cache_bytes = cache_bytes
        self.truth = dict(rows)
        self.in_flight: dict[Row, Value | None] = {}
        self.table = Ordered(self.write_set, Kind.RING, "q", fresh=not rows, weighs=True)

    @rule(key=KEYS, value=VALUES)
    def put_new(self, key: int, value: Value) -> None:
        if key not in self.truth:
            self.table.put_new(key, value)
            self.truth[key] = value

    @rule(key=KEYS, value=VALUES)
    def put(self, key: int, value: Value) -> None:
        self.table.put(key, value)
        self.truth[key] = value

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        self.table.delete(key)
        self.truth.pop(key, None)

    @rule(count=st.integers(1, 4))
    def delete_from_the_front(self, count: int) -> None:
        for _ in range(count):
            if (key := self.table.first_key()) is not None:
                self.table.delete(key)
                del self.truth[key]

    @rule(key=KEYS)
    def get(self, key: int) -> None:
        assert self.table.get(key) == self.truth.get(key)

    @rule()
    def first(self) -> None:
        assert self.table.first() == min(self.truth.items(), default=None)

    @rule()
    def iterate(self) -> None:
        assert list(self.table) == sorted(self.truth.items())

    @rule(most=st.integers(1, 9))
    def read_some(self, most: int) -> None:
        pairs = zip(self.table, range(most), strict=False)
        assert [pair for pair, _ in pairs] == sorted(self.truth.items())[:most]

    @rule(after=st.none() | KEYS, most=st.integers(0, 30), doomed=st.sets(KEYS), new=KEYS)
    def walk(self, after: int | None, most: int, doomed: set[int], new: int) -> None:
        """The current row may be deleted meanwhile, and rows may be put before it."""
        expected = [key for key in sorted(self.truth) if after is None or key > after]
        seen = []
        for key, value in self.table.walk(after):
            assert value == self.truth[key]
            seen.append(key)
            if key in doomed:
                self.delete(key)
            if new < key:
                self.put_new(new, Value("new", 1))
            if len(seen) > most:
                break
        assert seen == expected[: most + 1]

    @rule(doomed=st.sets(KEYS), before=st.lists(KEYS, max_size=2))
    def change_while_iterating(self, doomed: set[int], before: list[int]) -> None:
        """Rows may be deleted meanwhile, and put before where it stands."""
        expected = sorted(self.truth)
        seen = []
        for key, _ in self.table:
            seen.append(key)
            if key in doomed:
                self.delete(key)
            for new in before:
                if new < key:
                    self.put_new(new, Value("new", 1))
        assert seen == expected

    @rule(after=st.none() | KEYS, most=st.integers(1, 9))
    def scan(self, after: int | None, most: int) -> None:
        rows = [(k, v) for k, v in sorted(self.truth.items()) if after is None or k > after]
        assert self.table.scan(after, most) == rows[:most]

    @precondition(lambda self: not self.in_flight)
    @rule()
    def begin_commit(self) -> None:
        self.in_flight = dict(rows_of([self.table.writes()]))
        self.write_set.dirty.clear()

    @rule()
    def finish_commit(self) -> None:
        self.store.apply(self.in_flight.items())
        self.in_flight = {}
        self.table.committed()

    @rule(excess=st.integers(0, 4_000))
    def shed(self, excess: int) -> None:
        before = self.write_set.cached_bytes
        self.table.shed(excess)
        kept = list(self.table._values)
        assert self.write_set.cached_bytes <= max(before - excess, 0) or len(kept) <= 1

    @rule()
    def forget(self) -> None:
        self.table.forget()
        assert self.write_set.cached_bytes == 0

    @invariant()
    def weighs_what_it_holds(self) -> None:
        if hasattr(self, "table"):
            ahead = self.table._ahead
            held = [*self.table._values.values(), *(ahead.values.values() if ahead else ())]
            assert self.write_set.cached_bytes == sum(v.size_bytes + ROW_BYTES for v in held)

    @invariant()
    def writes_are_the_difference(self) -> None:
        """Store, what flies and what changed since make the truth."""
        if not hasattr(self, "table"):
            return
        table = deepcopy(self.table)
        store: Any = table.write_set.store
        store.apply(self.in_flight.items())
        table.committed()
        store.apply(rows_of([table.writes()]))
        assert dict(store.scan(Kind.RING, "q", 0, None, 99)) == self.truth


def test_an_ordered_table_behaves_like_a_sorted_dict() -> None:
    run_state_machine_as_test(
        Windows,
        settings=settings(max_examples=100, stateful_step_count=40, deadline=None, print_blob=True),
    )


@pytest.mark.parametrize("table_type", [Rows, Ordered])
def test_a_row_put_and_deleted_in_one_batch_is_never_written(table_type: type[Rows]) -> None:
    book = WriteSet(DictStore())
    extra = {} if table_type is Rows else {"fresh": True}
    table = table_type(book, Kind.GROUP, "q", **extra)
    table.put_new(1, "one")
    table.delete(1)
    assert rows_of([table.writes()]) == []


def test_a_row_deleted_and_put_again_is_overwritten() -> None:
    store = DictStore()
    store.apply([((Kind.GROUP, "q", 0, 1), "old")])
    table = Rows(WriteSet(store), Kind.GROUP, "q")
    table.delete(1)
    assert table.get(1) is None
    table.put_new(1, "new")
    table.delete(1)
    assert rows_of([table.writes()]) == [((Kind.GROUP, "q", 0, 1), None)]


class Counting:
    """Counts the rows of a store that are decoded."""

    def __init__(self, store: DictStore) -> None:
        self.store = store
        self.decoded = 0
        self.begins: list[Key | None] = []
        """The keys behind which rows were asked for."""

    def get(self, row: Row) -> Any | None:
        return self.store.get(row)

    def scan(self, kind: int, queue: str, part: Any, after: Key | None, most: int) -> Iterator[Any]:
        self.begins.append(after)
        for pair in self.store.scan(kind, queue, part, after, most):
            self.decoded += 1
            yield pair


def test_large_rows_are_read_a_few_at_a_time() -> None:
    """R114: a read is bounded in bytes, and not only in rows."""
    rows = DictStore()
    large = Value("large", REFILL_BYTES // 4)
    rows.apply(((Kind.RING, "q", 0, number), large) for number in range(100))
    store = Counting(rows)
    table = Ordered(WriteSet(store), Kind.RING, "q", fresh=False, weighs=True)
    assert table.first() == (0, large)
    assert store.decoded <= 4
    assert [key for key, _ in table.walk()] == [*range(100)]


def even_rows(refill: int) -> tuple[Counting, Ordered]:
    """A table with the keys 0, 2 … 198."""
    rows = DictStore()
    rows.apply(((Kind.RING, "q", 0, number), Value("small", 1)) for number in range(0, 200, 2))
    store = Counting(rows)
    return store, Ordered(WriteSet(store, refill), Kind.RING, "q", fresh=False, weighs=True)


def keys_from(table: Ordered, after: int, most: int) -> list[int]:
    return [key for key, _ in islice(table.walk(after), most)]


def test_a_walk_behind_the_window_continues_in_what_the_last_one_has_read() -> None:
    store, table = even_rows(10)
    assert keys_from(table, 100, 3) == [102, 104, 106]
    store.decoded = 0
    assert keys_from(table, 106, 7) == [108, 110, 112, 114, 116, 118, 120]
    assert store.decoded == 0
    assert keys_from(table, 120, 1) == [122]
    assert store.decoded == 10


def test_such_a_walk_sees_what_has_changed_meanwhile() -> None:
    _, table = even_rows(10)
    assert keys_from(table, 100, 1) == [102]
    table.delete(104)
    assert keys_from(table, 100, 2) == [102, 106]
    table.put_new(103, Value("new", 1))
    assert keys_from(table, 100, 3) == [102, 103, 106]
    table.put(106, Value("changed", 1))
    assert dict(islice(table.walk(100), 3))[106] == Value("changed", 1)


def test_such_a_walk_sees_what_was_deleted_while_the_window_reached_there() -> None:
    _, table = even_rows(10)
    assert keys_from(table, 100, 1) == [102]
    assert len(list(table)) == 100
    assert table.write_set.cached_bytes == 100 * (ROW_BYTES + 1)
    table.delete(104)
    table.shed(1 << 30)
    assert keys_from(table, 100, 2) == [102, 106]


def test_a_walk_keeps_no_rows_for_which_the_cache_has_no_room() -> None:
    _, table = even_rows(10)
    table.write_set.cache_bytes = 9 * ROW_BYTES
    assert keys_from(table, 100, 1) == [102]
    assert table.write_set.cached_bytes <= FIRST_REFILL * (ROW_BYTES + 1)


def test_a_read_does_not_pass_the_deleted_rows_at_the_head_of_a_ring() -> None:
    rows = DictStore()
    rows.apply(((Kind.RING, "q", 0, number), Value("small", 1)) for number in range(100))
    store = Counting(rows)
    table = Ordered(WriteSet(store), Kind.RING, "q", fresh=False, weighs=True)
    for number in range(50):
        assert table.first_key() == number
        table.delete(number)
    table.forget()
    store.begins.clear()
    assert table.first_key() == 50
    assert store.begins == [49]
    table.put(7, Value("returned", 1))  # such a row is older than the head
    table.forget()
    assert table.first_key() == 7
    # The head is unknown again: the rows up to 1, which this batch has deleted, are read first.
    assert store.begins == [49, None, 1]


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_read_decodes_no_more_rows_because_others_have_changed(in_flight: bool) -> None:
    """A batch changes thousands of rows. Each read from the store decoded as many on top."""
    rows = DictStore()
    rows.apply(((Kind.QUEUE, "", 0, number), Value("small", 1)) for number in range(1_000))
    store = Counting(rows)
    write_set = WriteSet(store, refill=10)
    scanned = Rows(write_set, Kind.QUEUE, "")
    ordered = Ordered(write_set, Kind.QUEUE, "", fresh=False, weighs=True)
    for table in (scanned, ordered):
        for number in range(500, 1_000):
            table.put(number, Value("changed", 1))
        if in_flight:
            table.writes()
        store.decoded = 0
        found = table.scan(None, 10) if table is scanned else [ordered.first()]
        assert found[0] == (0, Value("small", 1))
        assert store.decoded <= 10


def filled(*before: c.Command, expires_at_ms: int = 0) -> tuple[Engine, Queue]:
    """A queue with 500 messages after a commit, with a cache for fewer of them."""
    store = DictStore()
    state = State(store, Catalog({"q": {}}, {}))
    engine = Engine(state)
    for command in before:
        engine.step(command, 1)
    for number in range(500):
        engine.step(c.Send("q", f"m{number}", 1, expires_at_ms=expires_at_ms), 1)
    store.apply(rows_of(state.writes()))
    state.committed(20_000)
    queue = state.queue("q")
    assert queue is not None
    return engine, queue


def test_rows_that_say_when_messages_expire_count_against_the_cache() -> None:
    """R114: a ring of a million messages with a TTL has a million of them."""
    engine, queue = filled(expires_at_ms=9_000)
    assert len(queue.expiry._values) < 100
    engine.step(c.Sweep(), 9_000)
    assert queue.counts.expired == 500


def test_what_consumers_hold_stays_decoded_when_the_ready_messages_do_not_fit() -> None:
    """Their acks come soon. Each of them read its delivery from the store again."""
    _, queue = filled(c.Attach("q", "consumer", 10))
    assert len(queue.deliveries._values) == 10
    assert sum(len(level._values) for level in queue.levels.values()) < 100
