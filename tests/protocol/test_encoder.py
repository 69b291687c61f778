"""The encoder in C makes the same bytes as the one in Python, and refuses what is no effect."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import effects as e
from ringfaust.core.model import PLAIN, Delivery, EvictReason, Message
from ringfaust.protocol.records import Payload
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
from tests.protocol.twins import REFUSALS, assert_keeps_nothing, twins

FOUND = twins("protocol/encoder")
pytestmark = pytest.mark.skipif(FOUND is None, reason="nothing is compiled")


@pytest.fixture(scope="module")
def both() -> tuple[ModuleType, ModuleType] | None:
    return FOUND


effects = evictions | dispatches
effects |= st.builds(e.Added, texts, messages) | st.builds(e.Scheduled, texts, messages)
effects |= st.builds(e.Acked, texts, deliveries) | st.builds(e.Lost, texts, messages)
effects |= st.builds(e.Due, texts, messages)


@given(effect=effects, step=counts, now_ms=times, by=texts)
def test_lines(both: Any, effect: e.Effect, step: int, now_ms: int, by: str) -> None:
    python, c = both
    assert c.event_line(effect, step, now_ms, by) == python.event_line(effect, step, now_ms, by)


def appended(encoders: Any, name: str, number: int, content: Any, most: int) -> list[Any]:
    """What both encoders return, with the batch to which they have appended."""
    found = []
    for encoder in encoders:
        batch = bytearray(61)
        is_appended = getattr(encoder, name)(batch, number, content, most)
        found.append((is_appended, bytes(batch)))
    return found


numbers = st.integers(0, 9_000) | st.just(0)
most_bytes = st.integers(0, 300) | st.just(1_000_000)


@given(effect=evictions, number=numbers, most=most_bytes)
def test_evicted_records(both: Any, effect: e.Evicted, number: int, most: int) -> None:
    python, c = appended(both, "append_evicted", number, effect, most)
    assert c == python


@given(effect=dispatches, number=numbers, most=most_bytes)
def test_dispatched_records(both: Any, effect: e.Dispatched, number: int, most: int) -> None:
    python, c = appended(both, "append_dispatched", number, effect, most)
    assert c == python


@given(record=records, number=numbers, most=most_bytes)
def test_any_records(both: Any, record: Any, number: int, most: int) -> None:
    key, value, some = record
    python, c = appended(both, "append_record", number, record, most)
    assert c == python
    assert appended(both, "append_record", number, (key, value, tuple(some)), most)[1] == python


@given(row=st.tuples(st.binary(max_size=70), data), number=numbers, most=most_bytes)
def test_rows(both: Any, row: tuple[bytes, bytes | None], number: int, most: int) -> None:
    python, c = appended(both, "append_row", number, row, most)
    assert c == python
    assert appended(both, "append_record", number, (*row, []), most)[1] == python


MESSAGE = Message(
    "m", 1, PLAIN, 4, 5, 0, 0, "", 0, 0, (), 1, Payload(b"k", b"v", (("n", b"x"),), "in/0/1")
)
EVICTED = e.Evicted("q", MESSAGE, EvictReason.OVERFLOW, "n", 1, 1, 9, "full")
DISPATCHED = e.Dispatched("q", Delivery(1, "c", MESSAGE, 5))
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
def test_what_is_no_effect_is_refused(both: Any, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(REFUSALS):
        getattr(both[1], name)(*arguments)


def test_nothing_is_kept(both: Any) -> None:
    c = both[1]
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
