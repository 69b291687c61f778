"""One batch and many compacted batches produce the same lake."""

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
from ringfaust.spark.lake.store import Watermarks
from ringfaust.spark.lake.tables import TABLES, path, read
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.lake_history import LakeHistory, make_topics, write_topics

pytestmark = pytest.mark.kafka


def contents(spark: SparkSession, root: str, table: str) -> Counter[Any]:
    """The rows without the number of their batch."""
    rows = read(spark, root, table).drop("batch").collect()
    return Counter(str(row) for row in rows)


@pytest.fixture
def worker(broker: EmbeddedBroker) -> WorkerConfig:
    """Topics of one partition that contain a history."""
    servers = broker.bootstrap_servers
    made = WorkerConfig(
        application=f"parts{uuid.uuid4().hex[:6]}", bootstrap_servers=servers, partitions=1
    )
    history = LakeHistory(0)
    history.continue_randomly(150, 3)
    asyncio.run(make_topics(made))
    asyncio.run(write_topics(made, 0, history.values(), history.records))
    return made


def test_many_compacted_batches_give_the_same_tables_as_one(
    spark: SparkSession, worker: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    session = lake.lake_session(spark, whole, worker)
    for stream in lake.streams(whole, worker):
        lake.start(session, whole, worker, stream, once=True).awaitTermination()

    monkeypatch.setattr(lake, "_BATCHES_PER_COMPACTION", 2)
    session = lake.lake_session(spark, parts, worker)
    for stream, most in zip(lake.streams(parts, worker, with_gold=False), (14, 60), strict=True):
        small = replace(stream, max_records=most)
        lake.start(session, parts, worker, small, once=True).awaitTermination()
    assert Watermarks(spark, parts, "events").batch >= 2
    # Rebuild gold from all batches, as docs/lake.md describes.
    shutil.rmtree(tmp_path / "parts/gold")
    session = lake.lake_session(spark, parts, worker)
    events = lake.streams(parts, worker)[0]
    lake.start(session, parts, worker, events, once=True).awaitTermination()

    for table in TABLES:
        assert contents(spark, parts, table) == contents(spark, whole, table), table
    assert contents(spark, parts, "messages").total() > 50
    done = DeltaTable.forPath(spark, path(parts, "transitions")).history()
    assert done.filter("operation = 'OPTIMIZE'").count() >= 1
