"""The first half of the hop: every record is forwarded once, to the partition of its queue."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from aiokafka.partitioner import murmur2

from ringfaust.processor.repartition import Repartitioner
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord, Headers, OutRecord, Role
from ringfaust.protocol.routes import LOG_APPEND_TIME, Route

MOST = 100_000


def in_record(
    offset: int, key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers = (),
    *, timestamp_type: int = LOG_APPEND_TIME,
) -> FetchedRecord:  # fmt: skip
    return FetchedRecord("in", 7, offset, 500, timestamp_type, key, value, headers)


def new_hop(queue: str = "q.{key}", position: int = 0) -> Repartitioner[list[OutRecord]]:
    return Repartitioner(Route("in", queue), 3, MOST, position, list)


def said(record: OutRecord) -> dict[str, bytes]:
    return dict(record[2])


def test_a_record_goes_to_the_partition_of_its_queue_with_its_source() -> None:
    hop = new_hop()
    hop.topic_id = "id"
    hop.take([in_record(n, b"k%d" % n, headers=(("colour", b"blue"),)) for n in range(20)], 1_000)
    out = hop.outputs()
    assert {role for role, _ in out} == {Role.HOP}
    found = {}
    for (_, home), records in out.items():
        for record in records:
            assert home == (murmur2(b"q." + (record[0] or b"")) & 0x7FFFFFFF) % 3
            found[record[0]] = said(record)
    assert found[b"k4"] == {
        "colour": b"blue", h.QUEUE: b"q.k4", h.SOURCE: b"in/7/4", h.SOURCE_TOPIC_ID: b"id",
        h.TIME_MS: b"500",
    }  # fmt: skip
    assert len(found) == hop.position == 20
    assert hop.outputs() == {}


def test_the_time_in_a_writers_header_is_ignored() -> None:
    hop = new_hop("q")
    hop.take([in_record(0, timestamp_type=0)], 1_000)
    ((record,),) = hop.outputs().values()
    assert said(record)[h.TIME_MS] == b"1000"


def test_repeats_do_nothing() -> None:
    hop = new_hop(position=2)
    hop.take([in_record(0), in_record(1)], 1_000)
    assert hop.outputs() == {}
    hop.take([in_record(2), in_record(2), in_record(5)], 1_000)
    ((*records,),) = hop.outputs().values()
    assert [said(record)[h.SOURCE] for record in records] == [b"in/7/2", b"in/7/5"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (in_record(4, b"\xff"), "undecodable"),
        (in_record(4, None), "undecodable"),
        (in_record(4, b"q" * 1_000), "undecodable"),
        (in_record(4, value=b"x" * MOST), "too_large"),
    ],
)
def test_what_cannot_be_forwarded_goes_to_dead(record: FetchedRecord, reason: str) -> None:
    hop = new_hop()
    hop.take([record], 1_000)
    out: dict[tuple[Role, int | None], Sequence[OutRecord]] = {**hop.outputs()}
    assert out.keys() == {(Role.DEAD, 1), (Role.EVENTS, 1)}
    (dead,), (event,) = out[Role.DEAD, 1], out[Role.EVENTS, 1]
    assert (said(dead)[h.REASON], said(dead)[h.SOURCE]) == (reason.encode(), b"in/7/4")
    line = json.loads(event[1] or b"")
    text = line.pop("text")
    assert text == said(dead)[h.TEXT].decode()
    assert line == {
        "step": 0, "event": "unreadable", "reason": reason, "time_ms": 1_000, "by": "in/7/4",
    }  # fmt: skip
    assert hop.position == 5


@pytest.mark.parametrize("value", [None, b"\xff" * (MOST // 2), b"because"])
def test_a_record_that_claims_to_be_undecodable_is_treated_as_such(value: bytes | None) -> None:
    hop = new_hop()
    hop.take([in_record(4, headers=((h.UNDECODABLE_CONTENT, value),))], 1_000)  # type: ignore[arg-type]
    out = hop.outputs()
    assert out.keys() == {(Role.DEAD, 1), (Role.EVENTS, 1)}
    assert len(out[Role.EVENTS, 1][0][1] or b"") < 5_000
