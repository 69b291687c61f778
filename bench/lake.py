"""`make bench-lake`: the lake of the events topic, compared to a bare copy to Delta.

The lines are those of full rings under load: each message is added and evicts another. Midnight is
among them, so gold closes a day with all its messages. All read the same topic with the same batch
limit, alternately, each into a folder of its own.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from itertools import islice

from aiokafka import AIOKafkaProducer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.event_lines import event_lines
from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.protocol.events import record_texts
from ringfaust.protocol.records import Role
from ringfaust.spark.kafka import stream_topics
from ringfaust.spark.lake import stream as lake
from ringfaust.spark.lake.tables import read
from ringfaust.spark.session import open_session
from ringfaust.testing.broker import EmbeddedBroker

LINES = 1_000_000
WARM_LINES = 40_000
PARTITIONS = 4
ROUNDS = 3
GOAL = 0.27
"""Of a bare copy, with gold."""
FROM_MS = 1_760_054_400_000 - 5_000
"""Five seconds before midnight: the lines cover ten."""
TINY_LINES = 400


async def _fill(worker: WorkerConfig, lines: int) -> None:
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


def _copy(spark: SparkSession, worker: WorkerConfig, folder: str, most: int) -> float:
    """Seconds that Spark's own Kafka source and Delta sink take."""
    began = time.perf_counter()
    rows = stream_topics(
        spark, worker, [worker.topic(Role.EVENTS)], {"maxOffsetsPerTrigger": str(most)}
    )
    writer = rows.writeStream.format("delta").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{folder}/checkpoint").start(
        f"{folder}/copy"
    ).awaitTermination()
    return time.perf_counter() - began


def _lake(spark: SparkSession, worker: WorkerConfig, folder: str, gold: bool) -> float:
    """Seconds that the lake takes, with or without gold. Not counted: creating tables."""
    session = lake.lake_session(spark, folder, worker)
    events, _ = lake.streams(folder, worker, with_gold=gold)
    began = time.perf_counter()
    lake.start(session, folder, worker, events, once=True).awaitTermination()
    return time.perf_counter() - began


def _tiny_batch(spark: SparkSession, worker: WorkerConfig, folder: str) -> float:
    """Seconds of a batch of a single record, in a lake that has read the rest."""
    asyncio.run(_send(worker, TINY_LINES, 1, FROM_MS + 10_000))  # of the last day
    session = lake.lake_session(spark, folder, worker)
    query = lake.start(session, folder, worker, lake.streams(folder, worker)[0], once=True)
    query.awaitTermination()
    return float(query.recentProgress[0]["durationMs"]["triggerExecution"]) / 1000


def _measure(servers: str, out: Console) -> float:
    spark = open_session("bench lake", "local[2]")
    warm = WorkerConfig(application="warm", bootstrap_servers=servers)
    worker = WorkerConfig(application="bench", bootstrap_servers=servers)
    asyncio.run(_fill(warm, WARM_LINES))
    asyncio.run(_fill(worker, LINES))
    table = Table("round", "copy lines/s", "bronze + silver", "with gold", "of the copy")
    shares = []
    with tempfile.TemporaryDirectory(prefix="ringfaust-bench-") as folder:
        most = lake.streams(folder, worker)[0].max_records
        _copy(spark, warm, f"{folder}/warm-copy", most)
        _lake(spark, warm, f"{folder}/warm-lake", gold=True)
        for round_ in range(ROUNDS):
            copy = _copy(spark, worker, f"{folder}/copy-{round_}", most)
            silver = _lake(spark, worker, f"{folder}/silver-{round_}", gold=False)
            gold = _lake(spark, worker, f"{folder}/gold-{round_}", gold=True)
            rows = read(spark, f"{folder}/gold-{round_}", "transitions").count()
            if rows != LINES:
                raise SystemExit(f"{rows} transitions of {LINES} lines")
            shares.append(copy / gold)
            figures = [f"{LINES / seconds:,.0f}" for seconds in (copy, silver, gold)]
            table.add_row(str(round_ + 1), *figures, f"{shares[-1]:.2f}")
        tiny = _tiny_batch(spark, worker, f"{folder}/gold-{ROUNDS - 1}")
    spark.stop()
    out.print(table)
    out.print(f"a batch of {TINY_LINES} lines: {tiny:.1f} s")
    return statistics.median(shares)


def main() -> None:
    """Run the benchmark on a broker of its own."""
    out = Console()
    with EmbeddedBroker() as broker:
        share = _measure(broker.bootstrap_servers, out)
    out.print(f"median: {share:.2f} of a bare copy to Delta (goal {GOAL})")
    sys.exit(share < GOAL)


if __name__ == "__main__":
    main()
