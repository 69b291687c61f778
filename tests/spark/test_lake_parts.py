"""However a lake came about, it tells the same: at once, or in many batches that were compacted."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.config import WorkerConfig
from ringfaust.spark.lake import stream as lake
from ringfaust.spark.lake.store import Marks
from ringfaust.spark.lake.tables import TABLES, path, read
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.lake_story import Story, make_topics, tell

pytestmark = pytest.mark.kafka


def contents(spark: SparkSession, root: str, table: str) -> Counter[Any]:
    """The rows without the number of the batch that brought them."""
    rows = read(spark, root, table).drop("batch").collect()
    return Counter(str(row) for row in rows)


@pytest.fixture
def worker(broker: EmbeddedBroker) -> WorkerConfig:
    """Topics of one partition with a story in them."""
    servers = broker.bootstrap_servers
    made = WorkerConfig(
        application=f"parts{uuid.uuid4().hex[:6]}", bootstrap_servers=servers, partitions=1
    )
    story = Story(0)
    story.go_on(150, 3)
    asyncio.run(make_topics(made))
    asyncio.run(tell(made, 0, story.values(), story.records))
    return made


def test_many_batches_tell_what_one_does(
    spark: SparkSession, worker: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    session = lake.lake_session(spark, whole, worker)
    for stream in lake.streams(whole, worker):
        lake.start(session, whole, worker, stream, once=True).awaitTermination()

    monkeypatch.setattr(lake, "_COMPACT_EACH", 2)
    session = lake.lake_session(spark, parts, worker)
    for stream, most in zip(lake.streams(parts, worker, with_gold=False), (14, 60), strict=True):
        small = replace(stream, most_records=most)
        lake.start(session, parts, worker, small, once=True).awaitTermination()
    assert Marks(spark, parts, "events").batch >= 2
    # Gold is made anew as docs/lake.md says, of all batches that are there.
    shutil.rmtree(tmp_path / "parts/gold")
    session = lake.lake_session(spark, parts, worker)
    events = lake.streams(parts, worker)[0]
    lake.start(session, parts, worker, events, once=True).awaitTermination()

    for table in TABLES:
        assert contents(spark, parts, table) == contents(spark, whole, table), table
    assert contents(spark, parts, "messages").total() > 50
    done = DeltaTable.forPath(spark, path(parts, "transitions")).history()
    assert done.filter("operation = 'OPTIMIZE'").count() >= 1
