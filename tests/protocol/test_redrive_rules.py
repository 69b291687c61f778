"""How a dead or evicted record becomes a producer's record again (R43)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.protocol.redrive import (
    message_headers,
    missing_payload,
    queue_header_for,
    redriven_headers,
)

HEADERS = [
    ("to", b"eu"),
    ("ringfaust-properties", b"{}"),
    ("ringfaust-redrives", b"1"),
    ("ringfaust-id", b"A"),
    ("ringfaust-priority", b"7"),
    ("ringfaust-queue", b"orders"),
    ("ringfaust-sequence", b"17"),
    ("ringfaust-reason", b"rejected"),
]
NAMED = "{header:ringfaust-queue}"


@dataclass
class Dead:
    """A dead record, as far as a route reads it."""

    key: bytes | None = b"k"
    value: bytes | None = b""
    headers: list[tuple[str, bytes]] = field(default_factory=lambda: list(HEADERS))


def test_only_the_messages_own_headers_are_kept() -> None:
    assert [name for name, _ in message_headers(HEADERS)] == [
        "to",
        "ringfaust-properties",
        "ringfaust-redrives",
    ]


def test_a_redriven_record_keeps_id_priority_and_properties_and_counts_up() -> None:
    assert redriven_headers(HEADERS, "orders") == [
        ("to", b"eu"),
        ("ringfaust-properties", b"{}"),
        ("ringfaust-id", b"A"),
        ("ringfaust-priority", b"7"),
        ("ringfaust-queue", b"orders"),
        ("ringfaust-redrives", b"2"),
        ("ringfaust-redrive-of", b"orders/17"),
    ]


def test_a_group_is_kept_and_no_queue_header_is_added_unless_the_route_reads_it() -> None:
    redriven = dict(redriven_headers([*HEADERS, ("ringfaust-group", b"g")], ""))
    assert redriven["ringfaust-group"] == b"g"
    assert "ringfaust-queue" not in redriven


@pytest.mark.parametrize(
    ("template", "queue", "value"),
    [
        ("orders", "orders", ""),
        ("orders", "other", None),
        ("{topic}.{key}.{header:to}", "in.k.eu", ""),
        (NAMED, "orders", "orders"),
        (f"{{header:to}}.{NAMED}.{{key}}", "eu.orders.k", "orders"),
        (f"{{header:to}}.{NAMED}.{{key}}", "us.orders.k", None),
        (f"a{NAMED}a", "aa", None),  # no characters are left for the header
        (f"a{NAMED}a", "a", None),
        (f"{NAMED}.{NAMED}", "x.x", None),
        ("{header:missing}", "orders", None),
        ("{header:ringfaust-reason}", "rejected", None),  # not passed on
    ],
)
def test_the_queue_header_is_rebuilt_from_the_queues_name(
    template: str, queue: str, value: str | None
) -> None:
    record: Any = Dead()
    assert queue_header_for("in", template, record, queue) == value


def test_an_evicted_record_without_a_value_lacks_its_payload_unless_it_is_kept_in_full() -> None:
    now = Catalog({"thin": {"evicted_payload": "none"}, "whole": {}, "was_thin": {}}, {})
    before = Catalog({"was_thin": {"evicted_payload": "reference"}}, {})
    assert missing_payload([now, before], "thin") == "none"
    assert missing_payload([now, before], "was_thin") == "reference"
    assert missing_payload([now, before], "whole") == ""
