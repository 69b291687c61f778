"""Parts of backfill and redrive that need no broker."""

from __future__ import annotations

import io

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.spark.backfill.command import read_options
from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.backfill.estimate import QueueEstimate
from ringfaust.spark.backfill.job import JobProfile
from ringfaust.spark.backfill.show import BackfillPlan, print_plan
from ringfaust.spark.backfill.write import spread_slices
from ringfaust.spark.options import BackfillOptions, Format, LakeRole

OPTIONS = BackfillOptions("s", Format.CSV, "t", header=["a=b = c"])


def test_slices_are_spread_evenly_and_numbered_in_order(spark: SparkSession) -> None:
    rows = spark.range(60).select(
        (F.col("id") % 6).cast("int").alias("partition"),
        (F.col("id") * 7 % 10).alias("timestamp_ms"),
        F.col("id").cast("string").cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.lit(None).cast("array<string>").alias("headers"),
    )
    numbered = spread_slices(rows, 3).withColumn("task", F.spark_partition_id())
    numbered = numbered.select("task", "partition", "position", "timestamp_ms")
    seen = [tuple(row) for row in numbered.collect()]
    assert {(task, part) for task, part, *_ in seen} == {(part % 3, part) for part in range(6)}
    for part in range(6):
        assert [row[2] for row in seen if row[1] == part] == list(range(1, 11))
        times = [row[3] for row in seen if row[1] == part]
        assert times == sorted(times)


def test_valid_options_are_parsed() -> None:
    request = read_options(WorkerConfig(), QueuesConfig(), OPTIONS)
    assert request.mapping.headers == (("a", "b = c"),)
    assert len(request.job) == 12


@pytest.mark.parametrize(("given", "valid"), [
    (("backfill", "s", "--topic", "t", "--format", "cvs"), Format),
    (("redrive", "--lake", "l", "--where", "true", "--from", "ded"), LakeRole),
])  # fmt: skip
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(
    given: tuple[str, ...], valid: type[Format | LakeRole]
) -> None:
    found = CliRunner().invoke(main, ["spark", *given])
    assert found.exit_code == 2
    *_, option, wrong = given
    for text in (option, wrong, *valid):
        assert f"'{text}'" in found.stderr


def test_a_header_without_an_expression_is_refused() -> None:
    options = OPTIONS._replace(header=["a"])
    with pytest.raises(CannotBackfill, match="--header: 'a': use NAME=COLUMN or NAME=SQL"):
        read_options(WorkerConfig(), QueuesConfig(), options)


def test_the_plan_is_printed_with_its_figures() -> None:
    queues = [QueueEstimate(f"q.{n}", 30, 900, 10, 20, 0, 10, 0, 0) for n in range(22)]
    found = JobProfile(
        slices={0: (660, "1")}, bytes=5_000, earliest_ms=1, bad=1,
        examples=("queue: 1 rows, such as",),
    )  # fmt: skip
    plan = BackfillPlan(
        job="j", topic="t", profile=found, queues=queues, objections=("because",), rate=66.0
    )
    out = Console(record=True, width=80, file=io.StringIO())
    print_plan(out, plan)
    text = out.export_text()
    assert "660 records, 5,000 bytes of keys and values, 10 s at 66 per second, for t." in text
    assert "would evict 440 of them" in text
    assert "2 more" in text
    assert "expired" not in text
    assert "A run would be refused: because." in text
