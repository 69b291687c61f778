"""Parts of backfill that need no broker."""

from __future__ import annotations

import io

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from ringfaust.spark.backfill.command import _numbered, read_options
from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.backfill.estimate import QueueEstimate
from ringfaust.spark.backfill.printing import Plan, tell_plan
from ringfaust.spark.backfill.profile import Survey
from ringfaust.spark.backfill.redrive import read_role
from ringfaust.spark.backfill.write import by_lane

OPTIONS = {
    "source": "s", "kind": "csv", "topic": "t", "key": None, "value": None, "timestamp": None,
    "headers": ["a=b = c"], "name": None, "rate": None, "skip_bad": None, "broker_time": False,
}  # fmt: skip


def test_slices_are_spread_evenly_and_each_is_numbered_in_its_order(spark: SparkSession) -> None:
    rows = spark.range(60).select(
        (F.col("id") % 6).cast("int").alias("slice"),
        (F.col("id") * 7 % 10).alias("timestamp_ms"),
        F.col("id").cast("string").cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.lit(None).cast("array<string>").alias("headers"),
    )
    numbered = _numbered(by_lane(rows, 3)).withColumn("task", F.spark_partition_id())
    seen = [
        tuple(row) for row in numbered.select("task", "slice", "position", "timestamp_ms").collect()
    ]
    assert {(task, part) for task, part, *_ in seen} == {(part % 3, part) for part in range(6)}
    for part in range(6):
        assert [row[2] for row in seen if row[1] == part] == list(range(1, 11))
        times = [row[3] for row in seen if row[1] == part]
        assert times == sorted(times)


def test_options_are_read() -> None:
    asked = read_options(**OPTIONS)  # type: ignore[arg-type]
    assert asked.mapping.headers == (("a", "b = c"),)
    assert len(asked.default_name) == 12


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"kind": "cvs"}, "--format: 'cvs': did you mean 'csv'"),
        ({"headers": ["a"]}, "--header: 'a': NAME=COLUMN or NAME=SQL would be right"),
    ],
)
def test_options_that_make_no_sense_are_refused(option: dict[str, object], text: str) -> None:
    with pytest.raises(CannotBackfill, match=text):
        read_options(**{**OPTIONS, **option})  # type: ignore[arg-type]
    with pytest.raises(CannotBackfill, match="--from: 'ded': did you mean 'dead'"):
        read_role("ded")


def test_the_plan_is_told_with_its_figures() -> None:
    queues = [QueueEstimate(f"q.{n}", 30, 900, 10, 20, 0, 10, 0, 0) for n in range(22)]
    found = Survey(
        slices={0: (660, "1")}, last={0: 0}, bytes=5_000, earliest_ms=1, bad=1,
        examples=("queue: 1 rows, such as",),
    )  # fmt: skip
    plan = Plan(job="j", topic="t", found=found, queues=queues, doubts=("because",), rate=66.0)
    out = Console(record=True, width=80, file=io.StringIO())
    tell_plan(out, plan)
    text = out.export_text()
    assert "660 records, 5,000 bytes of keys and values, 10 s at 66 a second, for t." in text
    assert "would evict 440 of them" in text
    assert "2 more" in text
    assert "expired" not in text
    assert "It would be refused: because." in text
