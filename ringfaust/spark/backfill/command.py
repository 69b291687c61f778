"""`ringfaust spark backfill`: read options, check the rows, write them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.kafka.names import backfill_group
from ringfaust.spark.applied import in_use
from ringfaust.spark.backfill import show
from ringfaust.spark.backfill.check import check_rows
from ringfaust.spark.backfill.csv_source import read_csv
from ringfaust.spark.backfill.errors import BadRows, CannotBackfill, raised_in_task
from ringfaust.spark.backfill.estimate import estimate
from ringfaust.spark.backfill.job import Job, JobProfile, job_name, profile_rows, read_progress
from ringfaust.spark.backfill.json_source import read_json
from ringfaust.spark.backfill.mapping import RowMapping, map_rows
from ringfaust.spark.backfill.parquet_source import read_parquet
from ringfaust.spark.backfill.show import BackfillPlan, WriteResult
from ringfaust.spark.backfill.target import Target, read_targets
from ringfaust.spark.backfill.write import WriteTask, spread_slices
from ringfaust.spark.errors import SPARK_ERRORS, brief_errors, first_line
from ringfaust.spark.frames import kept
from ringfaust.spark.options import BackfillOptions, Format
from ringfaust.spark.session import open_session
from ringfaust.terminal import Terminal
from ringfaust.times import wall_ms


def read_source(spark: SparkSession, path: str, kind: Format) -> DataFrame:
    """The rows of a file, folder, pattern or Delta table (also `PATH@v7`), their values unchanged.

    A row that cannot be kept has the column `FAULT`; a row of JSON has its `LINE` as well.

    Raises:
        CannotBackfill: the source does not exist or cannot be read.
    """
    # Else `day=007` in the name of a folder would become 7.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        match kind:
            case Format.PARQUET:
                return read_parquet(spark, path)
            case Format.JSON:
                return read_json(spark, path)
            case Format.CSV:
                return read_csv(spark, path)
            case Format.DELTA:
                return spark.read.format("delta").load(path)
    except SPARK_ERRORS as error:
        raise CannotBackfill("SOURCE", f"{path!r} cannot be read: {first_line(error)}") from None


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What to write, and where to."""

    worker: WorkerConfig
    queues: QueuesConfig
    options: BackfillOptions
    mapping: RowMapping

    @property
    def job(self) -> str:
        """Name of the job; unless it is given, equal for the same source, mapping and topic."""
        source = self.options.source
        place = source if "://" in source else os.path.abspath(source)
        text = json.dumps([self.options.kind, place, self.options.topic, self.mapping.describe()])
        return job_name(self.options.name, hashlib.sha256(text.encode()).hexdigest()[:12])


def read_options(
    worker: WorkerConfig, queues: QueuesConfig, options: BackfillOptions
) -> BackfillRequest:
    """Parse the options of the command line.

    Raises:
        CannotBackfill: an option is invalid.
    """
    pairs = []
    for text in options.header or ():
        header, equals, expression = text.partition("=")
        if not (header and equals and expression):
            raise CannotBackfill("--header", f"{text!r}: use NAME=COLUMN or NAME=SQL")
        pairs.append((header, expression))
    mapping = RowMapping(
        key=options.key, value=options.value, timestamp=options.timestamp, headers=tuple(pairs)
    )
    return BackfillRequest(worker, queues, options, mapping)


def run(worker: WorkerConfig, queues: QueuesConfig, options: BackfillOptions) -> None:
    """Run the backfill, or its dry run, in a session of its own and print the result.

    What was applied takes the place of queues.yaml (R128).

    Raises:
        JobFailed: Spark ended the job with an error.
        RingfaustError: see `backfill`.
    """
    request = read_options(worker, queues, options)
    request = replace(request, queues=in_use(worker, queues).queues)
    with open_session(f"{worker.application} backfill", options.master) as spark, brief_errors():
        if options.dry_run:
            show.print_plan(Terminal(), plan(spark, request))
        else:
            show.print_result(Terminal(), backfill(spark, request))


def plan(spark: SparkSession, request: BackfillRequest) -> BackfillPlan:
    """The dry run: find what would be written and what the rings would do. Writes nothing."""
    now_ms = wall_ms()
    with _checked(spark, request, now_ms) as (target, checked, found):
        return BackfillPlan(
            job=request.job,
            topic=request.options.topic,
            profile=found,
            queues=estimate(checked.where("fault is null"), request.queues, now_ms),
            objections=tuple(_objections(target, request, found)),
            rate=request.options.rate,
        )


