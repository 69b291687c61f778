"""Rings move between the worker and the job with all that they hold: by snapshot, both ways.

Worker and job keep the same rows, to the byte, and with them the positions of the topics that were
read. So a worker's changelog is a job's first state, and a job's state a worker's changelog. Who
gives must have stopped; what was in flight is settled before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import (
    partition_transactional_id,
    repartition_transactional_id,
    worker_group,
)
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.transactions import TransactionalProducer
from ringfaust.processor.processor import POSITIONS_KEY, read_positions
from ringfaust.protocol.records import Role
from ringfaust.spark.kafka import read_topics
from ringfaust.spark.ring.job import hopping_routes, seats, topics_at_home
from ringfaust.spark.ring.micro_batch import is_own, waiting_topics
from ringfaust.spark.ring.pages import Leaves
from ringfaust.spark.ring.starts import log_ends, numbers_in, read_identity, read_text, record_ends

_EARLIEST = -2


class CannotMove(RingfaustError):
    """The rings cannot move now. Nothing was changed; the text says what to do first."""


# --- from the worker to the job -------------------------------------------------------------------


def worker_state(spark: SparkSession, worker: WorkerConfig) -> DataFrame:
    """The rows of the worker's changelog: home, row_key, row_value."""
    records = read_topics(spark, worker, [worker.topic(Role.CHANGELOG)])
    last = records.groupBy(F.col("partition").alias("home"), F.col("key").alias("row_key")).agg(
        F.max_by("value", "offset").alias("row_value")
    )
    return last.where("row_value is not null")


def worker_offsets(
    state: DataFrame, worker: WorkerConfig, queues: QueuesConfig
) -> dict[str, dict[str, int]]:
    """Where the worker has come to, by topic and partition.

    Raises:
        CannotMove: a worker still runs, or has not read all of its hop topic.
    """
    asyncio.run(refuse_if_running(worker))
    rows = state.where(F.col("row_key") == F.lit(POSITIONS_KEY)).collect()
    positions = {row.home: read_positions(bytes(row.row_value)) for row in rows}
    partitions = range(worker.partitions)
    found: dict[str, dict[str, int]] = {
        topic: {str(p): positions.get(p, {}).get(topic, _EARLIEST) for p in partitions}
        for topic in topics_at_home(worker, queues)
    }
    return found | asyncio.run(_forwarded(worker, queues, positions))


