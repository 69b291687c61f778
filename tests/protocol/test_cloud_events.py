"""CloudEvents: what an evicted or dead record becomes, and what it is without."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import effects as e
from ringfaust.core.model import DeadReason, EvictReason, Message
from ringfaust.errors import ProtocolError
from ringfaust.kafka.transactions import RecordBatches
from ringfaust.protocol import cloud_events as ce
from ringfaust.protocol.outputs import dead_record, evicted_record, undecodable_record
from ringfaust.protocol.record_batches import append_evicted
from ringfaust.protocol.records import OutRecord, Payload
from ringfaust.protocol.redrive import redriven_headers
from tests.records import new_record

AT_MS = 1_700_000_000_123  # 2023-11-14
THEIRS = (("content-type", b"text/plain"), ("ringfaust-properties", b"{}"))


def message(**changes: Any) -> Message:
    payload = Payload(b"k", b"v", THEIRS, "orders/0/17")
    made = Message("ä 1", 42, 42, 4, 1_000, 0, 0, "", 0, 0, (), 0, payload)
    return made._replace(**changes)


def evicted(headers: tuple[tuple[str, bytes], ...] = THEIRS) -> e.Evicted:
    payload = Payload(b"k", b"v", headers, "orders/0/17")
    return e.Evicted(
        "a/b c", message(payload=payload), EvictReason.OVERFLOW, "x", 3, 3, AT_MS, "full"
    )


def attributes(record: OutRecord) -> dict[str, str]:
    return {name: value.decode() for name, value in record[2] if name.startswith("ce_")}


def test_an_evicted_record_becomes_a_cloud_event() -> None:
    plain = evicted_record(evicted())
    made = ce.cloud_event(plain, "my app", ce.EVICTED)
    assert made[:2] == plain[:2]
    assert made[2][: len(plain[2])] == plain[2]
    assert attributes(made) == {
        "ce_specversion": "1.0",
        "ce_id": "orders/0/17/42",
        "ce_source": "/ringfaust/my%20app/a%2Fb%20c",
        "ce_type": "ringfaust.evicted",
        "ce_time": "2023-11-14T22:13:20.123Z",
        "ce_subject": "ä 1",
    }


def test_so_does_a_dead_one() -> None:
    plain = dead_record(e.Dead("q", message(), DeadReason.REJECTED, "me", "no"), AT_MS)
    made = attributes(ce.cloud_event(plain, "app", ce.DEAD))
    assert (made["ce_type"], made["ce_source"]) == ("ringfaust.dead", "/ringfaust/app/q")


def test_an_undecodable_record_has_no_queue_whatever_its_producer_says() -> None:
    headers = (("ringfaust-sequence", b"1"), ("ringfaust-queue", None), ("ringfaust-id", b"\xff"))
    record = new_record("in", 7, b"", headers)
    plain = undecodable_record(record, "in/0/7", ProtocolError("bad"), AT_MS)
    made = attributes(ce.cloud_event(plain, "app", ce.DEAD))
    assert made["ce_type"] == "ringfaust.undecodable"
    assert (made["ce_id"], made["ce_source"], made["ce_subject"]) == (
        "in/0/7", "/ringfaust/app", "in/0/7"
    )  # fmt: skip


def test_a_producers_cloud_event_keeps_its_attributes() -> None:
    theirs = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_subject", b"s"))
    plain = evicted_record(evicted(theirs))
    assert ce.cloud_event(plain, "app", ce.EVICTED) is plain
    assert ce.without_attributes(plain[2]) is plain[2]


def test_a_redrive_removes_the_attributes() -> None:
    plain = evicted_record(evicted())
    made = ce.cloud_event(plain, "app", ce.EVICTED)
    assert ce.without_attributes(made[2]) == plain[2]
    assert redriven_headers(made[2], "q") == redriven_headers(plain[2], "q")
    assert ce.without_attributes(()) == ()


@pytest.mark.parametrize("buffer", [list, lambda: RecordBatches(100_000)])
def test_both_buffers_get_the_same_records(buffer: Any) -> None:
    direct, wrapped = buffer(), buffer()
    direct.append(ce.cloud_event(evicted_record(evicted()), "app", ce.EVICTED))
    append_evicted(ce.CloudEvents(wrapped, "app", ce.EVICTED), evicted())
    if isinstance(direct, list):
        assert wrapped == direct
    else:
        assert [each.data for each in wrapped.batches] == [each.data for each in direct.batches]
    assert len(wrapped) == 1
