"""`ringfaust spark redrive`: dead or evicted messages of the lake go back to their topics (R43).

How far it has come is told in offsets of the dead or evicted topic, as a consumer of it would: what
has been sent again is not sent twice, and what has died since is found by the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import suggestion
from ringfaust.kafka.names import lake_redrive_group
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import PART
from ringfaust.spark.backfill.check import check_rows
from ringfaust.spark.backfill.errors import BadRows, CannotBackfill
from ringfaust.spark.backfill.mapping import HEADERS
from ringfaust.spark.backfill.printing import say, tell_outcome
from ringfaust.spark.backfill.profile import Survey, survey
from ringfaust.spark.backfill.progress import Job, job_name, read_marks
from ringfaust.spark.backfill.run import Outcome, write_job
from ringfaust.spark.backfill.source import SPARK_ERRORS, first_line
from ringfaust.spark.backfill.target import Target, survey_targets
from ringfaust.spark.backfill.write import Writing, by_lane
from ringfaust.spark.lake.tables import RECORDS, read
from ringfaust.spark.session import open_session
from ringfaust.spark.vendor import is_deterministic

REDRIVEN_FROM = "x-ringfaust-redriven-from"
"""topic/partition/offset of the dead or evicted record that was sent again."""
MAX_REDRIVES = 5
"""R43."""


class From(StrEnum):
    """Which records of the lake."""

    DEAD = "dead"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """What is asked for."""

    lake: str
    role: From
    where: str
    """SQL over the columns of the lake's `records`."""
    to_topic: str | None = None
    """None: the topic that each came from."""
    name: str | None = None
    rate: float | None = None
    max_redrives: int = MAX_REDRIVES

    @property
    def _parts(self) -> str:
        return json.dumps([self.role, self.where, self.to_topic])

    @property
    def fingerprint(self) -> str:
        """Equal for the same condition and target."""
        return hashlib.sha256(self._parts.encode()).hexdigest()[:12]

    @property
    def about(self) -> str:
        """For people."""
        return f"{self.role} messages where {self.where}, to {self.to_topic or 'their own topics'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The messages that fit the condition."""

    rows: Survey
    """Those that are not sent again yet, and may be."""
    queues: Mapping[tuple[str, str], int]
    """How many go to which topic and queue."""
    before: int
    """Were sent again by an earlier run of this job."""
    looping: int
    """Were sent again too often."""


def read_role(text: str) -> From:
    """Which messages the command line means.

    Raises:
        CannotBackfill: none of those there are.
    """
    if text not in list(From):
        raise CannotBackfill(
            "--from", f"{text!r}: {suggestion(text, [each.value for each in From])}"
        )
    return From(text)


def run(
    worker: WorkerConfig,
    queues: QueuesConfig,
    asked: Redrive,
    *,
    dry_run: bool,
    master: str | None,
) -> None:
    """Do it in a session of its own, and say what was done.

    Raises:
        RingfaustError: see `redrive`.
    """
    spark = open_session(f"{worker.application} redrive", master)
    out = Console()
    try:
        if dry_run:
            _tell_plan(out, plan(spark, worker, queues, asked), job_of(worker, asked))
        else:
            tell_outcome(out, redrive(spark, worker, queues, asked))
    finally:
        spark.stop()


def plan(spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, asked: Redrive) -> Found:
    """The dry run: which messages would be sent again, and where to. Writes nothing.

    Raises:
        CannotBackfill: the condition does not fit the lake, or a topic is not there or not routed.
        OtherJob: a job of that name has another condition.
    """
    with _Rows(spark, worker, queues, asked) as rows:
        return rows.found


def redrive(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, asked: Redrive
) -> Outcome:
    """Send the messages again that this job has not sent again yet, each once.

    Raises:
        CannotBackfill: the condition does not fit the lake, or a topic is not there or not routed.
        OtherJob: a job of that name has another condition.
        BadRows: some would reach no queue; nothing was written.
        WriteFailed: it stopped on its way; what is committed is there once.
    """
    with _Rows(spark, worker, queues, asked) as rows:
        found = rows.found
        if found.rows.bad:
            raise BadRows(
                found.rows.bad,
                found.rows.examples,
                "Leave them out by --where, or give --to-topic",
            )
        if not found.rows.records:
            return Outcome(
                job=rows.job.name, written=0, before=found.before, skipped=found.looping, seconds=0
            )
        lanes = min(len(found.rows.last), spark.sparkContext.defaultParallelism)
        writing = Writing(
            worker=worker,
            job=rows.job,
            ends=found.rows.last,
            batch_bytes=min(target.batch_bytes for target in rows.targets.values()),
            rate=asked.rate / lanes if asked.rate else None,
        )
        ordered = by_lane(rows.checked, lanes).sortWithinPartitions("slice", "position")
        outcome = write_job(ordered, writing, found.rows.records, found.looping)
        return Outcome(
            job=outcome.job,
            written=outcome.written,
            before=found.before,
            skipped=found.looping,
            seconds=outcome.seconds,
        )


