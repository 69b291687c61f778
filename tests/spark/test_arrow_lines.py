"""Arrow and Spark read plain lines to the same rows; Arrow refuses all others."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import SparkSession

from ringfaust.spark.arrow_lines import NotPlainError, read_plain_lines
from ringfaust.spark.lines import read_lines
from tests.spark.lake_history import LakeHistory
from tests.spark.test_lines import GOOD, NUMBERS_MISLEAD, ODD, some_line

AT = datetime(2026, 11, 22, 10, 20, 30, 456_000, UTC)
SPARK = "partition int, offset long, timestamp timestamp, value binary"
ARROW = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
    ]
)  # fmt: skip
PLAIN = [
    '{"step":5,"event":"x","unknown":{"step":9},"more":[1,[2]],"text":"[a]"}',
    '{"step":5,"event":"x","settings":{"a": {"b": 1}, "c": "\\u00e9"},"counts":{}}',
    '{"step":5,"event":"x","settings":null,"what":"settings"}',
    '{"step":5,"event":"\\u00e9\\ud83d\\ude00\\n\\/","active":true,"sequence":0,"queue":null}',
    '{"step":5,"event":"x"}\n{"event":"y", "step" : 6}',
]
REFUSED = [
    '{"step":5,"event":"x","settings":{"a": 1.5}}',
    '{"step":5,"event":"x","settings":{"a":1}}',
    '{"step":5,"event":"x","settings":{"a": "\\u0001"}}',
    '{"step":5,"event":"x","s\\u0065ttings":{"a":1}}',
    '{"step":5,"event":"x"}{"step":6,"event":"x"}',
    '{"step":5,"event":"x"}\n{"step":6}',
    '{"step":5,"event":"x","settings":' + '{"a": ' * 5000 + "1" + "}" * 5001,
    '{"step":5,"event":"x","settings":{"a": ' + "1" * 5000 + "}}",
]


def _read(values: Sequence[bytes | None]) -> list[dict[str, object]] | None:
    """The rows that Arrow reads from these records, or None if it refuses them."""
    rows = [
        {"partition": 3, "offset": n, "timestamp": AT, "value": v} for n, v in enumerate(values)
    ]
    try:
        lines = read_plain_lines(pa.Table.from_pylist(rows, ARROW))
    except NotPlainError:
        return None
    return list(lines.to_pylist())


def _check(spark: SparkSession, values: list[bytes | None]) -> list[bytes | None]:
    """Compare both readers on the plain records, alone and together; returns the plain records."""
    rows = [(3, n, AT, v) for n, v in enumerate(values)]
    by_spark: dict[int, list[dict[str, object]]] = {}
    for row in read_lines(spark.createDataFrame(rows, SPARK)).orderBy("offset", "line").collect():
        by_spark.setdefault(row.offset, []).append(row.asDict())
    plain = [n for n, value in enumerate(values) if _read([value]) is not None]
    expected = [{**row, "offset": at} for at, n in enumerate(plain) for row in by_spark[n]]
    found = _read([values[n] for n in plain])
    assert found == [{**row, "timestamp": AT} for row in expected]
    return [values[n] for n in plain]


def test_arrow_and_spark_agree_on_plain_and_odd_lines(spark: SparkSession) -> None:
    odd = [line for one in ODD for line in (one, f"{GOOD[0]}\n{one}", f"{one}\n{GOOD[1]}")]
    texts = ["\n".join(GOOD), *PLAIN, *REFUSED, *odd, *NUMBERS_MISLEAD]
    read = _check(spark, [None, b"\xff", *(text.encode() for text in texts)])
    assert {text.encode() for text in ("\n".join(GOOD), *PLAIN)} <= set(read)
    assert not {text.encode() for text in (*REFUSED, *NUMBERS_MISLEAD)} & set(read)


def test_arrow_and_spark_agree_on_random_lines(spark: SparkSession) -> None:
    rng = random.Random(12)
    records = [[some_line(rng) for _ in range(rng.randrange(1, 5))] for _ in range(600)]
    read = _check(spark, ["\n".join(lines).encode() for lines in records])
    assert len(read) > 100


def test_everything_a_worker_writes_is_plain(spark: SparkSession) -> None:
    history = LakeHistory(0)
    history.continue_randomly(150, 3)
    values: list[bytes | None] = list(history.values())
    assert _check(spark, values) == values
    fields = {name for line in history.lines for name in json.loads(line)}
    assert fields >= {"counts", "consumer", "due_ms", "cause"}
