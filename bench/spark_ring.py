"""`make bench-spark-ring`: the rings as a Spark job, beside jobs of its shape that do nothing.

64 full rings of 1,000 in 8 partitions, no consumer, 200-byte records: each message is added, evicts
another and is told in events. The peers read the same topic, group it the same way and go through
`transformWithStateInPandas` on the same state store: `copy` sends each record on to the same sink,
`nothing` drops them. What is timed is all micro-batches but the first, by Spark's own progress.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from aiokafka import AIOKafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from rich.console import Console
from rich.table import Table

from ringfaust.app.broker import EmbeddedBroker
from ringfaust.app.config import load
from ringfaust.app.topics import create_topics
from ringfaust.spark.ring import job
from ringfaust.spark.session import open_session

COUNT = 800_000
BATCH = 200_000
RINGS = 64
PARTITIONS = 8
ROUNDS = 3
GOAL = 0.6
DEADLINE_S = 300

QUEUES = """
routes: [{topic: orders, queue: "rings.{key}"}]
queues: {"rings.*": {ring_size: 1000}}
"""


class Copy(StatefulProcessor):
    """Sends each record on."""

    def __init__(self, sends: bool) -> None:
        self._sends = sends

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            if self._sends:
                count = len(frame)
                yield pd.DataFrame(
                    {
                        "topic": ["copied"] * count,
                        "partition": frame["partition"],
                        "key": frame["key"],
                        "value": frame["value"],
                        "names": [[]] * count,
                        "contents": [[]] * count,
                    }
                )

    def close(self) -> None:
        pass


async def _prepare(folder: Path, servers: str) -> None:
    for name in ("ring", "copied"):
        text = f"{{application: {name}, partitions: {PARTITIONS}, bootstrap_servers: '{servers}'}}"
        (folder / "worker.yaml").write_text(text)
        (folder / "queues.yaml").write_text(QUEUES.replace("orders", "copied"))
        await create_topics(*load(folder))
    (folder / "queues.yaml").write_text(QUEUES)
    (folder / "worker.yaml").write_text(
        f"{{application: ring, partitions: {PARTITIONS}, bootstrap_servers: '{servers}'}}"
    )
    await create_topics(*load(folder))
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, linger_ms=5, max_batch_size=200_000, enable_idempotence=True
    )
    async with producer:
        for number in range(COUNT):
            ring = number % RINGS
            await producer.send("orders", b"x" * 200, key=b"%d" % ring, partition=ring % PARTITIONS)


def _rate(query: StreamingQuery) -> float:
    """Rows a second of all micro-batches but the first."""
    rows: dict[int, tuple[int, int]] = {}
    deadline = time.monotonic() + DEADLINE_S
    try:
        while sum(count for count, _ in rows.values()) < COUNT:
            if query.awaitTermination(1) or time.monotonic() > deadline:
                raise SystemExit(f"the job ended early, after {rows}")
            for progress in query.recentProgress:
                took_ms = progress["durationMs"]["triggerExecution"]
                rows[progress["batchId"]] = (progress["numInputRows"], took_ms)
    finally:
        query.stop()
    timed = [each for number, each in rows.items() if number and each[0] > BATCH // 2]
    return sum(count for count, _ in timed) / sum(took for _, took in timed) * 1000


def run(spark: SparkSession, folder: Path, kind: str, round_: int) -> float:
    settings = job.JobSettings(
        checkpoint=str(folder / f"{kind}-{round_}"), trigger_ms=0, batch_records=BATCH, tasks=2
    )
    ours = job.RingProcessor
    if kind != "ring":
        job.RingProcessor = lambda *_: Copy(kind == "copy")  # type: ignore[misc,assignment]
    try:
        return _rate(job.start_job(spark, *load(folder), settings, []))
    finally:
        job.RingProcessor = ours  # type: ignore[misc]


def main() -> None:
    """Run it on a broker of its own."""
    out = Console()
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="ringfaust-") as name:
        folder = Path(name)
        asyncio.run(_prepare(folder, broker.bootstrap_servers))
        spark = open_session("bench", None, job.STATE)
        table = Table("round", "nothing/s", "copy/s", "ring/s", "of nothing", "of copy")
        ratios = []
        for round_ in range(ROUNDS):
            nothing, copy, ring = (
                run(spark, folder, kind, round_) for kind in ("nothing", "copy", "ring")
            )
            ratios.append((ring / nothing, ring / copy))
            figures = [f"{figure:,.0f}" for figure in (nothing, copy, ring)]
            table.add_row(str(round_ + 1), *figures, *(f"{r:.2f}" for r in ratios[-1]))
        spark.stop()
    out.print(table)
    of_nothing, of_copy = (statistics.median(each) for each in zip(*ratios, strict=True))
    out.print(f"median: {of_copy:.2f} of a copy (goal {GOAL}), {of_nothing:.2f} of doing nothing")
    if of_copy < GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
