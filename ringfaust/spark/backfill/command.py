"""`ringfaust spark backfill`: what is done, and what is said."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel
from rich.console import Console

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import suggestion
from ringfaust.kafka.names import backfill_group
from ringfaust.spark.backfill.check import check_rows
from ringfaust.spark.backfill.errors import BadRows, CannotBackfill
from ringfaust.spark.backfill.estimate import estimate
from ringfaust.spark.backfill.mapping import RowMapping, map_rows
from ringfaust.spark.backfill.printing import Plan, tell_outcome, tell_plan
from ringfaust.spark.backfill.profile import Survey, survey
from ringfaust.spark.backfill.progress import Job, job_name, read_marks
from ringfaust.spark.backfill.run import Outcome, write_job
from ringfaust.spark.backfill.source import SPARK_ERRORS, Format, first_line, read_source
from ringfaust.spark.backfill.target import Target, survey_targets
from ringfaust.spark.backfill.write import Writing, by_lane
from ringfaust.spark.session import open_session

ORDER = ("timestamp_ms", "key", "value", "headers")
"""Rows that are equal in all of it make equal records: which goes first cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What is asked for."""

    source: str
    kind: Format
    topic: str
    mapping: RowMapping
    name: str | None = None
    rate: float | None = None
    """Records a second, over all tasks."""
    skip_bad: str | None = None
    """A folder for the rows that make no sense; without one they stop it all."""
    broker_time: bool = False
    """The topic's own stamping of records is accepted."""

    @property
    def default_name(self) -> str:
        """Equal for the same source, mapping and topic."""
        place = self.source if "://" in self.source else os.path.abspath(self.source)
        text = json.dumps([self.kind, place, self.topic, self.mapping.describe()])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_options(
    *,
    source: str,
    kind: str,
    topic: str,
    key: str | None,
    value: str | None,
    timestamp: str | None,
    headers: Sequence[str],
    name: str | None,
    rate: float | None,
    skip_bad: str | None,
    broker_time: bool,
) -> Backfill:
    """The command line's words.

    Raises:
        CannotBackfill: one makes no sense.
    """
    if kind not in list(Format):
        raise CannotBackfill(
            "--format", f"{kind!r}: {suggestion(kind, [each.value for each in Format])}"
        )
    pairs = []
    for text in headers:
        header, equals, expression = text.partition("=")
        if not (header and equals and expression):
            raise CannotBackfill("--header", f"{text!r}: NAME=COLUMN or NAME=SQL would be right")
        pairs.append((header, expression))
    return Backfill(
        source=source,
        kind=Format(kind),
        topic=topic,
        mapping=RowMapping(key=key, value=value, timestamp=timestamp, headers=tuple(pairs)),
        name=name,
        rate=rate,
        skip_bad=skip_bad,
        broker_time=broker_time,
    )


def run(
    worker: WorkerConfig,
    queues: QueuesConfig,
    asked: Backfill,
    *,
    dry_run: bool,
    master: str | None,
) -> None:
    """Do it in a session of its own, and say what was done.

    Raises:
        RingfaustError: see `backfill` and `plan`.
    """
    spark = open_session(f"{worker.application} backfill", master)
    try:
        if dry_run:
            tell_plan(Console(), plan(spark, worker, queues, asked))
        else:
            tell_outcome(Console(), backfill(spark, worker, queues, asked))
    finally:
        spark.stop()


def plan(spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, asked: Backfill) -> Plan:
    """The dry run: what would be written and what would become of it. Writes nothing.

    Raises:
        CannotBackfill: source, mapping or topic do not fit.
    """
    now_ms = time.time_ns() // 1_000_000
    with _checked(spark, worker, queues, asked, now_ms) as (target, checked, found):
        return Plan(
            job=job_name(asked.name, asked.default_name),
            topic=asked.topic,
            found=found,
            queues=estimate(checked.where("fault is null"), queues, now_ms),
            doubts=tuple(_doubts(target, asked, found)),
            rate=asked.rate,
        )


