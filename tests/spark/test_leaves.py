"""A sorted map in pages: what a dict would do, and few pages touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringfaust.spark.ring import pages as leaves
from ringfaust.spark.ring.pages import Leaves


class Shelf(dict[int, bytes]):
    """Pages, and how often each is asked for or written."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def get(self, number: int) -> bytes | None:  # type: ignore[override]
        self.calls += 1
        return super().get(number)

    def put(self, number: int, page: bytes) -> None:
        self.calls += 1
        self[number] = page

    def remove(self, number: int) -> None:
        self.calls += 1
        del self[number]


keys = st.binary(max_size=3)
writes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=200)), max_size=60)


@given(batches=st.lists(writes, max_size=8), start=keys, leaf_bytes=st.integers(1, 500))
def test_it_is_a_sorted_dict(
    batches: list[list[tuple[bytes, bytes | None]]], start: bytes, leaf_bytes: int
) -> None:
    before, leaves.LEAF_BYTES = leaves.LEAF_BYTES, leaf_bytes
    try:
        shelf, known = Shelf(), dict[bytes, bytes]()
        for batch in batches:
            opened = Leaves(shelf)
            half = len(batch) // 2
            opened.apply(batch[:half])
            opened.apply(batch[half:])
            opened.flush()
            for key, value in batch:
                if value is None:
                    known.pop(key, None)
                else:
                    known[key] = value
            again = Leaves(shelf)
            assert list(again.items_from(b"")) == sorted(known.items())
            wanted = [item for item in sorted(known.items()) if item[0] >= start]
            assert list(again.items_from(start)) == wanted
            assert again.get(start) == known.get(start)
    finally:
        leaves.LEAF_BYTES = before


def test_a_batch_touches_few_pages_of_many() -> None:
    shelf = Shelf()
    ring = Leaves(shelf)
    ring.apply((b"%08d" % number, b"x" * 250) for number in range(100_000))
    ring.flush()
    assert len(shelf) > 300
    shelf.calls = 0
    ring = Leaves(shelf)
    ring.apply((b"%08d" % number, None) for number in range(50))
    ring.apply((b"%08d" % number, b"x" * 250) for number in range(100_000, 100_050))
    ring.flush()
    assert shelf.calls <= 6


def test_what_is_empty_leaves_no_page_behind() -> None:
    shelf = Shelf()
    ring = Leaves(shelf)
    ring.apply((b"%08d" % number, b"x" * 250) for number in range(10_000))
    ring.flush()
    ring = Leaves(shelf)
    ring.apply((b"%08d" % number, None) for number in range(10_000))
    ring.flush()
    assert len(shelf) == 2, "the directory and the first leaf"
    assert list(Leaves(shelf).items_from(b"")) == []
