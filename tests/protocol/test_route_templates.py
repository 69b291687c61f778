"""Templates of the queue's name in routes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from ringfaust.errors import ProtocolError
from ringfaust.protocol.records import FetchedRecord
from ringfaust.protocol.routes import RouteTemplate

HEADERS = [("to", b"eu"), ("to", b"us"), ("bad", b"\xff")]
RECORD = FetchedRecord("in", key=b"k", value=b"v", headers=HEADERS)


@pytest.mark.parametrize(
    ("template", "queue"),
    [
        ("orders", "orders"),
        ("{key}", "k"),
        ("by.{key}", "by.k"),
        ("{topic}.{key}.x", "in.k.x"),
        ("{header:to}", "us"),  # the last of several
        ("{header:}", "{header:}"),
    ],
)
def test_parts_of_the_record_stand_in_for_placeholders(template: str, queue: str) -> None:
    assert RouteTemplate(template).queue_of(RECORD) == queue


@pytest.mark.parametrize(
    ("template", "message"),
    [("{header:none}", "which it does not have"), ("a.{header:bad}", "is not UTF-8")],
)
def test_a_record_that_lacks_a_part_names_no_queue(template: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        RouteTemplate(template).queue_of(RECORD)


def test_a_name_that_is_too_long_is_not_put_together() -> None:
    """100 times a key of 870 kB took 10.5 s and 696 MB before it was refused."""
    key = b"k" * 100_000
    record, template = FetchedRecord("in", key=key), RouteTemplate("{key}" * 100)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="from 1 to 249 characters: 'kkk"):
            template.queue_of(record)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most_bytes < 10 * len(key)


@pytest.mark.parametrize(
    ("template", "around"),
    [
        ("{key}", ("", "")),
        ("a.{key}.{topic}", ("a.", ".{topic}")),
        ("a.{topic}", None),
        ("{key}.{key}", None),
    ],
)
def test_a_template_is_cut_at_its_only_placeholder_of_a_kind(template: str, around: Any) -> None:
    found = RouteTemplate(template).around("key")
    assert (found and tuple(each.text for each in found)) == around


@pytest.mark.parametrize(
    ("template", "queue", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("a.{key}.b", "a.x.y.b", True),
        ("a.{key}.b", "a..b", True),
        ("a.{key}.b", "a.b", False),
        ("{key}.m.{topic}.m.{key}", "1.m.2.m.3", True),
        ("{key}.m.{topic}.m.{key}", "1.m.3", False),
        ("{key}\n%_!", "new\nline\n%_!", True),
        ("{key}%", "x_", False),
    ],
)
def test_a_template_may_name_what_has_its_texts(template: str, queue: str, expected: bool) -> None:
    assert RouteTemplate(template).may_name(queue) is expected


def test_a_template_of_many_placeholders_is_compared_in_linear_time() -> None:
    """A regular expression with as many `.*` would try each place for each of them."""
    assert not RouteTemplate("{key}a" * 60 + "b").may_name("a" * 240)
    assert RouteTemplate("{key}a" * 60).may_name("a" * 240)
