"""A sorted map in pages behaves like a dict and touches few pages."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from ringfaust.spark.ring import pages
from ringfaust.spark.ring.pages import PagedMap


class MemoryPages(dict[int, bytes]):
    """Pages in memory, and how often one was read, written or removed."""

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


@given(batches=st.lists(writes, max_size=8), start=keys, page_bytes=st.integers(1, 500))
def test_a_paged_map_behaves_like_a_sorted_dict(
    batches: list[list[tuple[bytes, bytes | None]]], start: bytes, page_bytes: int
) -> None:
    with patch.object(pages, "PAGE_BYTES", page_bytes):
        store, known = MemoryPages(), dict[bytes, bytes]()
        for batch in batches:
            rows = PagedMap(store)
            half = len(batch) // 2
            rows.apply(batch[:half])
            rows.apply(batch[half:])
            rows.flush()
            for key, value in batch:
                if value is None:
                    known.pop(key, None)
                else:
                    known[key] = value
            reopened = PagedMap(store)
            assert list(reopened.items_from(b"")) == sorted(known.items())
            wanted = [item for item in sorted(known.items()) if item[0] >= start]
            assert list(reopened.items_from(start)) == wanted
            assert reopened.get(start) == known.get(start)


def test_a_batch_touches_few_of_many_pages() -> None:
    store = MemoryPages()
    rows = PagedMap(store)
    rows.apply((b"%08d" % number, b"x" * 250) for number in range(100_000))
    rows.flush()
    assert len(store) > 300
    store.calls = 0
    rows = PagedMap(store)
    rows.apply((b"%08d" % number, None) for number in range(50))
    rows.apply((b"%08d" % number, b"x" * 250) for number in range(100_000, 100_050))
    rows.flush()
    assert store.calls <= 6


def test_empty_pages_are_removed() -> None:
    store = MemoryPages()
    rows = PagedMap(store)
    rows.apply((b"%08d" % number, b"x" * 250) for number in range(10_000))
    rows.flush()
    rows = PagedMap(store)
    rows.apply((b"%08d" % number, None) for number in range(10_000))
    rows.flush()
    assert len(store) == 2, "the directory and the first page"
    assert list(PagedMap(store).items_from(b"")) == []