def backfill(spark: SparkSession, request: BackfillRequest) -> WriteResult:
    """Write each row once, except those that an earlier run of the job wrote.

    Raises:
        CannotBackfill: source, mapping or topic are invalid; nothing was written.
        BadRows: there are bad rows, and no folder to put them in; nothing was written.
        OtherJob: a job of that name was started with other rows; nothing was written.
        WriteFailed: the write stopped early; everything it committed is written once.
    """
    now_ms = wall_ms()
    with _checked(spark, request, now_ms) as (target, checked, found):
        if found.bad and request.options.skip_bad is None:
            raise BadRows(
                found.bad,
                found.examples,
                "Correct the rows or the mapping, or use --skip-bad DIR to write the bad rows to "
                "a folder and all others to the topic",
            )
        for objection in _objections(target, request, found):
            raise CannotBackfill("--timestamp", objection)
        job = _job(request, target, found)
        ends = {part: count for part, (count, _) in found.slices.items()}
        slices = range(target.partitions)
        progress = asyncio.run(read_progress(request.worker, job, slices, verify=True))
        if found.bad and request.options.skip_bad is not None:
            bad = checked.where("fault is not null").select(
                "what", "fault", "topic", "key", "value", "headers", "timestamp_ms"
            )
            folder = f"{request.options.skip_bad.rstrip('/')}/{job.name}"
            try:
                bad.coalesce(1).write.mode("overwrite").parquet(folder)  # replaces an earlier run's
            except SPARK_ERRORS as error:
                text = f"{folder!r} cannot be written: {first_line(error)}"
                raise CannotBackfill("--skip-bad", text) from error
        if sum(ends.values()) == sum(progress.values()):
            return WriteResult(
                job=job.name,
                written=0,
                already_written=found.records,
                skipped=found.bad,
                seconds=0.0,
            )
        tasks = min(len(ends), spark.sparkContext.defaultParallelism)
        write_task = WriteTask(
            worker=request.worker,
            job=job,
            ends=ends,
            batch_bytes=target.batch_bytes,
            rate=request.options.rate / tasks if request.options.rate else None,
        )
        rows = spread_slices(checked.where("fault is null"), tasks)
        return show.write_job(rows, write_task, found.records, found.bad)


@contextmanager
def _checked(
    spark: SparkSession, request: BackfillRequest, now_ms: int
) -> Iterator[tuple[Target, DataFrame, JobProfile]]:
    """The rows as checked and counted records.

    They are read twice, so the executors keep them on disk.
    """
    queues, topic = request.queues, request.options.topic
    targets = asyncio.run(read_targets(request.worker, queues, [topic], now_ms, "--topic"))
    rows = read_source(spark, request.options.source, request.options.kind)
    mapped = map_rows(rows, request.mapping)
    mapped = mapped.withColumns({"topic": F.lit(topic), "partition": F.lit(-1)})
    with kept(check_rows(mapped, targets, queues, now_ms), on_disk=True) as checked:
        try:
            found = profile_rows(checked)
        except SPARK_ERRORS as error:
            if refused := raised_in_task(error):
                raise refused from None
            raise CannotBackfill("SOURCE", f"reading failed: {first_line(error)}") from error
        yield targets[topic], checked, found


def _objections(target: Target, request: BackfillRequest, found: JobProfile) -> Iterator[str]:
    """Reasons why the topic would not keep the original times."""
    if request.mapping.timestamp is None:
        return
    topic = target.topic
    if target.is_broker_time:
        if not request.options.broker_time:
            yield (
                f"the brokers replace the times of records in {topic} "
                "(message.timestamp.type=LogAppendTime), so the original times would be lost: set "
                "the topic to CreateTime during the backfill, or use --broker-time to write the "
                "rows in the order of their times, but with the brokers' times"
            )
    elif found.earliest_ms is not None and found.earliest_ms < target.kept_from_ms:
        yield (
            f"{topic} keeps records from {target.kept_from_ms} ms on (its retention.ms), but the "
            f"oldest row is from {found.earliest_ms} ms: the brokers may delete such records "
            "before a worker reads them. Set retention.ms=-1 during the backfill"
        )


def _job(request: BackfillRequest, target: Target, found: JobProfile) -> Job:
    return Job(
        name=request.job,
        group=backfill_group(request.worker.application, request.job),
        topic=target.topic,
        fingerprint=found.fingerprint(target.topic, target.partitions),
        about=(
            f"{found.records:,} rows of {request.options.kind} "
            f"{request.options.source} "
            f"{request.mapping.describe()} to {target.topic}, {target.partitions} partitions"
        ),
    )
