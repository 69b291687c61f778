"""`make bench-lake`: the lake of the events topic, compared to a bare copy to Delta.

The lines are those of full rings under load: each message is added and evicts another. Midnight is
among them, so gold closes a day with all its messages. All read the same topic with the same batch
limit, alternately, each into a folder of its own.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from bench.event_lines import event_lines
from bench.processes import tree_cpu_s
from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.protocol.events import record_texts
from ringfaust.protocol.records import Role
from ringfaust.spark.kafka import stream_topics
from ringfaust.spark.lake import silver
from ringfaust.spark.lake import stream as lake
from ringfaust.spark.lake.tables import read
from ringfaust.spark.session import open_session
from ringfaust.testing.broker import EmbeddedBroker

LINES = 1_000_000
WARM_LINES = 40_000
PARTITIONS = 4
ROUNDS = 3
GOAL = 40_000
"""Lines a second, with gold, on two cores without other work."""
FROM_MS = 1_760_054_400_000 - 1_250
"""Before midnight, half of the time that the lines cover: 100 of a partition in each ms."""
TINY_LINES = 400


class Cost(NamedTuple):
    """What a run takes."""

    wall_s: float
    cpu_s: float
    """Of the driver, Spark and its Python workers; the broker's does not count."""


def cost_of(query: Callable[[], StreamingQuery], broker: int) -> Cost:
    """What a query takes until it has read everything. `broker`: its process id."""
    began, began_cpu = time.perf_counter(), tree_cpu_s(without=broker)
    query().awaitTermination()
    return Cost(time.perf_counter() - began, tree_cpu_s(without=broker) - began_cpu)


async def fill(worker: WorkerConfig, lines: int) -> None:
    async with open_admin(worker.brokers()) as admin:
        await admin.create([NewTopic(worker.topic(Role.EVENTS), PARTITIONS, 1, {})])
    await _send(worker, lines, PARTITIONS)


async def _send(worker: WorkerConfig, lines: int, partitions: int, from_ms: int = FROM_MS) -> None:
    topic = worker.topic(Role.EVENTS)
    producer = AIOKafkaProducer(
        bootstrap_servers=worker.bootstrap_servers, max_batch_size=500_000, linger_ms=5
    )
    await producer.start()
    for partition in range(partitions):
        made = list(islice(event_lines(partition, from_ms), lines // partitions))
        for text in record_texts(made):
            await producer.send(topic, text.encode(), partition=partition)
    await producer.stop()


def _copy(
    spark: SparkSession, worker: WorkerConfig, folder: str, most: int
) -> Callable[[], StreamingQuery]:
    """Spark's own Kafka source and Delta sink."""
    rows = stream_topics(
        spark, worker, [worker.topic(Role.EVENTS)], {"maxOffsetsPerTrigger": str(most)}
    )
    writer = rows.writeStream.format("delta").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    return lambda: writer.start(f"{folder}/copy")


def _silver(
    folder: str, topic: str, spark: SparkSession, batch: int, bronze: DataFrame | None
) -> None:
    with silver.written_transitions(spark, folder, topic, batch, bronze):
        pass


def lake_query(
    spark: SparkSession, worker: WorkerConfig, folder: str, *, gold: bool
) -> Callable[[], StreamingQuery]:
    """The lake, with or without gold. Its tables are created before it starts."""
    session = lake.lake_session(spark, folder, worker)
    events = lake.streams(folder, worker)[0]
    if not gold:
        events = replace(events, refine=partial(_silver, folder, worker.topic(Role.EVENTS)))
    return lambda: lake.start(session, folder, worker, events, once=True)


def _tiny_batch(spark: SparkSession, worker: WorkerConfig, folder: str) -> float:
    """Seconds of a batch of a single record, in a lake that has read the rest."""
    asyncio.run(_send(worker, TINY_LINES, 1, FROM_MS + 10_000))  # of the last day
    query = lake_query(spark, worker, folder, gold=True)()
    query.awaitTermination()
    return float(query.recentProgress[0]["durationMs"]["triggerExecution"]) / 1000


def _measure(broker: EmbeddedBroker, out: Console) -> float:
    spark = open_session("bench lake", "local[2]")
    warm = WorkerConfig(application="warm", bootstrap_servers=broker.bootstrap_servers)
    worker = WorkerConfig(application="bench", bootstrap_servers=broker.bootstrap_servers)
    asyncio.run(fill(warm, WARM_LINES))
    asyncio.run(fill(worker, LINES))
    lines = Table("round", "copy lines/s", "bronze + silver", "with gold", "of the copy")
    cores = Table("round", "copy µs/line", "bronze + silver", "with gold", "of the copy")
    rates: list[float] = []
    with tempfile.TemporaryDirectory(prefix="ringfaust-bench-") as folder:
        most = lake.streams(folder, worker)[0].max_records
        for query in (
            _copy(spark, warm, f"{folder}/warm-copy", most),
            lake_query(spark, warm, f"{folder}/warm-lake", gold=True),
        ):
            query().awaitTermination()
        for round_ in range(ROUNDS):
            costs = [
                cost_of(query, broker.pid or 0)
                for query in (
                    _copy(spark, worker, f"{folder}/copy-{round_}", most),
                    lake_query(spark, worker, f"{folder}/silver-{round_}", gold=False),
                    lake_query(spark, worker, f"{folder}/gold-{round_}", gold=True),
                )
            ]
            rows = read(spark, f"{folder}/gold-{round_}", "transitions").count()
            closed = read(spark, f"{folder}/gold-{round_}", "messages").count()
            if rows != LINES or closed < LINES // 2:
                raise SystemExit(f"{rows} transitions of {LINES} lines, {closed} messages")
            copy, _, gold = costs
            rates.append(LINES / gold.wall_s)
            walls = [f"{LINES / each.wall_s:,.0f}" for each in costs]
            lines.add_row(str(round_ + 1), *walls, f"{copy.wall_s / gold.wall_s:.2f}")
            cpus = [f"{each.cpu_s / LINES * 1e6:.1f}" for each in costs]
            cores.add_row(str(round_ + 1), *cpus, f"{copy.cpu_s / gold.cpu_s:.2f}")
        tiny = [_tiny_batch(spark, worker, f"{folder}/gold-{ROUNDS - 1}") for _ in range(ROUNDS)]
    spark.stop()
    out.print(lines)
    out.print(cores)
    out.print(f"a batch of {TINY_LINES} lines: {statistics.median(tiny):.1f} s")
    out.print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return statistics.median(rates)


def main() -> None:
    """Run the benchmark on a broker of its own."""
    out = Console()
    with EmbeddedBroker() as broker:
        rate = _measure(broker, out)
    out.print(f"median with gold: {rate:,.0f} lines/s (goal {GOAL:,})")
    sys.exit(rate < GOAL)


if __name__ == "__main__":
    main()
