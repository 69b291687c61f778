"""A lake that is written batch by batch, without a broker."""

from __future__ import annotations

import shutil
from collections import Counter
from copy import copy
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import Result

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import Balance, ClosedDays, Frames, TopicPositions
from ringfaust.spark.lake import silver
from ringfaust.spark.lake.store import append
from ringfaust.spark.lake.stream import lake_session
from ringfaust.spark.lake.tables import BRONZE, path, read
from tests.spark.lake_history import LakeHistory
from tests.spark.shared_session import run_command

WORKER = WorkerConfig(application="maintained", bootstrap_servers="127.0.0.1:1", partitions=1)
TOPIC = WORKER.topic(Role.EVENTS)
LAST = 2
"""The last batch of the fixture `stages`."""
_DAY_MS = 86_400_000
_folder = TemporaryDirectory(prefix="ringfaust-tests-")
_EMPTY = Path(_folder.name, "lake")
"""A lake without rows, once one was needed."""


def copy_empty(spark: SparkSession, root: Path) -> None:
    """Copy a lake of `WORKER` without rows: creating its tables takes longer than most tests."""
    if not _EMPTY.exists():
        lake_session(spark, str(_EMPTY), WORKER)
    shutil.copytree(_EMPTY, root)


class BatchedLake:
    """Bronze and transitions, written by the lake's own code.

    If the folder exists, it has a lake already.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = str(root)
        if not root.exists():
            copy_empty(spark, root)
        self.spark = lake_session(spark, self.root, WORKER)
        self.batch = -1

    def copy(self, root: Path) -> BatchedLake:
        """A copy of this lake."""
        shutil.copytree(self.root, root)
        other = copy(self)
        other.root = str(root)
        return other

    def write(self, values: list[bytes], at_ms: int) -> None:
        """Write a batch of events records to bronze and transitions."""
        self.write_bronze(values, at_ms)
        self.write_transitions()

    def write_transitions(self) -> None:
        """Write the last batch of bronze to transitions."""
        with silver.written_transitions(self.spark, self.root, TOPIC, self.batch):
            pass

    def write_bronze(self, values: list[bytes], at_ms: int) -> None:
        """Write a batch of events records to bronze."""
        self.batch += 1
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        rows: list[Any] = [
            (TOPIC, 0, self.batch * 1_000_000 + n, at, 1, None, value, [], self.batch, at.date())
            for n, value in enumerate(values)
        ]
        rows_frame = self.spark.createDataFrame(rows, BRONZE.schema)
        append(rows_frame, self.root, BRONZE, silver.EVENTS_STREAM, self.batch)

    def maintain(self, *options: str) -> Result:
        return run_command(self.spark, "spark", "maintain", "--lake", self.root, *options)

    def rows(self, table: str) -> Counter[Any]:
        return Counter(map(str, read(self.spark, self.root, table).collect()))

    def live_files(self, table: str) -> set[str]:
        return set(DeltaTable(path(self.root, table)).file_uris())

    def stored_files(self, table: str) -> set[str]:
        return {str(file) for file in Path(path(self.root, table)).glob("*=*/**/*.parquet")}


def close_day(lake: BatchedLake, day: date, read_to: TopicPositions) -> None:
    """Close a day at which nothing is open."""
    nothing = lake.spark.createDataFrame([], "nothing int")
    frames = Frames(**{each.name: nothing for each in fields(Frames)})
    ClosedDays(lake.spark, lake.root).save(day, Balance(frames, read_to), None)


def continue_by_batch(history: LakeHistory, batch: int) -> list[bytes]:
    """Continue a history by a batch, and return its records. A day has two batches."""
    history.now_ms += _DAY_MS if batch and batch % 2 == 0 else 0
    lines = len(history.lines)
    history.continue_randomly(40, batch)
    return history.values(after=lines)
