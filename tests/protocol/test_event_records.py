"""How the lines of events are dealt to records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringfaust.protocol.events import LINES_PER_RECORD, RECORD_CHARS, record_texts


def _line(step: int, number: int) -> str:
    return f'{{"step":{step},"event":"e","number":{number}}}'


def _step(line: str) -> str:
    return line.partition(",")[0]


@given(st.lists(st.integers(1, 2 * LINES_PER_RECORD), max_size=12), st.integers(0, 100))
def test_a_step_stays_in_one_record_if_it_has_room(sizes: list[int], first: int) -> None:
    """Also where one number begins as another does: 1 and 10."""
    lines = [_line(first + n, at) for n, size in enumerate(sizes) for at in range(size)]
    records = [text.split("\n") for text in record_texts(lines)]
    assert [line for record in records for line in record] == lines
    assert all(0 < len(record) <= LINES_PER_RECORD for record in records)
    for before, after in zip(records, records[1:], strict=False):
        if _step(before[-1]) == _step(after[0]):
            assert len({_step(line) for line in before}) == 1
            assert len(before) == LINES_PER_RECORD


@given(st.lists(st.integers(0, RECORD_CHARS // 2), max_size=12))
def test_long_lines_make_more_records(lengths: list[int]) -> None:
    lines = [_line(n, n) + " " * length for n, length in enumerate(lengths)]
    records = list(record_texts(lines))
    assert "\n".join(records) == "\n".join(lines)
    assert all(len(record) <= RECORD_CHARS for record in records)


def test_no_lines_no_record() -> None:
    assert list(record_texts([])) == []


def test_one_line_a_step_fills_records() -> None:
    lines = [_line(n, n) for n in range(1000)]
    assert [text.count("\n") + 1 for text in record_texts(lines)] == [400, 400, 200]
