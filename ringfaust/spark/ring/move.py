"""Move rings, with everything they hold, between the worker and the job.

Worker and job keep the same rows, to the byte, along with the positions of the topics they have
read. So a worker's changelog can be a job's first state, and a job's state can become a worker's
changelog. The one that hands over must have stopped, with nothing in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import groupby
from operator import attrgetter

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import running_workers
from ringfaust.kafka.changelog_owner import ChangelogEnd
from ringfaust.kafka.names import (
    partition_transactional_id,
    repartition_transactional_id,
    worker_group,
)
from ringfaust.kafka.offsets import group_offsets, repartition_metadata
from ringfaust.kafka.transactions import TransactionalProducer
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import copied_keys
from ringfaust.protocol.stored_rows import (
    INPUTS_KEY,
    OWNER_KEY,
    POSITIONS_KEY,
    InputState,
    read_inputs,
    read_positions,
    write_inputs,
    write_positions,
)
from ringfaust.spark.files import is_finished, last_planned, planned_offsets
from ringfaust.spark.frames import kept, shuffle_key_of, shuffle_keys
from ringfaust.spark.kafka import read_topics
from ringfaust.spark.ring.checkpoint import log_ends, read_identity, read_topic_ids, record_ends
from ringfaust.spark.ring.job import SHUFFLE_KEY, direct_topics, repartitioned_routes
from ringfaust.spark.ring.micro_batch import is_job_row, waiting_topics
from ringfaust.spark.ring.operator import STATE_VARIABLE
from ringfaust.spark.ring.ownership import other_job, release_rings, rings_owners
from ringfaust.spark.ring.pages import rows_of
from ringfaust.spark.ring.writer import OutputTarget, give_up_outputs, wrote_last
from ringfaust.spark.topic_ids import refuse_recreated

_EARLIEST = -2
_MOVE_TIMEOUT_MS = 900_000
"""Kafka's default limit (`transaction.max.timeout.ms`) for the transaction of one partition."""


class CannotMove(RingfaustError):
    """The rings cannot move now. Nothing was changed; the text says what to do first."""


_refuse_recreated = partial(
    refuse_recreated,
    reader="the worker",
    remedy=(
        "Start the workers once more: they report what is missing. Then stop them, and try again"
    ),
    refusal=CannotMove,
)


async def refuse_if_running(worker: WorkerConfig) -> None:
    """Raise CannotMove if a worker of the application runs."""
    if members := await running_workers(worker.brokers()):
        whose = ", ".join(f"{each.client_id} at {each.host}" for each in members[:3])
        raise CannotMove(
            f"{worker_group(worker.application)} still has running workers ({len(members)}): stop "
            f"them all first ({whose}). A killed worker counts until its session times out after "
            f"{worker.session_timeout_ms} ms"
        )


# --- from the worker to the job -------------------------------------------------------------------


def worker_state(spark: SparkSession, worker: WorkerConfig) -> DataFrame:
    """The rows of the worker's changelog: queue_partition, row_key, row_value."""
    records = read_topics(spark, worker, [worker.topic(Role.CHANGELOG)])
    keys = [F.col("partition").alias("queue_partition"), F.col("key").alias("row_key")]
    last = records.groupBy(*keys).agg(F.max_by("value", "offset").alias("row_value"))
    is_owner = F.col("row_key") == F.lit(OWNER_KEY)
    return last.where(F.col("row_value").isNotNull() & ~is_owner)


def worker_offsets(
    state: DataFrame, worker: WorkerConfig, queues: QueuesConfig
) -> dict[str, dict[str, int]]:
    """The worker's position in each topic, by topic and partition."""
    asyncio.run(refuse_if_running(worker))
    positions: dict[int, Mapping[str, int]] = {}
    for row in state.where(F.col("row_key").isin(POSITIONS_KEY, INPUTS_KEY)).collect():
        if bytes(row.row_key) == POSITIONS_KEY:
            positions[row.queue_partition] = read_positions(bytes(row.row_value))
        else:
            inputs = read_inputs(bytes(row.row_value))
            ids = {topic: state.topic_id for topic, state in inputs.items()}
            asyncio.run(_refuse_recreated(worker, ids, ids))
    partitions = range(worker.partitions)
    found: dict[str, dict[str, int]] = {
        topic: {str(p): positions.get(p, {}).get(topic, _EARLIEST) for p in partitions}
        for topic in direct_topics(worker, queues)
    }
    return found | asyncio.run(_repartitioned_offsets(worker, queues, positions))


