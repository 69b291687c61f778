"""Lines and records are those that JSON and the Kafka client make; C refuses what is no effect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import effects as e
from ringfaust.core.model import PLAIN, Delivery, EvictReason, Message
from ringfaust.protocol.outputs import dispatched_record, evicted_record
from ringfaust.protocol.record_batches import BATCH_HEADER_BYTES
from ringfaust.protocol.records import OutRecord, Payload
from tests.native.checks import REFUSALS, assert_keeps_nothing, cut
from tests.protocol.made_effects import (
    counts,
    data,
    deliveries,
    dispatches,
    evictions,
    messages,
    records,
    texts,
    times,
)

effects = evictions | dispatches
effects |= st.builds(e.Added, texts, messages) | st.builds(e.Scheduled, texts, messages)
effects |= st.builds(e.Acked, texts, deliveries) | st.builds(e.Lost, texts, messages, counts)
effects |= st.builds(e.Due, texts, messages)


def said(effect: Any) -> dict[str, Any]:
    """What a line says of an effect behind the message's id."""
    if isinstance(effect, e.Dispatched | e.Acked):
        number, consumer, m, *_ = effect.delivery
        return {
            "consumer": consumer, "delivery": number, "attempt": m.attempts,
            "handovers": m.handovers,
        }  # fmt: skip
    m = effect.message
    if isinstance(effect, e.Evicted):
        return {
            "reason": effect.reason, "cause": effect.cause, "ready": effect.ready,
            "ring_size": effect.ring_size, "age_ms": effect.at_ms - m.enqueued_ms,
            "handovers": m.handovers,
        }  # fmt: skip
    if isinstance(effect, e.Due):
        return {"due_ms": m.due_ms}
    if isinstance(effect, e.Lost):
        return {"delivery": effect.delivery} if effect.delivery else {}
    always = {
        "source": m.payload.source, "enqueued_ms": m.enqueued_ms, "priority": m.priority,
        "size_bytes": m.size_bytes,
    }  # fmt: skip
    known = {"due_ms": m.due_ms, "expires_at_ms": m.expires_at_ms, "group": m.group}
    return always | {name: value for name, value in known.items() if value}


@given(effect=effects, step=counts, now_ms=times, by=texts)
def test_lines(functions: Any, effect: Any, step: int, now_ms: int, by: str) -> None:
    message = effect.message if hasattr(effect, "message") else effect.delivery.message
    line = {
        "step": step, "event": type(effect).__name__.lower(), "queue": effect.queue,
        "sequence": message.sequence, "id": message.id, **said(effect), "time_ms": now_ms, "by": by,
    }  # fmt: skip
    text = json.dumps(line, separators=(",", ":"))
    assert functions.event_line(effect, step, now_ms, by) == text


def assert_appends(append: Any, number: int, content: Any, most: int, record: OutRecord) -> None:
    """Assert that a function appends what the Kafka client makes of the record, if it fits."""
    client = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    client.append(number, 0, *record)
    expected, batch = bytes(client.build())[BATCH_HEADER_BYTES:], bytearray(BATCH_HEADER_BYTES)
    fits = number == 0 or BATCH_HEADER_BYTES + len(expected) <= most
    assert append(batch, number, content, most) is fits
    assert batch == bytes(BATCH_HEADER_BYTES) + (expected if fits else b"")


numbers = st.integers(0, 9_000) | st.just(0)
most_bytes = st.integers(0, 300) | st.just(1_000_000)


@given(effect=evictions, number=numbers, most=most_bytes)
def test_evicted_records(functions: Any, effect: e.Evicted, number: int, most: int) -> None:
    assert_appends(functions.append_evicted, number, effect, most, evicted_record(effect))


@given(effect=dispatches, number=numbers, most=most_bytes)
def test_dispatched_records(functions: Any, effect: e.Dispatched, number: int, most: int) -> None:
    assert_appends(functions.append_dispatched, number, effect, most, dispatched_record(effect))


@given(record=records, number=numbers, most=most_bytes)
def test_any_records(functions: Any, record: Any, number: int, most: int) -> None:
    key, value, some = record
    assert_appends(functions.append_record, number, record, most, record)
    assert_appends(functions.append_record, number, (key, value, tuple(some)), most, record)


@given(row=st.tuples(st.binary(max_size=70), data), number=numbers, most=most_bytes)
def test_rows(functions: Any, row: tuple[bytes, bytes | None], number: int, most: int) -> None:
    assert_appends(functions.append_row, number, row, most, (*row, []))


MESSAGE = Message(
    "m", 1, PLAIN, 4, 5, 0, 0, "", 0, 0, (), 1, Payload(b"k", b"v", (("n", b"x"),), "in/0/1")
)
EVICTED = e.Evicted("q", MESSAGE, EvictReason.OVERFLOW, "n", 1, 1, 9, "full")
DISPATCHED = e.Dispatched("q", Delivery(1, "c", MESSAGE, 5))


class Neither:
    """Neither true nor false."""

    def __bool__(self) -> bool:
        raise TypeError


