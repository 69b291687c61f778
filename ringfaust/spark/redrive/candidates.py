"""The messages of the lake that a redrive is to send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from ringfaust.kafka.names import lake_redrive_group
from ringfaust.protocol.records import OutgoingRecord, Role
from ringfaust.redrive.lake_jobs import EarlierLakeJob, MaybeSent
from ringfaust.redrive.memory import PAGE_RECORDS, Origin, RedrivenPage
from ringfaust.redrive.plan import RedriveContext, read_jobs, read_pages
from ringfaust.redrive.send import Redriven, share
from ringfaust.spark.backfill.check import check_rows
from ringfaust.spark.backfill.errors import CannotBackfill, OtherJob
from ringfaust.spark.backfill.job import JobProfile, profile_rows
from ringfaust.spark.backfill.target import Target, read_targets
from ringfaust.spark.errors import SPARK_ERRORS, first_line
from ringfaust.spark.redrive.records import (
    LakeRedriveRequest,
    payload_fault,
    select_messages,
    to_records,
)
from ringfaust.times import wall_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRedrivePlan:
    """The messages that match the condition."""

    profile: JobProfile
    """Those that no redrive has sent yet and that are below the limit."""
    queues: Mapping[tuple[str, str], int]
    """Number of messages by target topic and queue."""
    already_sent: int
    """Number of messages that a redrive has sent before."""
    over_limit: int
    """Number of messages that were redriven too often."""


class LakeCandidates:
    """The messages of a request, as checked and counted records to send, by page.

    Spark keeps them until `close`. They can be iterated more than once.
    """

    def __init__(self, spark: SparkSession, request: LakeRedriveRequest) -> None:
        worker, queues, now_ms = request.worker, request.queues, wall_ms()
        self._request = request
        self.context = RedriveContext.of(worker, queues, request.earlier)
        self._topic = worker.topic(Role(request.options.role))
        self._messages = select_messages(spark, request).persist(StorageLevel.DISK_ONLY)
        messages = self._messages
        self._evaluate_condition()
        self._jobs = asyncio.run(read_jobs(self.context, self._topic))
        self._earlier = self._earlier_self()
        is_sent = F.lit(False) if request.options.again else self._is_sent()
        over_limit = F.col("redrives") >= request.options.max_redrives
        counted = messages.select(F.count_if(is_sent), F.count_if(~is_sent & over_limit))
        ((already_sent, left_out),) = counted.collect()
        left = messages.where(~is_sent & ~over_limit)
        topics = [row[0] for row in left.select("topic").distinct().collect()]
        targets: dict[str, Target] = {}
        if topics:
            targets = asyncio.run(read_targets(worker, queues, topics, now_ms, "--to-topic"))
        left = left.withColumn("fault", payload_fault(left, request.options.role, self.context))
        records = to_records(left, targets, keeps_topic=request.options.to_topic is None)
        self._checked = check_rows(records, targets, queues, now_ms)
        self._checked.persist(StorageLevel.DISK_ONLY)
        by_queue = self._checked.where("fault is null").groupBy("topic", "queue").count().collect()
        self.plan = LakeRedrivePlan(
            profile=profile_rows(self._checked),
            queues={(row[0], row[1]): row[2] for row in by_queue},
            already_sent=already_sent,
            over_limit=left_out,
        )

    def close(self) -> None:
        """Let Spark forget them."""
        self._checked.unpersist()
        self._messages.unpersist()

    def share_earlier(self) -> None:
        """Add to the memory what this job sent in an earlier version."""
        job = self._earlier
        if job and not job.is_shared:
            # If it sends them again, it may forget at once that it has sent them.
            passed = F.lit(False) if self._request.options.again else _passed(job)
            rows = _by_page(self._messages.where(passed)).select("origin_partition", "offset")
            asyncio.run(share(self.context, job, (self._origin(row) for row in _read(rows))))

    def refuse_maybe_sent(self) -> None:
        """Raise MaybeSent for messages that another job of an earlier version may have sent."""
        if self._request.options.again:
            return
        for job in self._jobs:
            if job is not self._earlier and (count := self._checked.where(_passed(job)).count()):
                raise MaybeSent(job, count)

    def __iter__(self) -> Iterator[Redriven]:
        """What to send, by page."""
        for row in _read(_by_page(self._checked)):
            headers = [(each["name"], _bytes(each["value"])) for each in row["headers"]]
            record = OutgoingRecord(
                row["topic"], _bytes(row["value"]), _bytes(row["key"]), headers, row["partition"]
            )
            yield Redriven(self._origin(row), record)

    def _evaluate_condition(self) -> None:
        """Raise CannotBackfill if the condition fails for a value, such as text that is no number.

        Only what is kept afterwards is computed, so this costs nothing.
        """
        try:
            self._messages.count()
        except SPARK_ERRORS as error:
            text = f"{self._request.options.where!r} fails for some messages: {first_line(error)}"
            raise CannotBackfill("--where", text) from error

    def _earlier_self(self) -> EarlierLakeJob | None:
        name = self._request.job
        group = lake_redrive_group(self._request.worker.application, name)
        job = next((job for job in self._jobs if job.group == group), None)
        if job and job.fingerprint != self._request.fingerprint:
            raise OtherJob(name, job.about, self._request.about)
        return job

    def _is_sent(self) -> Column:
        numbers = [row[0] for row in self._messages.select(_page()).distinct().collect()]
        is_sent = _is_in(asyncio.run(read_pages(self.context, self._topic, numbers)), self._topic)
        return is_sent | _passed(self._earlier) if self._earlier else is_sent

    def _origin(self, row: Row) -> Origin:
        return Origin(self._topic, row["origin_partition"], row["offset"])


def _page() -> Column:
    return F.floor(F.col("offset") / PAGE_RECORDS)


def _by_page(rows: DataFrame) -> DataFrame:
    return rows.orderBy(_page(), "origin_partition", "offset")


def _read(rows: DataFrame) -> Iterator[Row]:
    """Read the rows a Spark partition at a time, because all of them may not fit into memory."""
    return rows.toLocalIterator(prefetchPartitions=True)


def _is_in(pages: Mapping[int, RedrivenPage], topic: str) -> Column:
    """Whether a redrive has sent the message."""

    def has(partition: int, offset: int) -> bool:
        origin = Origin(topic, partition, offset)
        return pages[origin.page].has(origin)

    return F.udf(has, "boolean")("origin_partition", "offset")


def _passed(job: EarlierLakeJob) -> Column:
    """Whether a job of an earlier version has come past the message; see `may_have_sent`."""
    passed = F.lit(False)
    if job.is_shared:
        return passed
    for tp, position in job.positions.items():
        passed |= (F.col("origin_partition") == tp.partition) & (F.col("offset") < position)
    return passed


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
