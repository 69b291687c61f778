"""Outputs as columns: any headers survive the conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import effects as e
from ringfaust.core.model import Delivery, EvictReason, Message, plain_position
from ringfaust.protocol import headers as h
from ringfaust.protocol.outputs import dispatched_record, evicted_record
from ringfaust.protocol.records import OutRecord, Payload, Role
from ringfaust.spark.columns import HEADER_COLUMNS, LAYOUTS, write_frames

TOPICS = {role: role.value for role in Role}
TRACE: tuple[tuple[str, Any], ...] = (("trace", b"1"), ("nothing", None))


def headers_of(row: Any) -> list[tuple[str, bytes | None]]:
    """The headers of a row, as the job's sink assembles them."""
    if row.layout < 0:
        return list(zip(row.names, row.contents, strict=True))
    names = LAYOUTS[row.layout]
    contents = [getattr(row, column) for column in HEADER_COLUMNS]
    assert row.names is None and row.contents is None
    assert all(pd.isna(content) for content in contents[len(names) :])
    return list(zip(names, contents[: len(names)], strict=True))


def frame_of(role: Role, records: Sequence[OutRecord]) -> pd.DataFrame:
    (frame,) = write_frames({(role, None): list(records)}, TOPICS, 3)
    return frame


def read_back(frame: pd.DataFrame) -> list[Any]:
    key = [None if pd.isna(key) else key for key in frame["key"]]
    headers = [headers_of(row) for row in frame.itertuples(index=False)]
    return list(zip(key, frame["value"], headers, strict=True))


def message(number: int, **more: Any) -> Message:
    payload = Payload(b"k", b"%d" % number, more.pop("headers", ()), f"sent/0/{number}")
    fields = dict(
        id=f"sent/0/{number}", sequence=number, position=plain_position(number), priority=4,
        enqueued_ms=1_000, expires_at_ms=0, due_ms=0, group="", attempts=1, handovers=1,
        holders=(), size_bytes=2, payload=payload,
    )  # fmt: skip
    return Message(**fields | more)


def evicted(number: int, **more: Any) -> OutRecord:
    effect = e.Evicted(
        "q", message(number, **more), EvictReason.OVERFLOW, "sent/0/9", 5, 5, 2_000, "full"
    )
    return evicted_record(effect)


def dispatched(number: int, **more: Any) -> OutRecord:
    return dispatched_record(
        e.Dispatched("q", Delivery(number, "c", message(number, **more), 1_000))
    )


def test_evicted_records_use_a_layout() -> None:
    records = [evicted(number) for number in (1, 2, 3)]
    frame = frame_of(Role.EVICTED, records)
    assert set(frame["layout"]) == {1} and LAYOUTS[1][-1] == h.HANDOVERS
    assert read_back(frame) == [(key, value, list(pairs)) for key, value, pairs in records]


def test_first_and_later_deliveries_each_have_a_layout() -> None:
    assert set(frame_of(Role.DISPATCHED, [dispatched(1), dispatched(2)])["layout"]) == {2}
    again = [dispatched(number, handovers=2) for number in (1, 2)]
    assert set(frame_of(Role.DISPATCHED, again)["layout"]) == {3}


def test_records_without_headers_use_the_empty_layout() -> None:
    frame = frame_of(Role.EVENTS, [(None, b"line", []), (None, b"line", [])])
    assert set(frame["layout"]) == {0}
    assert read_back(frame) == [(None, b"line", [])] * 2


def test_one_record_with_other_headers_makes_the_frame_use_names() -> None:
    records = [evicted(1), evicted(2, headers=TRACE), evicted(3), evicted(4, group="g")]
    frame = frame_of(Role.EVICTED, records)
    assert set(frame["layout"]) == {-1}
    assert read_back(frame) == [(key, value, list(pairs)) for key, value, pairs in records]


def test_as_many_headers_with_other_names_do_not_use_a_layout() -> None:
    key, value, pairs = evicted(1)
    other = [*pairs[:-1], ("other", b"0")]
    swapped = [pairs[1], pairs[0], *pairs[2:]]
    for strange in (other, swapped):
        frame = frame_of(Role.EVICTED, [(key, value, pairs), (key, value, strange)])
        assert read_back(frame) == [(key, value, list(pairs)), (key, value, strange)]


HEADERS = st.one_of(
    st.sampled_from(LAYOUTS).map(lambda names: [(name, b"%d" % len(name)) for name in names]),
    st.lists(st.tuples(st.sampled_from(["a", "b", h.QUEUE]), st.none() | st.binary(max_size=3))),
)


@given(st.lists(HEADERS, min_size=1, max_size=6))
def test_any_headers_are_restored(all_headers: list[Any]) -> None:
    records: list[OutRecord] = [(None, b"v", pairs) for pairs in all_headers]
    assert read_back(frame_of(Role.DEAD, records)) == records