async def _repartitioned_offsets(
    worker: WorkerConfig, queues: QueuesConfig, positions: Mapping[int, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """How far the worker has repartitioned its topics; it must have processed all of that."""
    topics = [route.topic for route in repartitioned_routes(worker, queues)]
    if not topics:
        return {}
    client = worker.client_options()
    repartition_topic = worker.topic(Role.HOP)
    ends = await record_ends(client, [repartition_topic])
    for partition, end in ends.get(repartition_topic, {}).items():
        at = positions.get(partition, {}).get(repartition_topic, 0)
        if at < end:
            raise CannotMove(
                f"the worker has not processed offsets {at} to {end - 1} of {repartition_topic}, "
                f"partition {partition}: start it again until it has, then stop it"
            )
    tps = await log_ends(client, topics)
    offsets = await group_offsets(client, worker_group(worker.application), tps)
    begins: dict[str, dict[str, int]] = {}
    for topic, partition in tps:
        at, committed = _EARLIEST, offsets.get((topic, partition))
        if committed:
            await _refuse_recreated(worker, [topic], {topic: committed.topic_id})
            at = committed.offset
            # Before the topic was repartitioned, this may have lagged behind the state.
            if not committed.is_repartitioned:
                at = max(at, positions.get(partition, {}).get(topic, 0))
        begins.setdefault(topic, {})[str(partition)] = at
    return begins


# --- from the job to the worker -------------------------------------------------------------------


def move_to_worker(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, checkpoint: str
) -> int:
    """Write the state of a stopped job to the worker's changelog. Returns the number of rows.

    Raises:
        CannotMove: the job has not finished its last micro-batch, a worker runs, the job does not
            have the rings, or records wait for a paused queue.
    """
    asyncio.run(refuse_if_running(worker))
    job = read_identity(spark, checkpoint)
    if job is None or (job.application, job.partitions) != (worker.application, worker.partitions):
        raise CannotMove(f"{checkpoint} is not a checkpoint of a ring job of {worker.application}")
    target = OutputTarget(worker=worker, query=job.query, tasks=job.tasks, inputs=frozenset())
    ends = _refuse_if_not_owner(worker, checkpoint, target)
    planned = last_planned(spark, checkpoint)
    if planned < 0 and any(end.job for end in ends):
        # It took them over and has never begun. The changelog has all that they hold.
        _shut_out(spark, checkpoint, target, planned)
        release_rings(worker)
        return 0
    if planned < 0 or not is_finished(spark, checkpoint):
        raise _unfinished(checkpoint)
    offsets = planned_offsets(spark, checkpoint, planned)
    ids = read_topic_ids(spark, worker, checkpoint).known
    repartitioned = {route.topic for route in repartitioned_routes(worker, queues)}
    known = worker_state(spark, worker)
    # Kept on the executors' disks: the driver holds the pages of one task at a time.
    with kept(_read_pages(spark, checkpoint), on_disk=True) as pages:
        _refuse_if_waiting(pages, repartitioned)
        _shut_out(spark, checkpoint, target, planned)
        keys = shuffle_keys(spark, job.partitions, job.tasks)
        # While the job still has the rings: no worker copies again what the job has read.
        repartitioned_to = {topic: at for topic, at in offsets.items() if topic in repartitioned}
        asyncio.run(_commit_repartitioned(worker, repartitioned_to, ids))
        # A partition moves in one transaction: one that an earlier run has moved may have gone on.
        left = {n for n, end in enumerate(ends) if end.job} or {*range(worker.partitions)}
        read = {topic: offsets[topic] for topic in offsets.keys() - repartitioned}
        return _write_changelogs(worker, pages, known, keys, ids, read=read, left=left)


def _refuse_if_not_owner(
    worker: WorkerConfig, checkpoint: str, target: OutputTarget
) -> list[ChangelogEnd]:
    """Check that the job of the checkpoint has the rings, or some that were not moved yet."""
    ends = asyncio.run(rings_owners(worker))
    has_some = any(end.job and end.job.query == target.query for end in ends)
    is_older = not any(end.job for end in ends) and asyncio.run(wrote_last(target))
    if other_job(ends, target.query) or not (has_some or is_older):
        raise CannotMove(
            f"the rings of {worker.application} were continued since {checkpoint} was used last, "
            "by workers or from another checkpoint: moving them would lose what happened since"
        )
    return ends


def _shut_out(spark: SparkSession, checkpoint: str, target: OutputTarget, planned: int) -> None:
    """Let the job write no more, and check that it has planned no micro-batch meanwhile."""
    asyncio.run(give_up_outputs(target))
    if last_planned(spark, checkpoint) != planned:  # a job was running, or paused, until now
        raise _unfinished(checkpoint)


def _unfinished(checkpoint: str) -> CannotMove:
    return CannotMove(
        f"{checkpoint}: the last micro-batch is not finished: run `ringfaust spark ring "
        "--once` with this checkpoint, then try again"
    )


def _read_pages(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The pages of the last committed micro-batch: shuffle_key, number, page."""
    reader = spark.read.format("statestore").option("stateVarName", STATE_VARIABLE)
    return reader.load(checkpoint).selectExpr(
        f"key.{SHUFFLE_KEY} AS shuffle_key", "user_map_key.number", "user_map_value.page"
    )


def _refuse_if_waiting(pages: DataFrame, repartitioned: set[str]) -> None:
    """Check that no record of a repartitioned topic waits for a paused queue.

    Waiting records of other topics do no harm: the worker reads them again.
    """
    waiting: set[str] = set()
    for row in pages.toLocalIterator():
        waiting |= waiting_topics(rows_of(row.number, bytes(row.page))) & repartitioned
    if waiting:
        raise CannotMove(
            f"records of {', '.join(sorted(waiting))} wait for a paused queue: resume it, let the "
            "job process them, then stop the job"
        )


def _write_changelogs(
    worker: WorkerConfig,
    pages: DataFrame,
    known: DataFrame,
    keys: Sequence[int],
    ids: Mapping[str, str],
    *,
    read: Mapping[str, Mapping[str, int]],
    left: Set[int],
) -> int:
    """Replace the rows of the partitions that are left to move. Returns the number of rows.

    All rows are sorted once, by partition; of each, the old keys come before the new pages. Of a
    partition without records the job has no page, and old rows are from before a `--take-over`.
    """
    partitions = {key: partition for partition, key in enumerate(keys)}
    old = known.select(shuffle_key_of(keys, "queue_partition").alias("shuffle_key"), "row_key")
    rows = old.unionByName(pages, allowMissingColumns=True)
    rows = rows.repartition("shuffle_key").sortWithinPartitions("shuffle_key", "number")
    written, moved = 0, set()
    for key, of in groupby(rows.toLocalIterator(), attrgetter("shuffle_key")):
        if (number := partitions[key]) in left:
            at = {topic: ends[str(number)] for topic, ends in read.items() if str(number) in ends}
            changelog = _Changelog(of, ids, at)
            asyncio.run(_write_changelog(worker, number, changelog))
            written += changelog.count
            moved.add(number)
    release_rings(worker, left - moved)
    return written


class _Changelog:
    """The new rows of one partition, read while they are written.

    The rows are first the keys of the old rows, then the pages. `ids` are those of the topics that
    the job has read (R111), and `read` says how far, for a partition without pages.
    """

    def __init__(
        self, rows: Iterator[Row], ids: Mapping[str, str], read: Mapping[str, int]
    ) -> None:
        self._rows = rows
        self._ids = ids
        self._read = read
        self.count = 0
        """Number of rows so far."""
        self.positions: dict[str, int] = {}
        """By topic or copied partition, the next offset to read; known after the last row."""

    def offsets(self) -> dict[str, int]:
        """Those of topics, for the group: brokers do not know copied partitions by these names."""
        copied = {*copied_keys(self.positions)}
        return {topic: at for topic, at in self.positions.items() if topic not in copied}

    def rows(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Delete all old rows, then write the new ones: the last row of a key counts."""
        yield OWNER_KEY, None
        inputs: dict[str, InputState] = {}
        for row in self._rows:
            if row.page is None:
                yield bytes(row.row_key), None
                continue
            for key, value in rows_of(row.number, bytes(row.page)).items():
                if is_job_row(key):
                    continue
                if key == INPUTS_KEY:
                    inputs |= read_inputs(value)
                    continue
                if key == POSITIONS_KEY:
                    self.positions.update(read_positions(value))
                self.count += 1
                yield key, value
        if self._read and not self.positions:
            self.positions.update(self._read)
            self.count += 1
            yield POSITIONS_KEY, write_positions(self.positions)
        for topic in self.positions.keys() & self._ids.keys():
            inputs[topic] = inputs.get(topic, InputState())._replace(topic_id=self._ids[topic])
        if inputs:
            self.count += 1
            yield INPUTS_KEY, write_inputs(inputs)


async def _write_changelog(worker: WorkerConfig, partition: int, changelog: _Changelog) -> None:
    """Replace the rows of a partition, in one transaction with the partition's positions."""
    async with TransactionalProducer(
        worker.application,
        partition,
        {Role.CHANGELOG: worker.topic(Role.CHANGELOG)},
        worker.client_options(),
        partition_transactional_id(worker.application, partition),
        timeout_ms=_MOVE_TIMEOUT_MS,
    ) as committer:
        await committer.commit_rows(changelog.rows(), changelog.offsets)


async def _commit_repartitioned(
    worker: WorkerConfig, offsets: Mapping[str, Mapping[str, int]], ids: Mapping[str, str]
) -> None:
    """Commit where the worker continues with the topics that it repartitions."""
    for topic, number, at in ((topic, int(n), of[n]) for topic, of in offsets.items() for n in of):
        name = repartition_transactional_id(worker.application, topic, number)
        metadata = repartition_metadata(ids[topic]) if topic in ids else ""
        async with TransactionalProducer(
            worker.application, number, {}, worker.client_options(), name
        ) as committer:
            await committer.commit({}, [], {topic: at}, metadata)
