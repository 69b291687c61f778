"""The encoder in C makes the same bytes as the one in Python, and refuses what is no effect."""

from __future__ import annotations

import gc
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust import compiled
from ringfaust.core import effects as e
from ringfaust.core.model import PLAIN, Delivery, EvictReason, Message
from ringfaust.protocol.records import Payload
from tests.protocol.made_effects import (
    counts,
    data,
    deliveries,
    dispatches,
    evictions,
    headers,
    messages,
    texts,
    times,
)

SOURCE = Path(compiled.__file__).parent / "protocol" / "encoder.py"


def load(path: Path) -> ModuleType:
    spec = spec_from_file_location("ringfaust.protocol.encoder", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def the_one_in_c() -> Path | None:
    found = compiled.FOLDER.glob("protocol/encoder.*")
    return next(iter(found), None) if compiled.is_current() else None


pytestmark = pytest.mark.skipif(the_one_in_c() is None, reason="nothing is compiled")


@pytest.fixture(scope="module")
def both() -> tuple[ModuleType, ModuleType]:
    path = the_one_in_c()
    assert path is not None
    return load(SOURCE), load(path)


effects = evictions | dispatches
effects |= st.builds(e.Added, texts, messages) | st.builds(e.Scheduled, texts, messages)
effects |= st.builds(e.Acked, texts, deliveries) | st.builds(e.Lost, texts, messages)


@given(effect=effects, step=counts, now_ms=times, by=texts)
def test_lines(both: Any, effect: e.Effect, step: int, now_ms: int, by: str) -> None:
    python, c = both
    assert c.event_line(effect, step, now_ms, by) == python.event_line(effect, step, now_ms, by)


@given(effect=evictions)
def test_evicted_records(both: Any, effect: e.Evicted) -> None:
    python, c = both
    assert c.evicted_bytes(effect) == python.evicted_bytes(effect)


@given(effect=dispatches)
def test_dispatched_records(both: Any, effect: e.Dispatched) -> None:
    python, c = both
    assert c.dispatched_bytes(effect) == python.dispatched_bytes(effect)


@given(key=data, value=data, some=headers)
def test_any_records(both: Any, key: bytes, value: bytes, some: list[tuple[str, bytes]]) -> None:
    python, c = both
    assert c.record_bytes(key, value, some) == python.record_bytes(key, value, some)
    assert c.record_bytes(key, value, tuple(some)) == python.record_bytes(key, value, some)


@given(
    number=st.integers(0, 9_000) | st.just(0), record=st.binary(max_size=200),
    most=st.integers(0, 300),
)  # fmt: skip
def test_batches(both: Any, number: int, record: bytes, most: int) -> None:
    found = []
    for encoder in both:
        batch = bytearray(61)
        found.append((encoder.append_record(batch, number, record, most), batch))
    assert found[0] == found[1]


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
    ("event_line", (EVICTED._replace(at_ms=2**64), 1, 2, "by")),
    ("evicted_bytes", (DISPATCHED,)),
    ("evicted_bytes", (EVICTED._replace(cause="\ud800"),)),
    ("evicted_bytes", (EVICTED._replace(message=MESSAGE._replace(id=7)),)),  # type: ignore[arg-type]
    ("dispatched_bytes", (EVICTED,)),
    ("dispatched_bytes", (e.Dispatched("q", "no delivery"),)),  # type: ignore[arg-type]
    ("record_bytes", (b"", b"")),
    ("record_bytes", ("text", b"", ())),
    ("record_bytes", (b"", b"", 7)),
    ("record_bytes", (b"", b"", ["name"])),
    ("record_bytes", (b"", b"", [("name", "text")])),
    ("append_record", (b"no bytearray", 0, b"", 10)),
    ("append_record", (bytearray(), 0, "text", 10)),
    ("append_record", (bytearray(), None, b"", 10)),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_what_is_no_effect_is_refused(both: Any, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        getattr(both[1], name)(*arguments)


def test_nothing_is_kept(both: Any) -> None:
    c = both[1]
    values: list[Any] = [EVICTED, DISPATCHED, MESSAGE, MESSAGE.payload, b"k", "in/0/1"]
    calls = [
        lambda: c.event_line(EVICTED, 1, 2, "in/0/1"),
        lambda: c.event_line(e.Lost("q", MESSAGE), 1, 2, "in/0/1"),
        lambda: c.evicted_bytes(EVICTED),
        lambda: c.dispatched_bytes(DISPATCHED),
        lambda: c.record_bytes(b"k", b"v" * 10_000, [("n", b"x")]),
        lambda: c.append_record(bytearray(), 1, b"k", 10),
    ]
    for name, arguments in WRONG:
        calls.append(lambda name=name, arguments=arguments: getattr(c, name)(*arguments))

    def run() -> None:
        for call in calls:
            try:
                call()
            except (TypeError, ValueError, OverflowError):
                continue

    run()
    gc.collect()
    before, blocks = [sys.getrefcount(value) for value in values], sys.getallocatedblocks()
    for _ in range(200):
        run()
    gc.collect()
    assert [sys.getrefcount(value) for value in values] == before
    assert sys.getallocatedblocks() - blocks < 100
