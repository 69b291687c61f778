"""The exact bytes of every kind of stored row. They are in people's changelogs: do not change them.

A new layout of a kind gets a new version and golden bytes of its own; the bytes here stay readable.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from ringfaust.core import levels
from ringfaust.core.address import AddressRow
from ringfaust.core.catalog import Configuration
from ringfaust.core.model import (
    IN_TURN,
    AckMode,
    Consumer,
    Delivery,
    Group,
    Message,
    Operation,
    Stage,
    Unfinished,
    XidRow,
    plain_position,
    timed_key,
)
from ringfaust.core.queue import QueueRow
from ringfaust.core.sent_ids import SentId, SentPage
from ringfaust.core.settlement_history import Past
from ringfaust.core.state import Clock
from ringfaust.core.table import Kind, Row
from ringfaust.errors import RingfaustError, UnknownRowVersion, UnsupportedLevel
from ringfaust.protocol.records import FetchedRecord, Payload
from ringfaust.protocol.stored_rows import (
    InputState,
    body_start,
    read_inputs,
    read_json,
    read_message,
    read_positions,
    read_record,
    read_value,
    write_inputs,
    write_json,
    write_key,
    write_positions,
    write_record,
    write_value,
)

M = Message(
    "id-ü", 7, plain_position(7), 9, 1, 2, 3, "g", 1, 2, ("me", "you"), 99,
    Payload(b"k", b"v", (("h", b"1"), ("n", None)), "in/0/7"),  # type: ignore[arg-type]
)  # fmt: skip
NP = M._replace(persistent=False, priority=0)
BL = NP._replace(payload=Payload(None, None, (), "in/0/7"), is_bodyless=True)

MESSAGE = bytes.fromhex(
    "01000000000000000701000000000000000000000000070900000000000000010000000000000002"
    "00000000000000030000000100000002000000000000006300050001000600060000000100000001"
    "000269642dc3bc67696e2f302f376d6500796f756b760000000100000001683100000001ffffffff"
    "6e"
)
NON_PERSISTENT = bytes.fromhex(
    "01000000000000000701000000000000000000000000078000000000000000010000000000000002"
    "00000000000000030000000100000002000000000000006300050001000600060000000100000001"
    "000269642dc3bc67696e2f302f376d6500796f756b760000000100000001683100000001ffffffff"
    "6e"
)
BODYLESS = bytes.fromhex(
    "0100000000000000070100000000000000000000000007c000000000000000010000000000000002"
    "0000000000000003000000010000000200000000000000630005000100060006ffffffffffffffff"
    "000069642dc3bc67696e2f302f376d6500796f75"
)
VERSION_1 = b"\x81"


class Golden(NamedTuple):
    row: Row
    value: Any
    key: bytes
    raw: bytes
    raw_1: bytes = b""
    """As version 1 wrote it, if there is a newer one."""

    @property
    def raw_of_6d179b1(self) -> bytes:
        """As commit 6d179b1 wrote it: without the version byte, except in a message."""
        if self.raw_1:
            return self.raw_1.removeprefix(VERSION_1)
        if self.raw == VERSION_1:
            return b"1"
        return self.raw.removeprefix(VERSION_1)


GOLDEN = [
    Golden(
        (Kind.CLOCK, "", 0, 0), Clock(1700000000000, 12, 5), b"\x01", b"\x81[1700000000000,12,5]"
    ),
    Golden(
        (Kind.QUEUE, "", 0, "q"),
        QueueRow(
            {"ring_size": 3},
            {"ring_size": 3},
            (1,) * 12,
            (1,) * 10,
            4,
            2,
            ((1, 2, 3),),
            ("pulling",),
            5,
            6,
            7,
            (8, 9),
            10,
            3,
            (5, 6, 7),
        ),
        b"\x02q",
        bytes.fromhex(
            "82fff80fffffc00000"
            + "".join(f"{n:016x}" for n in (4, 2, 5, 6, 7, 8, 9, 10, 3, 5, 6, 7, 1, *[1] * 22))
            + "0000000100000000000000020000000000000003"
        )
        + b'[{"ring_size":3},{"ring_size":3},["pulling"]]',
        b'\x81[{"ring_size":3},{"ring_size":3},[1,1,1,1,1,1,1,1,1,1,1,1],[1,1,1,1,1,1,1,1,1,1],4,2,[[1,2,3]],["pulling"],5,6,7,[8,9],10,3,[5,6,7]]',
    ),
    Golden(
        (Kind.CONSUMER, "q", 0, 1),
        Consumer("me", 1, 5, -1, AckMode.CLIENT, "s", True, 9, "a = 1", 77),
        b"\x03q\x00\x00\x00\x00\x00\x00\x00\x00\x01",
        b'\x81["me",1,5,-1,"client","s",true,9,"a = 1",77]',
    ),
    Golden(
        (Kind.RING, "q", 5, plain_position(7)),
        M,
        b"\x04q\x00\x05\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07",
        MESSAGE,
    ),
    Golden(
        (Kind.RING, "q", 5, plain_position(7)),
        NP,
        b"\x04q\x00\x05\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07",
        NON_PERSISTENT,
    ),
    Golden(
        (Kind.RING, "q", 5, plain_position(7)),
        BL,
        b"\x04q\x00\x05\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07",
        BODYLESS,
    ),
    Golden(
        (Kind.DELIVERY, "q", 0, 258),
        Delivery(258, "me", M, 1700000000000),
        b"\x05q\x00\x00\x00\x00\x00\x00\x00\x01\x02",
        b"\x81\x00\x00\x00\x00\x00\x00\x01\x02\x01\x8b\xcf\xe5h\x00\x00\x02me" + MESSAGE,
    ),
    Golden(
        (Kind.DELIVERY, "q", 0, 258),
        Delivery(258, "me", M, 1700000000000, "x"),
        b"\x05q\x00\x00\x00\x00\x00\x00\x00\x01\x02",
        b"\x81\x80\x00\x00\x00\x00\x00\x01\x02\x01\x8b\xcf\xe5h\x00\x00\x02me\x00\x01x" + MESSAGE,
    ),
    Golden(
        (Kind.DELIVERY, "q", 0, 258),
        Delivery(258, "me", M, 1700000000000, "x", True),
        b"\x05q\x00\x00\x00\x00\x00\x00\x00\x01\x02",
        b"\x81\xc0\x00\x00\x00\x00\x00\x01\x02\x01\x8b\xcf\xe5h\x00\x00\x02me\x00\x01x" + MESSAGE,
    ),
    Golden(
        (Kind.SCHEDULED, "q", 0, timed_key(3, 7)),
        M,
        b"\x06q\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x07",
        MESSAGE,
    ),
    Golden(
        (Kind.EXPIRY, "q", 0, timed_key(2, 7)),
        (5, plain_position(7)),
        b"\x07q\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x07",
        b"\x81[5,20282409603651670423947251286023]",
    ),
    Golden((Kind.WAKE, "", 0, (3, "q")), True, b"\x08\x00\x00\x00\x00\x00\x00\x00\x03q", b"\x81"),
    Golden((Kind.GROUP, "q", 0, "g"), Group(2, 3, 4), b"\tq\x00g", b"\x81[2,3,4]"),
    Golden(
        (Kind.IDLE_GROUP, "q", 0, 1),
        "ü",
        b"\x12q\x00\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\x81\xc3\xbc",
    ),
    Golden((Kind.SESSION, "", "s", ("q", "me")), True, b"\ns\x00q\x00me", b"\x81"),
    Golden(
        (Kind.ENDED, "q", "me", 1),
        (("a", False), ("b", True)),
        b"\x0bq\x00me\x00\x00\x00\x00\x00\x00\x00\x00\x01",
        b'\x81[["a",false],["b",true]]',
    ),
    Golden((Kind.PAST, "q", 0, "me"), Past(3, 0), b"\x0cq\x00me", b"\x81[3,0]"),
    Golden(
        (Kind.DEPARTED, "q", 0, 1),
        "\x01ü",
        b"\rq\x00\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\x81\x01\xc3\xbc",
    ),
    Golden(
        (Kind.ADDRESS, "", 0, "prices"),
        AddressRow({"retroactive_count": 2}, ("prices::a",), 3, 5, True),
        b"\x0eprices",
        b'\x81[{"retroactive_count":2},["prices::a"],3,5,true]',
    ),
    Golden(
        (Kind.RETAINED, "prices", 0, 3),
        M,
        b"\x0fprices\x00\x00\x00\x00\x00\x00\x00\x00\x03",
        MESSAGE,
    ),
    Golden(
        (Kind.XID, "", 0, 3),
        XidRow("an xid", True, 7),
        b"\x10\x00\x00\x00\x00\x00\x00\x00\x03",
        b'\x81["an xid",true,7]',
    ),
    Golden(
        (Kind.OPERATION, "", 3, 1),
        Operation("q", None, 42),
        b"\x11\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\x81\x00\x00\x00\x00\x00\x00\x00*\x00\x01q",
    ),
    Golden(
        (Kind.OPERATION, "", 3, 2),
        Operation("prices", M, 1),
        b"\x11\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x02",
        b"\x81\x00\x00\x00\x00\x00\x00\x00\x01\x00\x06prices" + MESSAGE,
    ),
    Golden(
        (Kind.SENT_ID, "q", 0, "order/7"),
        SentId(230, 1700000000000, 4),
        b"\x14q\x00order/7",
        b"\x81[230,1700000000000,4]",
    ),
    Golden(
        (Kind.SENT_PAGE, "q", 0, 2),
        SentPage(1700000000000, ("a", "\u00fc")),
        b"\x15q\x00\x00\x00\x00\x00\x00\x00\x00\x02",
        b'\x81[1700000000000,["a","\\u00fc"]]',
    ),
    Golden(
        (Kind.UNFINISHED, "", 0, 0),
        Unfinished(
            (Stage("remove", "q", ("id", -1, None, "")),), "q", 5, False, ("control/0/1", "me")
        ),
        b"\x13",
        b'\x81[[["remove","q",["id",-1,null,""]]],"q",5,false,["control/0/1","me"]]',
    ),
    Golden(
        (Kind.CONFIGURATION, "", 0, 0),
        Configuration(3, {"queues": {"q": {"ring_size": 2}}}, "ann", "smaller", 1700000000000),
        b"\x16",
        b'\x81[3,{"queues":{"q":{"ring_size":2}}},"ann","smaller",1700000000000]',
    ),
]
by_row = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.row[0].name)


def test_there_are_golden_bytes_for_every_kind() -> None:
    assert {golden.row[0] for golden in GOLDEN} == set(Kind)


@by_row
def test_a_row_is_written_as_its_golden_bytes(golden: Golden) -> None:
    assert write_key(golden.row) == golden.key
    assert write_value(golden.row[0], golden.value) == golden.raw


def test_the_row_of_a_command_that_sends_a_message_ends_with_it() -> None:
    stages = (Stage("publish", "prices", (M, 1, "q/7", 2, True)), Stage("commit", "", (1, "x")))
    value = Unfinished(stages, "prices", 5, False, ("in/0/7", "id-ü", "", "", ""))
    raw = (
        b'\x82[[["publish","prices",[null,1,"q/7",2,true]],["commit","",[1,"x"]]],"prices",5,false,'
        b'["in/0/7","id-\\u00fc","","",""]]\x00' + MESSAGE
    )
    assert write_value(Kind.UNFINISHED, value) == raw
    assert read_value(Kind.UNFINISHED, raw) == value


def test_the_row_of_a_command_that_waits_for_its_turn_is_no_longer_than_its_record() -> None:
    """R120: what is not ASCII takes no more bytes than in the record."""
    deliveries = [[number, f"{number}-\u4e2d\ud800" * 60] for number in range(1_000)]
    value = Unfinished(
        (Stage(IN_TURN, "q", ("AckMany", "q", "k", deliveries)),), "q", 5, False, ("in/0/7",)
    )
    raw = write_value(Kind.UNFINISHED, value)
    assert read_value(Kind.UNFINISHED, raw) == value
    text = json.dumps({"deliveries": deliveries}, ensure_ascii=False)
    assert len(raw) < len(text.encode("utf-8", "surrogatepass")) + 200


def test_the_row_of_a_transaction_with_an_owner_or_a_timeout() -> None:
    for value, raw in (
        (XidRow("x", False, 7, "me", 5, 300), b'\x82["x",false,7,"me",5,300]'),
        (XidRow("x", False, 7, "", 5, 300), b'\x82["x",false,7,"",5,300]'),
    ):
        assert write_value(Kind.XID, value) == raw
        assert read_value(Kind.XID, raw) == value


def test_the_row_of_an_ack_with_its_position() -> None:
    value = Operation("q", None, 42, plain_position(7))
    raw = (
        b"\x82\x00\x00\x00\x00\x00\x00\x00*\x00\x01q"
        b"\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07"
    )
    assert write_value(Kind.OPERATION, value) == raw
    assert read_value(Kind.OPERATION, raw) == value


@by_row
def test_golden_bytes_are_read(golden: Golden) -> None:
    assert read_value(golden.row[0], golden.raw) == golden.value
    assert read_value(golden.row[0], golden.raw_1 or golden.raw) == golden.value


@by_row
def test_a_row_without_a_version_is_read(golden: Golden) -> None:
    assert read_value(golden.row[0], golden.raw_of_6d179b1) == golden.value


@by_row
def test_a_row_of_a_newer_version_is_refused(golden: Golden) -> None:
    kind, first = golden.row[0], golden.raw[0]
    newest = {Kind.CLOCK: 2, Kind.OPERATION: 2, Kind.QUEUE: 3, Kind.UNFINISHED: 2, Kind.XID: 2}
    known = newest.get(kind, first & 0x3F)
    for version in (known + 1, 63):
        newer = bytes((first & 0xC0 | version,)) + golden.raw[1:] + b"and more"
        with pytest.raises(UnknownRowVersion) as caught:
            read_value(kind, newer)
        error = caught.value
        assert error.row == ("message" if first == 1 else kind.name)
        assert (error.version, error.known) == (version, known)
        assert "run the newer ringfaust" in error.advice
        assert error.advice in str(error)
        assert f"version {version}, but this ringfaust reads versions up to {known}" in str(error)
        assert isinstance(error, RingfaustError), "so the command line shows it without a traceback"


@by_row
def test_a_newer_message_within_a_row_is_refused(golden: Golden) -> None:
    if MESSAGE not in golden.raw:
        return
    newer = golden.raw.replace(MESSAGE, b"\x02" + MESSAGE[1:])
    with pytest.raises(UnknownRowVersion, match="a stored message row has version 2"):
        read_value(golden.row[0], newer)


def test_the_clock_has_the_level_from_level_2_on() -> None:
    """So a version that knows no levels, 0.2.0, refuses the state (R129)."""
    raw = b"\x82[1700000000000,12,5,2]"
    clock = Clock(1700000000000, 12, 5, 2)
    assert write_value(Kind.CLOCK, clock) == raw
    assert read_value(Kind.CLOCK, raw) == clock


def test_a_state_of_a_level_that_is_not_supported_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for level in (1, 2):
        assert read_value(Kind.CLOCK, write_value(Kind.CLOCK, Clock(7, 1, 1, level))).level == level
    with pytest.raises(UnsupportedLevel, match="is too old: the state of a partition uses feature"):
        read_value(Kind.CLOCK, write_value(Kind.CLOCK, Clock(7, 1, 1, levels.NEWEST + 1)))
    monkeypatch.setattr(levels, "OLDEST", 2)  # as in a later version
    with pytest.raises(UnsupportedLevel, match="is too new: .* run `ringfaust upgrade finish`"):
        read_value(Kind.CLOCK, b"\x81[7,1,1]")


def test_of_a_queue_only_the_numbers_that_are_not_zero_are_stored() -> None:
    counts = (2, 0, 0, 9, 0, 7, 0, 0, 0, 0, 0, 0)
    levels = (0, 0, 0, 0, 0, 2, 0, 0, 0, 0)
    row = QueueRow({}, {}, counts, levels, 9, 0, (), (), 0, 0, 0, (0, 0), 400, 0, (1, 0, 0))
    raw = bytes.fromhex("8281400042500000" "00") + b"".join(
        number.to_bytes(8, "big") for number in (9, 400, 1, 2, 2, 9, 7)
    )  # fmt: skip
    assert write_value(Kind.QUEUE, row) == raw + b"[{},{},[]]"
    assert read_value(Kind.QUEUE, raw + b"[{},{},[]]") == row


def test_a_queue_with_a_dedup_window_stores_its_bounds() -> None:
    settings = {"dedup_window": 5}
    none = (0,) * 12
    row = QueueRow(
        {}, settings, none, none[:10], 4, 0, (), (), 0, 0, 0, (0, 0), 0, 0, (1, 0, 0), (100, 230)
    )
    raw = bytes.fromhex("8280460000000000" "00") + b"".join(
        number.to_bytes(8, "big") for number in (4, 1, 100, 230)
    )  # fmt: skip
    assert write_value(Kind.QUEUE, row) == raw + b'[{},{"dedup_window":5},[]]'
    assert read_value(Kind.QUEUE, raw + b'[{},{"dedup_window":5},[]]') == row


def test_a_queue_with_dated_settings_has_version_3() -> None:
    none = (0,) * 12
    row = QueueRow(
        {"ring_size": 3}, {"ring_size": 3}, none, none[:10], 4, 0, (), (), 0, 0, 0, (0, 0), 0, 0,
        (1, 0, 0), set_ms={"ring_size": 1_700_000_000_000},
    )  # fmt: skip
    raw = bytes.fromhex("8380400000000000" "00") + b"".join(
        number.to_bytes(8, "big") for number in (4, 1)
    )  # fmt: skip
    raw += b'[{"ring_size":3},{"ring_size":3},[],{"ring_size":1700000000000}]'
    assert write_value(Kind.QUEUE, row) == raw
    assert read_value(Kind.QUEUE, raw) == row


def test_rows_of_a_queue_from_before_groups_were_counted() -> None:
    assert read_value(Kind.GROUP, b"\x812") == read_value(Kind.GROUP, b"2") == Group(2, 0, 0)
    queue = next(golden for golden in GOLDEN if golden.row[0] == Kind.QUEUE)
    raw = queue.raw_1.replace(b",[5,6,7]]", b"]")
    assert read_value(Kind.QUEUE, raw) == queue.value._replace(groups=())


def test_a_newer_message_may_be_of_any_length() -> None:
    with pytest.raises(UnknownRowVersion):
        read_message(b"\x02")


def test_a_consumers_name_is_never_taken_for_a_version() -> None:
    """A name has no NUL, but may begin with any other character."""
    for code in (*range(1, 0x3000), 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF):
        name = chr(code) + "x"
        assert read_value(Kind.DEPARTED, name.encode()) == name
        assert read_value(Kind.DEPARTED, write_value(Kind.DEPARTED, name)) == name


def test_a_delivery_is_never_taken_for_a_version() -> None:
    """Neither with the greatest number that a partition reaches."""
    for number in (1, 2**48, 2**56 - 1):
        for fields in ((), ("x",), ("x", True)):
            delivery = Delivery(number, "me", M, 5, *fields)  # type: ignore[arg-type]
            raw = write_value(Kind.DELIVERY, delivery)
            assert read_value(Kind.DELIVERY, raw) == delivery
            assert read_value(Kind.DELIVERY, raw[1:]) == delivery


RECORD = FetchedRecord("in", 1, 2, 3, 1, b"k", None, (("h", b"1"),))
RECORD_RAW = VERSION_1 + bytes.fromhex(
    "00000000000000010000000000000002000000000000000301" "00000001ffffffff00020001"
    "696e6b00000001000000016831"
)  # fmt: skip


def test_the_positions_row() -> None:
    raw = b'\x81{"in":3,"control":1}'
    assert write_positions({"in": 3, "control": 1}) == raw
    assert read_positions(raw) == read_positions(raw[1:]) == {"in": 3, "control": 1}
    assert read_positions(None) == {}
    with pytest.raises(UnknownRowVersion, match="a stored positions row has version 2"):
        read_positions(b"\x82\x00")


def test_a_record_that_waits_in_a_spark_job() -> None:
    assert write_record(RECORD) == RECORD_RAW
    assert read_record(RECORD_RAW) == read_record(RECORD_RAW[1:]) == tuple(RECORD)
    with pytest.raises(UnknownRowVersion, match="a stored waiting record row has version 3"):
        read_record(b"\x83")


def test_rows_in_json_and_the_empty_row() -> None:
    assert write_json([1, "ü"]) == b'\x81[1,"\\u00fc"]'
    assert read_json(b'[1, "\\u00fc"]', "any") == [1, "ü"]
    assert body_start(b"", "page") == 0


def test_what_is_known_about_inputs_has_these_bytes() -> None:
    raw = b'\x81{"control":["",0],"in":["id",2]}'
    inputs = {"in": InputState("id", 2), "control": InputState()}
    assert write_inputs(inputs) == raw
    assert read_inputs(raw) == inputs
    assert read_inputs(None) == {}