AGELESS = EVICTED._replace(at_ms=2**63 - 1, message=MESSAGE._replace(enqueued_ms=-2))
NEITHER_PERSISTENT = MESSAGE._replace(persistent=Neither())  # type: ignore[arg-type]
WRONG: list[tuple[str, tuple[Any, ...]]] = [
    ("event_line", ()),
    ("event_line", (EVICTED, "1", 2, "by")),
    ("event_line", (EVICTED, 1, None, "by")),
    ("event_line", (EVICTED, 1, 2, b"by")),
    ("event_line", (e.Added("q", "no message"), 1, 2, "by")),  # type: ignore[arg-type]
    ("event_line", (e.Added("q", MESSAGE._replace(payload=None)), 1, 2, "by")),
    ("event_line", (e.Acked("q", MESSAGE), 1, 2, "by")),  # type: ignore[arg-type]
    ("event_line", (e.Due("q", MESSAGE._replace(due_ms="now")), 1, 2, "by")),  # type: ignore[arg-type]
    ("event_line", (EVICTED._replace(at_ms=2**64), 1, 2, "by")),
    ("event_line", (cut(e.Added("q", MESSAGE)), 1, 2, "by")),
    ("event_line", (cut(e.Scheduled("q", MESSAGE)), 1, 2, "by")),
    ("event_line", (cut(e.Due("q", MESSAGE)), 1, 2, "by")),
    ("event_line", (cut(EVICTED), 1, 2, "by")),
    ("event_line", (cut(DISPATCHED), 1, 2, "by")),
    ("event_line", (cut(e.Acked("q", DISPATCHED.delivery)), 1, 2, "by")),
    ("event_line", (e.Added("q", cut(MESSAGE)), 1, 2, "by")),
    ("event_line", (e.Added("q", MESSAGE._replace(payload=cut(MESSAGE.payload))), 1, 2, "by")),
    ("event_line", (e.Acked("q", cut(DISPATCHED.delivery)), 1, 2, "by")),
    ("event_line", (AGELESS, 1, 2, "by")),
    ("event_line", (e.Added("q", MESSAGE._replace(group=Neither())), 1, 2, "by")),  # type: ignore[arg-type]
    ("append_evicted", (bytearray(), 0, cut(EVICTED), 10)),
    (
        "append_evicted",
        (bytearray(), 0, AGELESS, 10),
    ),
    ("append_evicted", (bytearray(), 0, EVICTED._replace(message=cut(MESSAGE)), 10)),
    ("append_dispatched", (bytearray(), 0, cut(DISPATCHED), 10)),
    ("append_dispatched", (bytearray(), 0, e.Dispatched("q", cut(DISPATCHED.delivery)), 10)),
    (
        "append_dispatched",
        (bytearray(), 0, e.Dispatched("q", Delivery(1, "c", NEITHER_PERSISTENT, 5)), 10),
    ),
    ("append_evicted", (bytearray(), 0, DISPATCHED, 10)),
    ("append_evicted", (bytearray(), 0, EVICTED._replace(cause="\ud800"), 10)),
    ("append_evicted", (bytearray(), 0, EVICTED._replace(payload=7), 10)),  # type: ignore[arg-type]
    ("append_evicted", (bytearray(), 0, EVICTED._replace(message=MESSAGE._replace(id=7)), 10)),  # type: ignore[arg-type]
    ("append_dispatched", (bytearray(), 0, EVICTED, 10)),
    ("append_dispatched", (bytearray(), 0, e.Dispatched("q", "no delivery"), 10)),  # type: ignore[arg-type]
    ("append_record", (bytearray(), 0, (b"", b""), 10)),
    ("append_record", (bytearray(), 0, ("text", b"", ()), 10)),
    ("append_record", (bytearray(), 0, (b"", b"", 7), 10)),
    ("append_record", (bytearray(), 0, (b"", b"", ["name"]), 10)),
    ("append_record", (bytearray(), 0, (b"", b"", [("name", "text")]), 10)),
    ("append_record", (b"no bytearray", 0, (b"", b"", ()), 10)),
    ("append_record", (bytearray(), 0, "text", 10)),
    ("append_record", (bytearray(), None, (b"", b"", ()), 10)),
    ("append_row", (bytearray(), 0, (b"", b"", ()), 10)),
    ("append_row", (bytearray(), 0, (b"", "text"), 10)),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_what_is_no_effect_is_refused(c: Any, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(REFUSALS):
        getattr(c, name)(*arguments)


def test_a_reason_is_quoted_as_any_text(c: Any) -> None:
    line = c.event_line(EVICTED._replace(reason="größer"), 1, 2, "by")  # type: ignore[arg-type]
    assert line.isascii()
    assert json.loads(line)["reason"] == "größer"


def test_effects_that_are_not_frequent_are_left_to_python_with_their_arguments(c: Any) -> None:
    assert c.event_line(e.Lost("q", MESSAGE), 1, 2, "by").startswith('{"step":1,"event":"lost",')


def test_a_batch_may_be_tiny(functions: Any) -> None:
    batch = bytearray()
    assert functions.append_record(batch, 0, (None, None, []), 100)
    assert bytes(batch) == b"\x0c\0\0\0\1\1\0"


def test_nothing_is_kept(c: Any) -> None:
    calls = [
        lambda: c.event_line(EVICTED, 1, 2, "in/0/1"),
        lambda: c.event_line(e.Lost("q", MESSAGE), 1, 2, "in/0/1"),
        lambda: c.append_evicted(bytearray(), 1, EVICTED, 1_000),
        lambda: c.append_dispatched(bytearray(), 1, DISPATCHED, 1_000),
        lambda: c.append_record(bytearray(), 1, (b"k", b"v" * 10_000, [("n", b"x")]), 20_000),
        lambda: c.append_record(bytearray(), 1, (b"k", b"v" * 10_000, [("n", b"x")]), 10),
        lambda: c.append_row(bytearray(), 1, (b"k", None), 1_000),
    ]
    for name, arguments in WRONG:
        calls.append(lambda name=name, arguments=arguments: getattr(c, name)(*arguments))
    assert_keeps_nothing(calls, [EVICTED, DISPATCHED, MESSAGE, MESSAGE.payload, b"k", "in/0/1"])
