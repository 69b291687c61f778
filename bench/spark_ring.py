"""`make bench-spark-ring`: the rings as a Spark job, compared to jobs that do no ring work.

64 full rings of 1,000 in 8 partitions, no consumer, 200-byte records: each message is added, evicts
another and writes two events. The baselines read the same topic, group it the same way, and use
`transformWithStateInPandas` with the same state store and the same writer. `nothing` drops the
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
from ringfaust.config.applied import InUse
from ringfaust.config.topics import create_topics
from ringfaust.processor.outbox import Outputs
from ringfaust.protocol import headers as h
from ringfaust.protocol.events import LINES_PER_RECORD
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import Role
from ringfaust.spark.options import RingOptions
from ringfaust.spark.ring import job
from ringfaust.spark.ring.writer import (
    OutputTarget,
    Part,
    Place,
    RingWriter,
    claim_outputs,
    new_batches,
)
from ringfaust.spark.session import open_session
from ringfaust.spark.vendor import current_batch
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

_EVICTED = [
    (h.QUEUE, b"rings.56"), (h.ID, b"orders/0/16999"), (h.SEQUENCE, b"2125"), (h.PRIORITY, b"4"),
    (h.ENQUEUED_MS, b"1760000000000"), (h.SOURCE, b"orders/0/16999"), (h.REASON, b"overflow"),
    (h.CAUSE, b"orders/0/24999"), (h.RING_SIZE, b"1000"), (h.READY, b"1000"),
    (h.TIME_MS, b"1760000000000"), (h.AGE_MS, b"0"), (h.HANDOVERS, b"0"),
]  # fmt: skip
"""An evicted record's headers."""
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
    """Keeps no state, and writes the result of `outputs` for each frame, exactly once."""

    def __init__(
        self,
        target: OutputTarget,
        shuffle_keys: Sequence[int],
        outputs: Callable[[pd.DataFrame, RecordBatches], None],
    ) -> None:
        self._target = target
        self._partitions = {key: partition for partition, key in enumerate(shuffle_keys)}
        self._outputs = outputs
        self._writer: RingWriter | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        partition = self._partitions[int(key[0])]
        self._writer = self._writer or RingWriter(self._target, partition % self._target.tasks)
        for number, frame in enumerate(rows):
            written = new_batches()
            self._outputs(frame, written)
            outputs: Outputs[RecordBatches] = (
                {(Role.EVICTED, None): written} if len(written) else {}
            )
            place = Place(current_batch(), 0, number)
            self._writer.write(Part(partition, place, outputs, {}))
        return iter(())

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _nothing(frame: pd.DataFrame, written: RecordBatches) -> None:
    pass


def _copy(frame: pd.DataFrame, written: RecordBatches) -> None:
    for key, value in zip(frame["key"], frame["value"], strict=True):
        written.append((key, value, []))


def _same(frame: pd.DataFrame, written: RecordBatches) -> None:
    """As many records, headers and bytes as the rings write."""
    for key, value in zip(frame["key"], frame["value"], strict=True):
        written.append((key, value, _EVICTED))
    for _ in range(-(-2 * len(frame) // LINES_PER_RECORD)):
        written.append((None, _LINES, []))


BASELINES: dict[str, Callable[[pd.DataFrame, RecordBatches], None]] = {
    "nothing": _nothing,
    "copy": _copy,
    "same": _same,
}


async def _prepare(folder: Path, servers: str) -> None:
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
    settings = RingOptions(
        checkpoint=str(folder / f"{kind}-{round_}"), trigger_ms=0, batch_records=BATCH, tasks=2
    )
    worker, queues = load(folder)
    target = OutputTarget(
        worker=worker, query=settings.checkpoint, tasks=settings.tasks, inputs=frozenset()
    )
    asyncio.run(claim_outputs(target, has_begun=False))
    patched: Any = job
    operator = patched.RingOperator
    if kind != "ring":
        patched.RingOperator = lambda _, target, keys: Baseline(target, keys, BASELINES[kind])
    try:
        return _rate(
            job.start_job(spark, worker, InUse(queues, queues), settings, starts=[], target=target)
        )
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
        f"median: {of_same:.2f} of writing as much (goal {GOAL}), {of_copy:.2f} of a copy, "
        f"{of_nothing:.2f} of doing nothing"
    )
    if of_same < GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