def job_of(worker: WorkerConfig, asked: Redrive) -> Job:
    """The job that this is.

    Raises:
        CannotBackfill: the name cannot be one.
    """
    name = job_name(asked.name, asked.fingerprint)
    return Job(
        name=name,
        group=lake_redrive_group(worker.application, name),
        marks_topic=worker.topic(Role(asked.role)),
        fingerprint=asked.fingerprint,
        about=asked.about,
    )


class _Rows:
    """The messages as records, judged and counted; kept until the end of the `with`."""

    def __init__(
        self, spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, asked: Redrive
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.job = job_of(worker, asked)
        self._messages = messages = _messages(spark, asked).persist(StorageLevel.DISK_ONLY)
        slices = [row[0] for row in messages.select("slice").distinct().collect()]
        marks = asyncio.run(read_marks(worker, self.job, slices, verify=True)) if slices else {}
        is_done = _is_done(marks)
        is_looping = F.col("redrives") >= asked.max_redrives
        before, looping = messages.select(
            F.count_if(is_done), F.count_if(~is_done & is_looping)
        ).collect()[0]
        left = messages.where(~is_done & ~is_looping)
        topics = [row[0] for row in left.select("topic").distinct().collect()]
        self.targets = {}
        if topics:
            self.targets = asyncio.run(
                survey_targets(worker, queues, topics, now_ms, option="--to-topic")
            )
        left = left.withColumn("fault", _lacks_payload(left, asked.role, queues))
        shaped = _as_records(left, self.targets, is_home=asked.to_topic is None)
        self.checked = check_rows(shaped, self.targets, queues, now_ms)
        self.checked.persist(StorageLevel.DISK_ONLY)
        counts = self.checked.where("fault is null").groupBy("topic", "queue").count().collect()
        self.found = Found(
            rows=survey(self.checked),
            queues={(row[0], row[1]): row[2] for row in counts},
            before=before,
            looping=looping,
        )

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.checked.unpersist()
        self._messages.unpersist()


def _messages(spark: SparkSession, asked: Redrive) -> DataFrame:
    """Those that fit the condition, with where they go; of one id the last (R43)."""
    try:
        records = read(spark, asked.lake, RECORDS.name)
    except SPARK_ERRORS as error:
        text = f"{asked.lake!r} is no lake, or has no records yet: {first_line(error)}"
        raise CannotBackfill("--lake", text) from None
    # Records that could not be read are no messages, and belong to no queue.
    known = records.where((F.col("role") == asked.role.value) & F.col("sequence").isNotNull())
    try:
        fitting = known.where(asked.where)
        deterministic = is_deterministic(fitting)
    except SPARK_ERRORS as error:
        names = ", ".join(known.columns)
        text = f"{asked.where!r} is no condition: {first_line(error)} Columns: {names}"
        raise CannotBackfill("--where", text) from None
    if not deterministic:
        raise CannotBackfill("--where", "gives other messages each time; leave rand() and such out")
    last = known.groupBy("partition", "queue", "id").agg(F.max("offset").alias("offset"))
    source = F.regexp_extract("source", r"^(.*)/(\d+)/(\d+)$", 1)
    return fitting.join(last, ["partition", "queue", "id", "offset"], "left_semi").withColumns(
        {
            "slice": F.col("partition"),
            "position": F.col("offset") + 1,
            "home": F.regexp_extract("source", r"/(\d+)/\d+$", 1).try_cast("int"),
            "redriven": F.concat_ws("/", "topic", "partition", "offset"),
            "redrives": F.coalesce(_kept(h.REDRIVES).cast("string").try_cast("int"), F.lit(0)),
            "topic": F.lit(asked.to_topic) if asked.to_topic else source,
        }
    )


def _kept(name: str) -> Column:
    """A header of ours that is the message's own; the lake has such in `extra`."""
    return F.col("extra")[name.removeprefix(h.PREFIX).replace("-", "_")]


def _is_done(marks: Mapping[int, int]) -> Column:
    done = F.lit(False)
    for part, position in marks.items():
        done = done | ((F.col("slice") == part) & (F.col("position") <= position))
    return done


def _lacks_payload(messages: DataFrame, role: From, queues: QueuesConfig) -> Column:
    """What is wrong with an evicted record that has not the whole message, else null."""
    no_fault = F.lit(None).cast("string")
    if role is not From.EVICTED:
        return no_fault
    empty = messages.where("value is null").select("queue").distinct().collect()
    catalog = queues.catalog()
    forms = {row[0]: catalog.spec(row[0], {}).evicted_payload for row in empty}
    partial = [queue for queue, form in forms.items() if form != "full"]
    fault = F.concat(
        F.lit("queue "), "queue", F.lit(" is set to evict without payload (evicted_payload): the "),
        F.lit("message is not in the lake, but at its source "), "source",
    )  # fmt: skip
    return F.when(F.col("value").isNull() & F.col("queue").isin(partial), fault).otherwise(no_fault)


def _as_records(messages: DataFrame, targets: Mapping[str, Target], *, is_home: bool) -> DataFrame:
    """The producer's key, value and headers, and of ours what the new message needs.

    Priority, group and id are the old ones; of ttl and delay nothing is left (R43).
    """
    theirs = F.transform(
        F.filter("headers", lambda header: header["key"] != REDRIVEN_FROM),
        lambda header: F.struct(header["key"].alias("name"), header["value"].alias("value")),
    )
    named = [_named_queue(target) for target in targets.values()] if is_home else []
    ours = F.array(
        _header(h.ID, F.col("id")),
        _header(h.PRIORITY, F.col("priority")),
        _header(h.GROUP, F.nullif("group", F.lit(""))),
        _header(h.QUEUE, F.coalesce(F.lit(None), *named)),
        _header(h.PROPERTIES, _kept(h.PROPERTIES)),
        _header(h.REDRIVES, F.col("redrives") + 1),
        _header(REDRIVEN_FROM, F.col("redriven")),
    )
    ours = F.filter(ours, lambda header: header["value"].isNotNull())
    homes = [
        F.when(
            (F.col("topic") == target.topic) & (F.col("home") < target.partitions), F.col("home")
        )
        for target in (targets.values() if is_home else ())
    ]
    return messages.select(
        "slice",
        "position",
        "topic",
        # The partition that it had, however that was chosen; elsewhere the key chooses.
        F.coalesce(*homes, F.lit(-1)).alias("partition"),
        "key",
        "value",
        F.concat(F.coalesce(theirs, F.array().cast(HEADERS)), ours).alias("headers"),
        F.lit(None).cast("long").alias("timestamp_ms"),
        F.when(F.col("fault").isNotNull(), "payload").alias("what"),
        "fault",
    )


def _header(name: str, value: Column) -> Column:
    content = value.cast("string").cast("binary")
    return F.struct(F.lit(name).alias("name"), content.alias("value"))


def _named_queue(target: Target) -> Column:
    """The header that named the queue, where the route's template asks for it; else null.

    It is one of ours, and so is not passed on. But all else that the name was made of is known.
    """
    parts = PART.split(target.queue)
    wanted = f"header:{h.QUEUE}"
    if parts[1::2].count(wanted) != 1:
        return F.lit(None).cast("string")
    at = parts.index(wanted)
    texts = [
        _part(part) if index % 2 else F.lit(part) for index, part in enumerate(parts) if index != at
    ]
    before, after = F.concat_ws("", *texts[:at]), F.concat_ws("", *texts[at:])
    length = F.length("queue") - F.length(before) - F.length(after)
    name = F.substr("queue", F.length(before) + 1, length)
    return F.when(F.col("topic") == target.topic, name)


def _part(part: str) -> Column:
    if part in ("topic", "key"):
        return F.col(part).cast("string")
    name = part.removeprefix("header:")
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def _tell_plan(out: Console, found: Found, job: Job) -> None:
    table = Table("topic", "queue", "messages")
    for (topic, queue), count in sorted(found.queues.items(), key=lambda entry: -entry[1]):
        table.add_row(escape(topic), escape(queue), f"{count:,}")
    out.print(table, highlight=False)
    say(
        out,
        f"{found.rows.records:,} messages would be sent again; {found.before:,} were by this job "
        f"already; {found.looping:,} were sent again too often (--max-redrives).",
    )
    for line in found.rows.examples:
        say(out, f"  {line}")
    say(out, f"Job {job.name}. Nothing was written.")
