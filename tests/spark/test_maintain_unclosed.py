"""`ringfaust spark maintain` keeps what no closed day of the audit contains, whatever its time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from ringfaust.spark.lake import inputs
from ringfaust.spark.lake.store import append
from ringfaust.spark.lake.tables import BRONZE, read
from ringfaust.spark.maintain import command, retention
from tests.spark.batched_lake import TOPIC, BatchedLake, close_day

TODAY = date(2025, 10, 31)
RECENT = date(2025, 10, 30)
CLOSED = date(2025, 10, 29)
"""A closed day."""
MONTH_AGO = date(2025, 9, 30)


def add_inputs(lake: BatchedLake, topic: str, partition: int, *days: date) -> None:
    """Records whose producer's clock says these days, in the order in which the lake read them."""
    rows: list[Any] = [
        (topic, partition, offset, datetime(*day.timetuple()[:3], tzinfo=UTC), 0, None, b"v", [],
         offset, day)
        for offset, day in enumerate(days)
    ]  # fmt: skip
    frame = lake.spark.createDataFrame(rows, BRONZE.schema)
    append(frame, lake.root, BRONZE, f"{inputs.STREAM} of {topic}/{partition}", 0)


def add_event(lake: BatchedLake, day: date) -> None:
    lake.write([b"{}"], int(datetime(*day.timetuple()[:3], tzinfo=UTC).timestamp()) * 1000)


def places(lake: BatchedLake) -> set[str]:
    rows = read(lake.spark, lake.root, "bronze").collect()
    return {f"{row.topic}/{row.partition}/{row.offset}" for row in rows}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[BatchedLake]:
    made = BatchedLake(spark, tmp_path / "lake")
    only_bronze = patch.object(command, "TABLES", {BRONZE.name: BRONZE})
    with patch.object(retention, "today", lambda: TODAY), only_bronze:
        yield made


def test_nothing_is_deleted_if_no_day_is_closed(lake: BatchedLake) -> None:
    add_event(lake, RECENT)
    add_inputs(lake, "in", 0, *[MONTH_AGO] * 5, RECENT)
    before = places(lake)
    refused = lake.maintain("--retention", "bronze=7d")
    assert refused.exit_code == 2, refused.output
    shown = " ".join(refused.output.split())
    assert "retention of bronze = '7d': the audit has closed no day" in shown
    assert "since 2025-09-30: use at least 31d, or close days with" in shown
    assert places(lake) == before
    retention.check_closed(lake.spark, lake.root, 31, {})


def test_what_no_closed_day_contains_is_kept(lake: BatchedLake) -> None:
    for day in (MONTH_AGO, date(2025, 10, 1), RECENT):
        add_event(lake, day)
    add_inputs(
        lake, "in", 0, MONTH_AGO, MONTH_AGO, RECENT,
        # No closed day contains the rest.
        date(2019, 1, 1), MONTH_AGO, date(2025, 10, 20), date(2099, 1, 1),
    )  # fmt: skip
    add_inputs(lake, "in", 1, date(1969, 12, 31))
    add_inputs(lake, "removed", 0, MONTH_AGO)
    before = places(lake)
    close_day(lake, CLOSED, {("in", 0): 3, (TOPIC, 0): 1})
    done = lake.maintain("--retention", "bronze=7d")
    assert done.exit_code == 0, done.output
    assert before - places(lake) == {"in/0/0", "in/0/1", f"{TOPIC}/0/0"}
    assert "no closed day of the audit contains: 6." in " ".join(done.output.split())

    close_day(lake, RECENT, {("in", 0): 7, ("in", 1): 1, (TOPIC, 0): 2_000_001})
    done = lake.maintain("--retention", "bronze=7d")
    assert done.exit_code == 0, done.output
    # The last batch of events, what is not old, and a topic that the audit has not read.
    assert places(lake) == {f"{TOPIC}/0/2000000", "in/0/2", "in/0/6", "removed/0/0"}
    shown = " ".join(done.output.split())
    assert "no closed day of the audit contains: 1." in shown
    assert "Those that no worker has read, such as the last ones of a removed route, stay" in shown