def backfill(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, asked: Backfill
) -> Outcome:
    """Write all rows that are not written yet, each once.

    Raises:
        CannotBackfill: source, mapping or topic do not fit; nothing was written.
        BadRows: some rows make no sense, and are not to be skipped; nothing was written.
        OtherJob: a job of that name was begun with other rows; nothing was written.
        WriteFailed: it stopped on its way; what is committed is there once.
    """
    now_ms = time.time_ns() // 1_000_000
    with _checked(spark, worker, queues, asked, now_ms) as (target, checked, found):
        if found.bad and asked.skip_bad is None:
            raise BadRows(
                found.bad,
                found.examples,
                "Mend them or the mapping; or --skip-bad DIR writes them there and all others to "
                "the topic",
            )
        for doubt in _doubts(target, asked, found):
            raise CannotBackfill("--timestamp", doubt)
        job = _job(worker, asked, target, found)
        ends = {part: count for part, (count, _) in found.slices.items()}
        marks = asyncio.run(read_marks(worker, job, range(target.partitions), verify=True))
        if found.bad and asked.skip_bad is not None:
            _quarantine(checked, f"{asked.skip_bad.rstrip('/')}/{job.name}")
        left = sum(ends.values()) - sum(marks.values())
        if not left:
            return Outcome(
                job=job.name, written=0, before=found.records, skipped=found.bad, seconds=0.0
            )
        lanes = min(len(ends), spark.sparkContext.defaultParallelism)
        writing = Writing(
            worker=worker,
            job=job,
            ends=ends,
            batch_bytes=target.batch_bytes,
            rate=asked.rate / lanes if asked.rate else None,
        )
        rows = _numbered(by_lane(checked.where("fault is null"), lanes))
        return write_job(rows, writing, found.records, found.bad)


@contextmanager
def _checked(
    spark: SparkSession,
    worker: WorkerConfig,
    queues: QueuesConfig,
    asked: Backfill,
    now_ms: int,
) -> Iterator[tuple[Target, DataFrame, Survey]]:
    """The rows as records, judged and counted.

    They are kept on the executors' disks, for they are read twice.
    """
    targets = asyncio.run(survey_targets(worker, queues, [asked.topic], now_ms))
    rows = read_source(spark, asked.source, asked.kind)
    mapped = map_rows(rows, asked.mapping).withColumns(
        {
            "slice": F.lit(-1),
            "position": F.lit(0).cast("long"),
            "topic": F.lit(asked.topic),
            "partition": F.lit(-1),
        }
    )
    checked = check_rows(mapped, targets, queues, now_ms).persist(StorageLevel.DISK_ONLY)
    try:
        try:
            found = survey(checked)
        except SPARK_ERRORS as error:
            raise CannotBackfill(
                "SOURCE", f"cannot be read to its end: {first_line(error)}"
            ) from error
        yield targets[asked.topic], checked, found
    finally:
        checked.unpersist()


def _doubts(target: Target, asked: Backfill, found: Survey) -> Iterator[str]:
    """What would spoil the original times."""
    if asked.mapping.timestamp is None:
        return
    topic = target.topic
    if target.is_broker_time:
        if not asked.broker_time:
            yield (
                f"the brokers stamp the records of {topic} themselves "
                "(message.timestamp.type=LogAppendTime), so the original times would be lost: set "
                "the topic to CreateTime for the time of the backfill, or give --broker-time, and "
                "the rows are written in the order of their times, but with those of the brokers"
            )
    elif found.earliest_ms is not None and found.earliest_ms < target.kept_from_ms:
        yield (
            f"{topic} keeps records from {target.kept_from_ms} ms on (its retention.ms), but the "
            f"first is of {found.earliest_ms} ms: the brokers may delete such before a worker has "
            "read them. Set retention.ms=-1 for the time of the backfill"
        )


def _job(worker: WorkerConfig, asked: Backfill, target: Target, found: Survey) -> Job:
    name = job_name(asked.name, asked.default_name)
    return Job(
        name=name,
        group=backfill_group(worker.application, name),
        marks_topic=target.topic,
        fingerprint=found.fingerprint(target.topic, target.partitions),
        about=(
            f"{found.records:,} rows of {asked.kind} {asked.source} {asked.mapping.describe()} to "
            f"{target.topic}, {target.partitions} partitions"
        ),
    )


def _numbered(rows: DataFrame) -> DataFrame:
    """Each slice in its order, numbered from 1."""
    order = Window.partitionBy("lane", "slice").orderBy(*ORDER)
    return rows.withColumn("position", F.row_number().over(order).cast("long"))


def _quarantine(checked: DataFrame, path: str) -> None:
    """Write the bad rows, in place of what an earlier run has left there."""
    bad = checked.where("fault is not null").select(
        "what", "fault", "topic", "key", "value", "headers", "timestamp_ms"
    )
    bad.coalesce(1).write.mode("overwrite").parquet(path)
