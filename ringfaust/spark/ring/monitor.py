"""Reports what a ring job has done: on the terminal, as JSON, to Prometheus, and to Kafka."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.status import Status

from ringfaust.config import WorkerConfig
from ringfaust.kafka.names import spark_group
from ringfaust.kafka.offsets import ReadOffsets
from ringfaust.spark.metrics import serve
from ringfaust.spark.ring.writer import COUNTS
from ringfaust.terminal import Terminal

log = logging.getLogger(__name__)

OBSERVED = "rings"
"""Name under which Spark reports the sums of the operator's rows."""
_COMMIT_S = 5.0
"""How often the offsets of repartitioned topics are committed."""


class BatchReport(NamedTuple):
    """One micro-batch, as Spark reports it."""

    batch: int
    seconds: float
    records: int
    lag: int
    """Records that were in the topics and not yet read."""
    state_bytes: int
    dispatched: int
    evicted: int
    dead: int

    @classmethod
    def of(cls, found: dict[str, Any]) -> BatchReport:
        """Take what is needed from a report of Spark."""
        counted = found.get("observedMetrics", {}).get(OBSERVED, {})
        return cls(
            batch=found["batchId"],
            seconds=found["durationMs"].get("triggerExecution", 0) / 1_000,
            records=found["numInputRows"],
            lag=sum(map(_lag, found["sources"])),
            state_bytes=sum(each["memoryUsedBytes"] for each in found["stateOperators"]),
            **{name: counted.get(name) or 0 for name in COUNTS},
        )


def _lag(source: dict[str, Any]) -> int:
    read, latest = source["endOffset"] or {}, source["latestOffset"] or {}
    return sum(
        max(0, end - read.get(topic, {}).get(partition, 0))
        for topic, of in latest.items()
        for partition, end in of.items()
    )


class JobMonitor:
    """Follows the micro-batches of one run.

    worker.yaml says whether and where Prometheus reads (`web`), and whether to write a line on
    stderr for each micro-batch with records (`log_format: json`).

    The offsets of repartitioned topics, whose records the shuffle brings to their partitions, are
    committed here, for tools that show lag. Those of other topics are committed with the outputs.
    """

    def __init__(self, worker: WorkerConfig, repartitioned: Collection[str] = ()) -> None:
        self._worker, self._repartitioned = worker, repartitioned
        self._as_json = worker.log_format == "json"
        self._read: dict[str, dict[str, int]] = {}
        self._offsets = ReadOffsets(worker.client_options(), spark_group(worker.application))
        self._next_commit = time.monotonic()
        self._last = -1
        self._batches = self._records = 0
        self._counts = dict.fromkeys(COUNTS, 0)
        self._status: Status | None = None
        self._metrics = _Metrics(worker) if worker.web.enabled else None

    @contextmanager
    def show(self) -> Iterator[None]:
        """Show the last micro-batch on a terminal during the block."""
        console = Terminal(stderr=True)
        if not console.is_terminal or self._as_json:
            yield
            return
        with console.status("waiting for the first micro-batch") as self._status:
            yield

    def update(self, reports: Sequence[StreamingQueryProgress]) -> None:
        """Take over the micro-batches that Spark has reported, oldest first."""
        # As an attribute the offsets are text, of JSON or of Python depending on the version.
        for found in (json.loads(report.json) for report in reports):
            for source in found["sources"]:
                self._read |= source["endOffset"] or {}
            report = BatchReport.of(found)
            if report.batch > self._last:
                self._last = report.batch
                self._add(report)
        if time.monotonic() >= self._next_commit:
            self._next_commit = time.monotonic() + _COMMIT_S
            self._commit()

    def has_reached(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether the job has read up to these offsets."""
        read = self._read
        return all(read.get(topic, {}).get(str(n), 0) >= end for (topic, n), end in ends.items())

    def summary(self) -> str:
        """A sentence about all micro-batches so far."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self._counts.items())
        return f"{self._records:,} records in {self._batches:,} micro-batches: {counts}"

    def _add(self, report: BatchReport) -> None:
        self._batches += report.records > 0
        self._records += report.records
        for name in COUNTS:
            self._counts[name] += getattr(report, name)
        if self._metrics is not None:
            self._metrics.add(report)
        if self._as_json and report.records:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = {"time": now, "level": "info", "logger": "ringfaust.spark.ring"}
            said = {"message": "micro-batch", "application": self._worker.application}
            print(json.dumps(line | said | report._asdict()), file=sys.stderr, flush=True)
        if self._status is not None:
            rate = report.records / report.seconds if report.seconds else 0
            self._status.update(
                f"micro-batch {report.batch}: {rate:,.0f} records/s, lag {report.lag:,}; so far "
                f"{self.summary()}"
            )

    def _commit(self) -> None:
        read = {topic: self._read.get(topic, {}) for topic in self._repartitioned}
        try:
            asyncio.run(self._offsets.commit(read))
        except KafkaError as error:
            log.warning("the offsets of %s were not committed: %s", self._offsets.group, error)


class _Metrics:
    """The metrics of the driver, served over HTTP until the process ends."""

    def __init__(self, worker: WorkerConfig) -> None:
        registry = CollectorRegistry()
        prefix = "ringfaust_spark_"
        self._counters = {
            name: Counter(f"{prefix}{name}", text, registry=registry)
            for name, text in {
                "batches": "Micro-batches.",
                "records": "Records read from the input topics.",
                "batch_seconds": "Time spent in micro-batches.",
                **{name: f"Records written to the {name} topic." for name in COUNTS},
            }.items()
        }
        self._lag = Gauge(f"{prefix}lag_records", "Records not yet read.", registry=registry)
        self._state = Gauge(f"{prefix}state_bytes", "Memory of the state.", registry=registry)
        self._last = Gauge(
            f"{prefix}last_batch_seconds", "Duration of the last micro-batch.", registry=registry
        )
        remedy = "Choose another bind or port in worker.yaml, or set enabled: false"
        serve(registry, worker.web, worker.web.port, remedy)

    def add(self, report: BatchReport) -> None:
        """Count a micro-batch."""
        self._counters["batches"].inc()
        self._counters["batch_seconds"].inc(report.seconds)
        for name in ("records", *COUNTS):
            self._counters[name].inc(getattr(report, name))
        self._lag.set(report.lag)
        self._state.set(report.state_bytes)
        self._last.set(report.seconds)
