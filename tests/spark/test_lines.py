"""Lines parsed together, a record at a time, give the same rows as lines parsed one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from ringfaust.protocol.lifecycle import EVENTS
from ringfaust.spark.lines import LINE, _parse_together, read_lines

GOOD = [
    f'{{"step":{n},"event":"acked","queue":"a","sequence":{n},"time_ms":1,"by":"in/0/{n}"}}'
    for n in range(3)
]
ODD = [
    '{"step":5,"event":"x","priority":"high"}',
    '{"step":5,"event":"x","priority":1.5,"queue":"a"}',
    '{"step":5,"event":"x","priority":99999999999}',
    '{"step":5,"event":"x","priority":{"a":1},"handovers":3}',
    '{"step":5,"event":"x","settings":{"a":{"b":1.50}},"counts":{}}',
    '{"step":5,"event":"x","settings":"s","counts":null}',
    '{"step":5,"event":"x","text":"[a]","settings":{"a":[1,[2]]}}',
    '{"step":5,"event":"x","active":"true"}',
    '{"step":5,"event":{"a":1},"queue":7}',
    '{"step":"5","event":"x"}',
    '{"step":5.0,"event":"x"}',
    '{"step":1e3,"event":"x"}',
    '{"step":NaN,"event":"x"}',
    '{"step":05,"event":"x"}',
    '{"step":99999999999999999999999,"event":"x"}',
    '{"step":5,"event":"x","step":6,"event":"y"}',
    '{"step":5,"event":"x","unknown":{"step":9}}',
    '{"step":5,"event":"x","time_ms":""}',
    '{"step":5,"event":"\\u00e9\\ud83d\\ude00\\n\\/"}',
    '{"step":5,"event":"\\ud800"}',
    '{"step":5,"event":"é\u2028😀"}',
    '{"step":5,"event":"x\ty"}',
    '{"step":5,"event":"x"}\r',
    '{"step":5,"event":"x"} junk',
    '{"step":5,"event":"x"}}',
    '{"step":5,"event":"x"},',
    ' {"step":5,"event":"x"}',
    "{'step':5}",
    "{}",
    "",
    "5",
    "null",
    "[1,2]",
    '[{"step":5,"event":"x"}]',
    '{"step":5,"event":"x"',
    '{"step":5,"event":"x',
    "no json at all",
]
NUMBERS_MISLEAD = [
    # As many objects as lines, but not one on each.
    '{"step":1,"event":"a"},{"step":2,"event":"b"}\n{"step":3,"event":"c","x":[{}\n{"step":4}]}',
    '{"step":1,"event":"a"},{"step":2,"event":"b"}\n{"step":3\n"event":"c"}',
    '{"step":1,"event":"a"},{"step":2,"event":"b"}\n',
    '{"step":1,"event":"a"},{"step":2,"event":"b"}\n{"step":3,"event":"c\n{"step":4"}',
    '{"step":1,"event":"a"}],[{"step":2,"event":"b"}\n{"step":3,"event":"c"}',
]


def _one_by_one(value: str | None) -> list[tuple[int, str]]:
    return list(enumerate(value.split("\n"))) if value is not None else []


def _check(spark: SparkSession, values: list[str | None]) -> None:
    rows = [(0, n, None, None if v is None else v.encode()) for n, v in enumerate(values)]
    schema = "partition int, offset long, timestamp timestamp, value binary"
    found = read_lines(spark.createDataFrame(rows, schema)).orderBy("offset", "line").collect()
    texts = [(n, *line) for n, value in enumerate(values) for line in _one_by_one(value)]
    assert [(row.offset, row.line, row.raw) for row in found] == texts
    single = spark.createDataFrame(texts, "offset long, line int, raw string")
    parsed = single.select("offset", "line", F.inline(F.array(F.from_json("raw", LINE))))
    expected = parsed.orderBy("offset", "line").collect()
    for row, one in zip(found, expected, strict=True):
        assert _fields(row) == _fields(one) | {"sequence": one.sequence or None}, row.raw


def _fields(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in LINE.names}


def test_odd_lines_are_parsed_alike_alone_and_among_good_ones(spark: SparkSession) -> None:
    def records() -> Iterator[str]:
        for odd in ODD:
            yield odd
            yield f"{GOOD[0]}\n{odd}"
            yield f"{odd}\n{GOOD[1]}"
            yield f"{GOOD[0]}\n{odd}\n{GOOD[2]}"

    _check(spark, [None, "\n".join(GOOD), *records(), *NUMBERS_MISLEAD])


def test_every_declared_field_is_a_column_but_those_that_no_message_has() -> None:
    fields = {field.name for event in EVENTS.values() for field in event.fields}
    only_raw = fields - set(LINE.names)
    assert {"step", "event", "time_ms", "by"} <= set(LINE.names)
    users = [e.name for e in EVENTS.values() if only_raw & {field.name for field in e.fields}]
    assert users == ["gap", "misplaced"]


def some_line(rng: random.Random) -> str:
    """A good line, one with any fields and values, or a truncated one."""
    values = [
        None, True, 0, 7, -1, 2**31, 2**63, 10**30, 1.5, 1e300, float("nan"), "", "text", "12",
        'ä"\\\n\u2028😀', {}, {"a": 1, "b": {"c": "d"}}, [], [1, {"a": 2}],
    ]  # fmt: skip
    if rng.random() < 0.5:
        return rng.choice(GOOD)
    fields = rng.sample([*LINE.names, "height_m"], rng.randrange(9))
    line = json.dumps(
        {name: rng.choice(values) for name in fields}, ensure_ascii=rng.random() < 0.5
    )
    return line if rng.random() < 0.9 else line[: rng.randrange(60)]


def test_random_lines_are_parsed_alike(spark: SparkSession) -> None:
    rng = random.Random(11)
    records = [[some_line(rng) for _ in range(rng.randrange(1, 5))] for _ in range(600)]
    _check(spark, ["\n".join(lines) for lines in records])


@pytest.mark.parametrize("value", NUMBERS_MISLEAD)
def test_only_records_with_an_object_on_each_line_are_parsed_together(
    spark: SparkSession, value: str
) -> None:
    """So the tests above do compare two parsers, and none of these values reaches the wrong one."""
    rows = [("\n".join(GOOD), True), (value, "[" not in value)]
    texts = spark.createDataFrame(rows, "value string, is_flat boolean").select(
        "is_flat", F.split("value", "\n").alias("texts")
    )
    together = texts.select((F.size(_parse_together()) == F.size("texts")).alias("is_whole"))
    assert [row.is_whole is True for row in together.collect()] == [True, False]
