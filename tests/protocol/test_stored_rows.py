"""Stored rows come back as they were, and the changelog's form lacks the body alone (R82)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfaust.core.address import AddressRow
from ringfaust.core.model import (
    AckMode,
    Consumer,
    Delivery,
    Message,
    Operation,
    XidRow,
    plain_position,
)
from ringfaust.core.queue import QueueRow
from ringfaust.core.table import Kind, Row
from ringfaust.protocol.records import Payload
from ringfaust.protocol.stored_rows import (
    after_prefix,
    read_tail,
    read_value,
    table_prefix,
    without_bodies,
    without_body,
    write_key,
    write_message,
    write_value,
)

WHOLE = Message(
    "id-ü", 7, plain_position(7), 9, 1, 2, 3, "group", 1, 2, ("me", "you"), 99,
    Payload(b"key", b"the body", (("theirs", b"1"), ("null", None)), "in/0/7"),  # type: ignore[arg-type]
)  # fmt: skip
NON_PERSISTENT = WHOLE._replace(persistent=False, priority=0)
BODYLESS = NON_PERSISTENT._replace(payload=Payload(None, None, (), "in/0/7"), is_bodyless=True)
BARE = WHOLE._replace(payload=Payload(None, b"", (), ""), holders=(), group="")
CONSUMER = Consumer("me", 1, 5, -1, AckMode.CLIENT, "s", True, 9, "a = 1", 77)
QUEUE = QueueRow(
    {"ring_size": 3}, {}, (1,) * 12, (1,) * 10, 1, 1, ((1, 2, 3),), ("pulling",), 5, 6, 7, (8, 9)
)


def delivery(message: Message, **fields: Any) -> Delivery:
    return Delivery(2**40, "me-ü", message, 1_700_000_000_000, **fields)


ROWS: list[tuple[Row, Any]] = [
    *(((kind, "q", 3, 7), message) for kind in (Kind.RING, Kind.SCHEDULED)
      for message in (WHOLE, NON_PERSISTENT, BODYLESS, BARE)),
    ((Kind.DELIVERY, "q", 0, 5), delivery(WHOLE)),
    ((Kind.DELIVERY, "q", 0, 5), delivery(NON_PERSISTENT, xid="an xid of ü")),
    ((Kind.DELIVERY, "q", 0, 5), delivery(BODYLESS, xid="x" * 249, is_orphan=True)),
    ((Kind.CONSUMER, "q", 0, 1), CONSUMER),
    ((Kind.QUEUE, "", 0, "q"), QUEUE._replace(size_bytes=2**40, non_persistent=3)),
    ((Kind.ADDRESS, "", 0, "prices"), AddressRow({"retroactive_count": 2}, ("prices::a",), 3, 5)),
    ((Kind.RETAINED, "prices", 0, 2**63), WHOLE._replace(sequence=0, position=0)),
    ((Kind.XID, "", 0, 3), XidRow("an xid", True, 7)),
    ((Kind.OPERATION, "", 3, 1), Operation("q-ü", None, 42)),
    ((Kind.OPERATION, "", 3, 2), Operation("prices", NON_PERSISTENT._replace(sequence=0), 0)),
]  # fmt: skip


@pytest.mark.parametrize(("row", "value"), ROWS)
def test_a_row_comes_back(row: Row, value: Any) -> None:
    kind, queue, part, key = row
    raw_key, prefix = write_key(row), table_prefix(kind, queue, part)
    assert raw_key.startswith(prefix)
    assert read_tail(kind, raw_key[len(prefix) :]) == key
    assert read_value(kind, write_value(kind, value)) == value


def test_the_operations_of_a_transaction_stand_in_their_order() -> None:
    rows = [(Kind.OPERATION, "", part, key) for part in (1, 2, 300) for key in (1, 2, 300)]
    assert sorted(rows, key=write_key) == rows
    first = table_prefix(Kind.OPERATION, "", 1)
    assert [write_key(row).startswith(first) for row in rows] == [True] * 3 + [False] * 6


def test_rows_of_before_are_read() -> None:
    consumer = json.dumps(["me", 1, 5, 0, "auto", "", True, 9]).encode()
    assert read_value(Kind.CONSUMER, consumer) == Consumer("me", 1, 5, 0, AckMode.AUTO, "", True, 9)
    assert read_value(Kind.QUEUE, json.dumps(QUEUE[:12]).encode()) == QUEUE


@pytest.mark.parametrize("kind", [Kind.RING, Kind.SCHEDULED])
def test_the_changelog_lacks_the_body_of_what_is_not_persistent(kind: Kind) -> None:
    key = write_key((kind, "q", 3, 7))
    for message, result in ((WHOLE, WHOLE), (NON_PERSISTENT, BODYLESS), (BODYLESS, BODYLESS)):
        assert read_value(kind, without_body(key, write_value(kind, message))) == result


def test_so_do_deliveries() -> None:
    key = write_key((Kind.DELIVERY, "q", 0, 5))
    for fields in ({}, {"xid": "x"}, {"xid": "x", "is_orphan": True}):
        for message, result in ((WHOLE, WHOLE), (NON_PERSISTENT, BODYLESS)):
            raw = write_value(Kind.DELIVERY, delivery(message, **fields))
            found = read_value(Kind.DELIVERY, without_body(key, raw))
            assert found == delivery(result, **fields)


def test_all_else_stays_whole() -> None:
    for kind in (Kind.RETAINED, Kind.OPERATION):
        value = write_message(NON_PERSISTENT)
        assert without_body(write_key((kind, "q", 1, 1)), value) == value
    assert without_bodies([(b"\x04q\0\0", None), (b"\0positions", b"{}")]) == [
        (b"\x04q\0\0", None), (b"\0positions", b"{}"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"\x02", b"\x03"), (b"\x04q\0\x09", b"\x04q\0\x0a"), (b"\x10q\0\0\xff", b"\x10q\0\x01\0")],
)
def test_the_end_of_a_table_comes_after_all_its_keys(prefix: bytes, end: bytes) -> None:
    assert after_prefix(prefix) == end
    assert prefix < prefix + b"\xff" * 9 < end