async def _forwarded(
    worker: WorkerConfig, queues: QueuesConfig, positions: Mapping[int, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """How far the topics that hop have been forwarded; all of that must have been taken."""
    topics = [route.topic for route in hopping_routes(worker, queues)]
    if not topics:
        return {}
    client = worker.client_options()
    hop = worker.topic(Role.HOP)
    for partition, end in (await record_ends(client, [hop])).get(hop, {}).items():
        at = positions.get(partition, {}).get(hop, 0)
        if at < end:
            raise CannotMove(
                f"{hop}, partition {partition}, has records from offset {at} to {end - 1} that the "
                "worker has not taken: start it again until it has, and stop it then"
            )
    parts = await log_ends(client, topics)
    tps = [(topic, partition) for topic, of in parts.items() for partition in of]
    told = await group_offsets(client, worker_group(worker.application), tps)
    committed = {tp: found.offset for tp, found in told.items()}
    return {
        topic: {str(partition): committed.get((topic, partition), _EARLIEST) for partition in of}
        for topic, of in parts.items()
    }


async def refuse_if_running(worker: WorkerConfig) -> None:
    """See that no worker serves the rings.

    Raises:
        CannotMove: one does, or the brokers cannot tell.
    """
    client = AIOKafkaClient(**worker.client_options())
    group = worker_group(worker.application)
    try:
        await client.bootstrap()
        coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(coordinator, DescribeGroupsRequest([group], False))
        members = [m["client_id"] for told in answer.to_object()["groups"] for m in told["members"]]
    except KafkaError as error:
        raise CannotMove(
            f"the brokers cannot tell whether a worker of {group} runs ({error}): try again"
        ) from error
    finally:
        await client.close()
    if members:
        raise CannotMove(
            f"{len(members)} of the workers of {group} still run: stop them all first. One that "
            f"was killed counts until its session times out, {worker.session_timeout_ms} ms"
        )


# --- from the job to the worker -------------------------------------------------------------------


def move_to_worker(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, checkpoint: str
) -> int:
    """Write the state of a job that has stopped into the worker's changelog; the number of rows.

    Raises:
        CannotMove: the job has not finished its last batch, or a worker runs, or records wait for
            a queue that is not pulled.
    """
    asyncio.run(refuse_if_running(worker))
    job = read_identity(spark, checkpoint)
    if job is None or (job.application, job.partitions) != (worker.application, worker.partitions):
        raise CannotMove(f"{checkpoint} is no checkpoint of a ring job of {worker.application}")
    offsets = _finished_offsets(spark, checkpoint)
    pages = spark.read.format("statestore").option("stateVarName", "pages").load(checkpoint)
    by_seat: dict[int, dict[int, bytes]] = {}
    for row in pages.selectExpr("key.seat", "user_map_key.number", "user_map_value.page").collect():
        by_seat.setdefault(row.seat, {})[row.number] = bytes(row.page)
    states = {
        partition: list(Leaves(_Read(by_seat[seat])).items_from(b""))
        for partition, seat in enumerate(seats(spark, job.partitions, job.tasks))
        if seat in by_seat
    }
    hopping = {route.topic for route in hopping_routes(worker, queues)}
    _refuse_if_waiting(states.values(), hopping)
    state = worker_state(spark, worker).select("home", "row_key").collect()
    known: dict[int, set[bytes]] = {}
    for row in state:
        known.setdefault(row.home, set()).add(bytes(row.row_key))
    asyncio.run(_write(worker, states, known))
    forwarded = {topic: at for topic, at in offsets.items() if topic in hopping}
    asyncio.run(_commit_forwarded(worker, forwarded))
    return sum(map(len, states.values()))


class _Read:
    """Pages to read from."""

    def __init__(self, pages: Mapping[int, bytes]) -> None:
        self._pages = pages

    def get(self, number: int) -> bytes | None:
        return self._pages.get(number)

    def put(self, number: int, page: bytes) -> None:
        raise AssertionError("a snapshot is only read")

    def remove(self, number: int) -> None:
        raise AssertionError("a snapshot is only read")


def is_finished(spark: SparkSession, checkpoint: str) -> bool:
    """Has the job done the last batch that it began, if any?"""
    begun = _last_begun(spark, checkpoint)
    return begun is None or begun in numbers_in(spark, checkpoint, "commits")


def _last_begun(spark: SparkSession, checkpoint: str) -> int | None:
    return max(numbers_in(spark, checkpoint, "offsets"), default=None)


def _finished_offsets(spark: SparkSession, checkpoint: str) -> dict[str, dict[str, int]]:
    """By topic and partition, what the last batch read up to."""
    begun = _last_begun(spark, checkpoint)
    if begun is None or not is_finished(spark, checkpoint):
        raise CannotMove(
            f"{checkpoint}: the last micro-batch was not finished: run `ringfaust spark ring "
            "--once` with this checkpoint, then try again"
        )
    lines = (read_text(spark, checkpoint, f"offsets/{begun}") or "").splitlines()
    sources = [json.loads(line) for line in lines[2:] if line.startswith("{")]
    return {topic: at for source in sources for topic, at in source.items()}


def _refuse_if_waiting(states: Iterable[list[tuple[bytes, bytes]]], hopping: set[str]) -> None:
    """Of a topic that is read directly the worker reads them again; of others it cannot."""
    waiting = {topic for rows in states for topic in waiting_topics(dict(rows))} & hopping
    if waiting:
        raise CannotMove(
            f"records of {', '.join(sorted(waiting))} wait for a queue whose pulling is paused: "
            "resume it, let the job take them, and stop it then"
        )


async def _write(
    worker: WorkerConfig,
    states: Mapping[int, list[tuple[bytes, bytes]]],
    known: Mapping[int, set[bytes]],
) -> None:
    topics: dict[str, str] = {Role.CHANGELOG: worker.topic(Role.CHANGELOG)}
    for partition, rows in states.items():
        kept = [(key, value) for key, value in rows if not is_own(key)]
        gone = known.get(partition, set()) - {key for key, _ in kept}
        writes: list[tuple[bytes, bytes | None]] = [(key, None) for key in gone]
        positions = read_positions(dict(kept).get(POSITIONS_KEY))
        name = partition_transactional_id(worker.application, partition)
        committer = TransactionalProducer(
            worker.application, partition, topics, worker.client_options(), name
        )
        await committer.start()
        try:
            await committer.commit({}, [*writes, *kept], positions)
        finally:
            await committer.stop()


async def _commit_forwarded(worker: WorkerConfig, offsets: Mapping[str, Mapping[str, int]]) -> None:
    for topic, partition, at in _flat(offsets):
        name = repartition_transactional_id(worker.application, topic, partition)
        committer = TransactionalProducer(
            worker.application, partition, {}, worker.client_options(), name
        )
        await committer.start()
        try:
            await committer.commit({}, [], {topic: at})
        finally:
            await committer.stop()


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, int, int]]:
    for topic, of in offsets.items():
        for partition, at in of.items():
            yield topic, int(partition), at
