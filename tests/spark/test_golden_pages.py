"""The exact bytes of a Spark job's stored pages, now and as commit 6d179b1 wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.errors import UnknownRowVersion
from ringfaust.protocol.stored_rows import read_json
from ringfaust.spark.ring.pages import PagedMap
from tests.spark.test_reads_pages_of_6d179b1 import FIXTURE, play, read_pages
from tests.spark.test_ring_pages import MemoryPages

DIRECTORY = bytes.fromhex("0100000002000000010000")
PAGE = bytes.fromhex("81000100000001613100010000000062")
ROWS = [(b"a", b"1"), (b"b", b"")]


def shelf(**pages: bytes) -> MemoryPages:
    found = MemoryPages()
    found.update({0: pages.get("directory", DIRECTORY), 1: pages.get("page", PAGE)})
    return found


def test_a_page_and_the_directory_have_their_golden_bytes() -> None:
    found = MemoryPages()
    paged = PagedMap(found)
    paged.apply(ROWS)
    paged.flush()
    assert found[1] == PAGE
    assert list(PagedMap(shelf()).items_from(b"")) == ROWS


def test_a_page_without_a_version_is_read() -> None:
    assert list(PagedMap(shelf(page=PAGE[1:])).items_from(b"")) == ROWS
    assert list(PagedMap(shelf(page=b"")).items_from(b"")) == []


def test_a_newer_page_or_directory_is_refused() -> None:
    with pytest.raises(UnknownRowVersion, match="a stored page row has version 2"):
        PagedMap(shelf(page=b"\x82" + PAGE[1:])).get(b"a")
    with pytest.raises(UnknownRowVersion, match="a stored page directory row has version 2"):
        PagedMap(shelf(directory=b"\x02" + DIRECTORY[1:]))


def test_the_rows_that_only_a_job_has() -> None:
    """Which topics wait, and which start of the job the partition has done."""
    pages = read_pages()
    old: dict[bytes, Any] = dict(PagedMap(pages).items_from(b""))
    assert old[b"\0waiting"] == b'{"sent": ["b", 0, 4]}'
    assert old[b"\0started"] == b"3"
    batch, after, last = FIXTURE["continued"]
    assert play(pages, batch) == {}, "the start was done, so it is not done again"
    play(pages, after)
    new = dict(PagedMap(pages).items_from(b""))
    assert new[b"\0waiting"].startswith(b'\x81{"sent":["b",')
    assert read_json(new[b"\0started"], "started") == 3
    play(pages, last)
    pages = MemoryPages()
    play(pages, batch)
    assert dict(PagedMap(pages).items_from(b""))[b"\0started"] == b"\x813"
