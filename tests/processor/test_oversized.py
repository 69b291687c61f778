"""What is too large to be written never stops a partition: it is cut, split or goes to dead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.errors import ProtocolError
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.repartition import Repartitioner
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord, OutRecord, Role
from ringfaust.protocol.routes import Route
from tests.records import new_record

MOST = 100_000
RECORD_BYTES = 2 * 1024 * 1024
"""max_message_bytes of our topics."""


def new_processor(**settings: Any) -> Processor:
    shared = ProcessorConfig(
        control_topic="control", repartition_topic="hop",
        routes=[Route("in", "q")],
        max_record_bytes=MOST, log_is_clock=False,
    )  # fmt: skip
    catalog = Catalog({"q": settings}, {})
    return Processor(shared, State(ByteStore(MemoryKeyValue()), catalog), {}, list)


def done(processor: Processor, *records: FetchedRecord) -> dict[str, list[OutRecord]]:
    processor.take(records, 1_000)
    found: dict[str, list[OutRecord]] = {}
    for (role, _), out in processor.outputs().items():
        found.setdefault(role, []).extend(out)
    processor.writes()
    processor.committed(1 << 20)
    return found


def size(record: OutRecord) -> int:
    key, value, headers = record
    return len(key or b"") + len(value or b"") + sum(len(n) + len(v) + 8 for n, v in headers)


@pytest.mark.parametrize(
    "record",
    [
        new_record("in", 0, b"x" * (MOST + 1)),
        new_record("in", 0, None, key=b"x" * (MOST + 1)),
        new_record("in", 0, b"", (("name", b"x" * MOST),)),
        new_record("in", 0, b"", (("", b""),) * 65_536),
        new_record("control", 0, None, key=b"x" * (MOST + 1)),
        new_record("control", 0, b"{}", (("name", b"x" * MOST),)),
    ],
)
def test_an_oversized_record_goes_to_the_dead_topic_without_content(record: FetchedRecord) -> None:
    dead = done(new_processor(), record)[Role.DEAD]
    assert dict(dead[0][2])[h.REASON] == b"too_large"
    assert dict(dead[0][2])[h.SOURCE] == f"{record.topic}/0/0".encode()
    assert size(dead[0]) < 1_000


def test_repartitioning_may_add_its_headers() -> None:
    most = new_record("named", 0, b"x" * (MOST - 20), (("to", b"q"),))
    hop: Repartitioner[list[OutRecord]] = Repartitioner(
        Route("named", "{header:to}"), 1, MOST, 0, list
    )
    hop.take([most], 1_000)
    ((forwarded,),) = hop.outputs().values()
    arrived = new_record("hop", 0, forwarded[1], tuple(forwarded[2]))._replace(timestamp_type=1)
    assert Role.DEAD not in done(new_processor(), arrived)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (b"far/2/7", "far/2/7"), (b"far/2/x", "hop/0/0"), (b"\xff/1/1", "\ufffd/1/1"),
        (b"x" * 600 + b"/1/1", "hop/0/0"), (None, "hop/0/0"),
    ],
)  # fmt: skip
def test_a_record_that_came_through_the_hop_is_named_after_its_producers(
    source: bytes | None, named: str
) -> None:
    """S1: `trace` and `dead` find it by the place that its producer knows."""
    headers = ((h.PRIORITY, b"high"), (h.QUEUE, b"q"), (h.SOURCE, source))
    found = done(new_processor(), new_record("hop", 0, b"x", headers))  # type: ignore[arg-type]
    (dead,), (line,) = found[Role.DEAD], (found[Role.EVENTS][0][1] or b"").splitlines()
    assert dict(dead[2])[h.SOURCE].decode() == named
    event = json.loads(line)
    assert event["by"] == "hop/0/0"
    assert event.get("source", "hop/0/0") == named


def test_a_record_that_was_skipped_is_dead_and_not_processed() -> None:
    """R123: with its content, who asked and why. What comes behind it is processed."""
    processor = new_processor()
    why = ProtocolError("skipped by ann: a bug", "skipped")
    processor.skip(new_record("in", 0, b"x" * MOST, key=b"k"), why, 1_000)
    found = done(processor, *(new_record("in", number, b"y") for number in (0, 1)))
    ((key, value, headers),) = found[Role.DEAD]
    assert (key, value) == (b"k", b"x" * MOST)
    assert dict(headers)[h.REASON] == b"skipped"
    assert dict(headers)[h.TEXT] == b"skipped by ann: a bug"
    assert dict(headers)[h.SOURCE] == b"in/0/0"
    lines = [json.loads(each) for each in (found[Role.EVENTS][0][1] or b"").splitlines()]
    assert [(line["event"], line["by"]) for line in lines] == [
        ("unreadable", "in/0/0"), ("added", "in/0/1"),
    ]  # fmt: skip
    assert processor.positions == {"in": 2}


@pytest.mark.parametrize(
    ("value", "answered"),
    [
        (b'{"type":"ack_many","reply":"me/1"}', [b"me/1"]), (b"no JSON", []), (None, []),
        # A stopped partition has answered it.
        (b'{"type":"retry_partition","partition":"0","by":"ann","reply":"me/2"}', []),
    ],
)  # fmt: skip
def test_who_waits_for_a_command_that_was_skipped_is_told(
    value: bytes | None, answered: list[bytes]
) -> None:
    """R123: a `flush` waited for its whole time."""
    processor = new_processor()
    why = ProtocolError("skipped by ann: a bug", "skipped")
    processor.skip(new_record("control", 0, value), why, 1_000)
    replies = done(processor).get(Role.REPLIES, [])
    assert [key for key, *_ in replies] == answered
    for _, body, _ in replies:
        said = json.loads(body or b"")
        assert (said["ok"], said["reason"]) == (False, "bad_command")
        assert said["text"] == "skipped by ann: a bug"


def test_a_record_is_skipped_before_it_is_repartitioned() -> None:
    hop: Repartitioner[list[OutRecord]] = Repartitioner(Route("named", "q"), 1, MOST, 0, list)
    hop.skip(new_record("named", 0, b"x"), ProtocolError("by ann", "skipped"), 1_000)
    hop.take([new_record("named", 0, b"x")], 1_000)
    found = {role: out for (role, _), out in hop.outputs().items()}
    assert dict(found[Role.DEAD][0][2])[h.REASON] == b"skipped"
    assert found.keys() == {Role.DEAD, Role.EVENTS}
    assert hop.position == 1


def test_an_order_is_passed_by_in_its_turn() -> None:
    """R123: it was carried out when it was written, or there was nothing to do."""
    order = {"type": "retry_partition", "partition": "0", "reply": "me"}
    assert done(new_processor(), new_record("control", 0, json.dumps(order).encode())) == {}


def test_a_list_is_cut_where_it_would_be_too_long_for_a_record() -> None:
    processor = new_processor()
    ids = ["ö" * 500 + str(number) for number in range(1_500)]
    sends = [
        new_record("in", number, b"", (("ringfaust-id", id_.encode()),))
        for number, id_ in enumerate(ids)
    ]
    done(processor, *sends)
    asked = {"type": "list", "queue": "q", "limit": 10_000, "reply": "me"}
    replies = done(processor, new_record("control", 0, json.dumps(asked).encode()))
    reply = replies[Role.REPLIES][0]
    answer = json.loads(reply[1] or b"")["answer"]
    assert size(reply) < RECORD_BYTES
    assert answer["counts"]["ready"] == 1_500
    assert answer["ready"] == ids[: len(answer["ready"])]
    assert len(answer["ready"]) >= 300


def test_events_with_long_texts_take_more_records() -> None:
    processor = new_processor(ring_size=1)
    sends = [
        new_record("in", n, b"", (("ringfaust-id", ("ö" * 500 + str(n)).encode()),))
        for n in range(800)
    ]
    events = done(processor, *sends)[Role.EVENTS]
    assert max(map(size, events)) < RECORD_BYTES
    lines = [json.loads(line) for record in events for line in (record[1] or b"").splitlines()]
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert len(lines) == 800 + 799


def test_an_error_quotes_only_a_part_of_the_input() -> None:
    garbage = json.dumps({"type": "ü" * 5_000, "queue": "q"}).encode()
    out = done(new_processor(), *(new_record("control", n, garbage) for n in range(400)))
    assert len(out[Role.DEAD]) == 400
    assert len(dict(out[Role.DEAD][0][2])[h.TEXT]) < 1_500


def test_only_a_repartitioned_record_names_its_source() -> None:
    """Evicted records of another application carry such headers too."""
    theirs = (
        ("ringfaust-source", b"x/0/7"),
        ("ringfaust-queue", b"q"),
        ("ringfaust-time-ms", b"1"),
    )
    for topic, source in (("in", "in/0/0"), ("hop", "x/0/7")):
        events = done(new_processor(), new_record(topic, 0, b"", theirs))[Role.EVENTS]
        assert json.loads(events[0][1] or b"")["source"] == source
