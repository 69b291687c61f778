"""`make bench-spark-ring`: the rings as a Spark job, compared to jobs that do no ring work.

64 full rings of 1,000 in 8 partitions, no consumer, 200-byte records: each message is added, evicts
another and writes two events. The baselines read the same topic, group it the same way, and use
`transformWithStateInPandas` with the same state store and the same sink. `nothing` drops the
records, `copy` forwards them, and `same` writes as much as the rings do (for each record one with
the headers of an evicted one, and two event lines) without deciding anything. Spark's own progress
times all micro-batches but the first.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from aiokafka import AIOKafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from rich.console import Console
from rich.table import Table

from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol.events import LINES_PER_RECORD
from ringfaust.spark.columns import HEADER_COLUMNS, LAYOUTS
from ringfaust.spark.ring import job
from ringfaust.spark.session import open_session
from ringfaust.testing.broker import EmbeddedBroker

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

_EVICTED = (
    b"rings.56", b"orders/0/16999", b"2125", b"4", b"1760000000000", b"orders/0/16999", b"overflow",
    b"orders/0/24999", b"1000", b"1000", b"1760000000000", b"0", b"0",
)  # fmt: skip
"""Values of an evicted record's headers."""
_TIME_AND_CAUSE = b'"time_ms":1760000000000,"by":"orders/0/24799"}\n'
_TWO_LINES = (
    b'{"step":24800,"event":"added","queue":"rings.56","sequence":3100,"id":"orders/0/24799",'
    b'"source":"orders/0/24799","enqueued_ms":1760000000000,"priority":4,"size_bytes":202,'
    + _TIME_AND_CAUSE
    + b'{"step":24800,"event":"evicted","queue":"rings.56","sequence":2100,"id":"orders/0/16799",'
    b'"reason":"overflow","cause":"orders/0/24799","ready":1000,"ring_size":1000,"age_ms":0,'
    b'"handovers":0,' + _TIME_AND_CAUSE
)
_LINES = _TWO_LINES * (LINES_PER_RECORD // 2)
"""An events record, as the rings write it."""


class Baseline(StatefulProcessor):
    """Keeps no state, and writes the result of `frames` for each frame."""

    def __init__(self, frames: Callable[[pd.DataFrame], list[pd.DataFrame]]) -> None:
        self._frames = frames

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            yield from self._frames(frame)

    def close(self) -> None:
        pass


def _outputs(columns: dict[str, Any], headers: Sequence[bytes] = ()) -> pd.DataFrame:
    """Output rows of the job, all with the same header values."""
    (layout,) = (layout for layout in LAYOUTS if len(layout) == len(headers))
    contents = [*headers, *[None] * (len(HEADER_COLUMNS) - len(headers))]
    return pd.DataFrame(
        {
            **columns,
            "layout": LAYOUTS.index(layout),
            **dict(zip(HEADER_COLUMNS, contents, strict=True)),
            "names": None,
            "contents": None,
        }
    )


def _copy(frame: pd.DataFrame) -> list[pd.DataFrame]:
    columns = {name: frame[name] for name in ("partition", "key", "value")}
    return [_outputs({"topic": ["copied"] * len(frame), **columns})]


def _same(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """As many records, headers and bytes as the rings write."""
    columns = {name: frame[name] for name in ("partition", "key", "value")}
    evicted = _outputs({"topic": ["copied"] * len(frame), **columns}, _EVICTED)
    count = -(-2 * len(frame) // LINES_PER_RECORD)
    events = {
        "topic": ["copied"] * count,
        "partition": frame["partition"].iloc[0],
        "key": None,
        "value": [_LINES] * count,
    }
    return [evicted, _outputs(events)]


BASELINES: dict[str, Callable[[pd.DataFrame], list[pd.DataFrame]]] = {
    "nothing": lambda frame: [],
    "copy": _copy,
    "same": _same,
}


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
    """Rows per second, without the first micro-batch."""
    rows: dict[int, tuple[int, int]] = {}
    deadline = time.monotonic() + DEADLINE_S
    try:
        while sum(count for count, _ in rows.values()) < COUNT:
            if query.awaitTermination(1) or time.monotonic() > deadline:
                raise SystemExit(f"the job ended, or made no progress, after {rows}")
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
    patched: Any = job
    operator = patched.RingOperator
    if kind != "ring":
        patched.RingOperator = lambda *_: Baseline(BASELINES[kind])
    try:
        return _rate(job.start_job(spark, *load(folder), settings, []))
    finally:
        patched.RingOperator = operator


def main() -> None:
    """Run the benchmark on a broker of its own."""
    out = Console()
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="ringfaust-") as name:
        folder = Path(name)
        asyncio.run(_prepare(folder, broker.bootstrap_servers))
        spark = open_session("bench", None, job.SESSION_SETTINGS)
        table = Table("round", *(f"{kind}/s" for kind in (*BASELINES, "ring")))
        for kind in BASELINES:
            table.add_column(f"of {kind}")
        ratios = []
        for round_ in range(ROUNDS):
            *baselines, ring = (run(spark, folder, kind, round_) for kind in (*BASELINES, "ring"))
            ratios.append([ring / rate for rate in baselines])
            figures = [f"{figure:,.0f}" for figure in (*baselines, ring)]
            table.add_row(str(round_ + 1), *figures, *(f"{r:.2f}" for r in ratios[-1]))
        spark.stop()
    out.print(table)
    of_nothing, of_copy, of_same = map(statistics.median, zip(*ratios, strict=True))
    out.print(
        f"median: {of_copy:.2f} of a copy (goal {GOAL}), {of_same:.2f} of writing as much, "
        f"{of_nothing:.2f} of doing nothing"
    )
    if of_copy < GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
