"""`ringfaust spark redrive`: dead or evicted messages of the lake go back to their topics (R43).

Progress is kept as offsets of the dead or evicted topic, like that of a consumer: a message is sent
again only once, and the next run finds the messages that died since.
"""

from __future__ import annotations

import asyncio
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel
from rich.console import Console

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.kafka.names import lake_redrive_group
from ringfaust.protocol.records import Role
from ringfaust.spark.backfill.check import check_rows
from ringfaust.spark.backfill.errors import BadRows
from ringfaust.spark.backfill.profile import profile_rows
from ringfaust.spark.backfill.progress import Job, job_name, read_progress, reset_progress
from ringfaust.spark.backfill.run import WriteResult, write_job
from ringfaust.spark.backfill.show import print_result
from ringfaust.spark.backfill.target import Target, read_targets
from ringfaust.spark.backfill.write import WriteTask, spread_slices
from ringfaust.spark.redrive.messages import is_done, payload_fault, select_messages
from ringfaust.spark.redrive.records import to_records
from ringfaust.spark.redrive.request import LakeRedrivePlan, LakeRedriveRequest
from ringfaust.spark.redrive.show import print_redrive_plan
from ringfaust.spark.session import open_session


def run(
    worker: WorkerConfig,
    queues: QueuesConfig,
    request: LakeRedriveRequest,
    *,
    dry_run: bool,
    master: str | None,
) -> None:
    """Run the redrive, or its dry run, in a session of its own and print the result.

    Raises:
        RingfaustError: see `redrive`.
    """
    spark = open_session(f"{worker.application} redrive", master)
    out = Console()
    try:
        if dry_run:
            print_redrive_plan(out, plan(spark, worker, queues, request), job_of(worker, request))
        else:
            print_result(out, redrive(spark, worker, queues, request))
    finally:
        spark.stop()


def plan(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, request: LakeRedriveRequest
) -> LakeRedrivePlan:
    """The dry run: find which messages a run would send, and where to. Writes nothing.

    Raises:
        CannotBackfill: the condition does not fit the lake, or a topic is missing or has no route.
        OtherJob: a job of that name has another condition.
    """
    with _PreparedMessages(spark, worker, queues, request) as prepared:
        return prepared.plan


def redrive(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, request: LakeRedriveRequest
) -> WriteResult:
    """Send each matching message once, except those that this job sent before.

    Raises:
        CannotBackfill: the condition does not fit the lake, or a topic is missing or has no route.
        OtherJob: a job of that name has another condition.
        BadRows: some messages would reach no queue; nothing was written.
        WriteFailed: the write stopped early; everything it committed is written once.
    """
    with _PreparedMessages(spark, worker, queues, request) as prepared:
        found, profile = prepared.plan, prepared.plan.profile
        if profile.bad:
            raise BadRows(
                profile.bad,
                profile.examples,
                "Exclude them with --where, or use --to-topic",
            )
        written, seconds = 0, 0.0
        if profile.records:
            if request.again:
                asyncio.run(reset_progress(worker, prepared.job, profile.last))
            tasks = min(len(profile.last), spark.sparkContext.defaultParallelism)
            task = WriteTask(
                worker=worker,
                job=prepared.job,
                ends=profile.last,
                batch_bytes=min(target.batch_bytes for target in prepared.targets.values()),
                rate=request.rate / tasks if request.rate else None,
            )
            rows = spread_slices(prepared.checked, tasks).sortWithinPartitions("slice", "position")
            result = write_job(rows, task, profile.records, found.over_limit)
            written, seconds = result.written, result.seconds
        return WriteResult(
            job=prepared.job.name,
            written=written,
            already_written=found.already_sent,
            skipped=found.over_limit,
            seconds=seconds,
        )


def job_of(worker: WorkerConfig, request: LakeRedriveRequest) -> Job:
    """The job that writes this request.

    Raises:
        CannotBackfill: the name is invalid.
    """
    name = job_name(request.name, request.fingerprint)
    return Job(
        name=name,
        group=lake_redrive_group(worker.application, name),
        progress_topic=worker.topic(Role(request.role)),
        fingerprint=request.fingerprint,
        about=request.about,
    )


class _PreparedMessages:
    """The messages as checked and counted records; Spark keeps them until the `with` ends."""

    def __init__(
        self,
        spark: SparkSession,
        worker: WorkerConfig,
        queues: QueuesConfig,
        request: LakeRedriveRequest,
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.job = job_of(worker, request)
        self._messages = select_messages(spark, request).persist(StorageLevel.DISK_ONLY)
        messages = self._messages
        slices = [row[0] for row in messages.select("slice").distinct().collect()]
        progress = (
            asyncio.run(read_progress(worker, self.job, slices, verify=True)) if slices else {}
        )
        done = is_done({} if request.again else progress)
        over_limit = F.col("redrives") >= request.max_redrives
        counts = messages.select(F.count_if(done), F.count_if(~done & over_limit)).collect()[0]
        left = messages.where(~done & ~over_limit)
        topics = [row[0] for row in left.select("topic").distinct().collect()]
        self.targets: dict[str, Target] = {}
        if topics:
            self.targets = asyncio.run(
                read_targets(worker, queues, topics, now_ms, option="--to-topic")
            )
        left = left.withColumn("fault", payload_fault(left, request.role, queues))
        records = to_records(left, self.targets, keeps_topic=request.to_topic is None)
        self.checked = check_rows(records, self.targets, queues, now_ms)
        self.checked.persist(StorageLevel.DISK_ONLY)
        by_queue = self.checked.where("fault is null").groupBy("topic", "queue").count().collect()
        self.plan = LakeRedrivePlan(
            profile=profile_rows(self.checked),
            queues={(row[0], row[1]): row[2] for row in by_queue},
            already_sent=counts[0],
            over_limit=counts[1],
        )

    def __enter__(self) -> _PreparedMessages:
        return self

    def __exit__(self, *_: object) -> None:
        self.checked.unpersist()
        self._messages.unpersist()
