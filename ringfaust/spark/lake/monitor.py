"""Reports what the lake has read: on the terminal, to Kafka as a group's offsets, to Prometheus."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter as Counts
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import configuration_in_use
from ringfaust.errors import RingfaustError
from ringfaust.kafka.lag import Read, time_left, unread
from ringfaust.kafka.names import lake_group
from ringfaust.kafka.offsets import ReadOffsets
from ringfaust.spark.metrics import serve

T = TypeVar("T")
log = logging.getLogger(__name__)

_LOOK_S = 5.0
"""How often offsets are committed and compared with the topics' ends."""
_RETENTION_S = 60.0
"""How often the age of what is not read is looked up."""
_PATIENCE_S = 60.0
"""How long the brokers may take for an answer."""
REMEDY = "Give the job more cores, or raise the topic's retention.ms"


class LakeMonitor:
    """Follows the batches of one run.

    `read` says how far the lake has read the topics before. Without a port it serves no metrics.
    `queues` is the file beside what was applied; without it, nobody asks for routes.
    """

    def __init__(
        self,
        worker: WorkerConfig,
        topics: Sequence[str],
        read: Read,
        port: int | None = None,
        queues: QueuesConfig | None = None,
    ) -> None:
        self._worker, self._topics, self._queues = worker, topics, queues
        self._named = {*topics}
        """The topics that it copies, and those that a warning has named."""
        self._read = {topic: dict(at) for topic, at in read.items() if topic in topics}
        self._offsets = ReadOffsets(worker.client_options(), lake_group(worker.application))
        self._last: dict[str, int] = {}
        self._records: Counts[str] = Counts()
        self._batches = 0
        self._unread: dict[str, int] | None = None
        self._reasons: set[str] = set()
        self._next_look = self._next_retention = time.monotonic()
        self._metrics = _Metrics()
        if port is not None:
            remedy = "Choose another --metrics-port, or web.bind"
            serve(self._metrics.registry, worker.web, port, remedy)

    def update(self, queries: Mapping[str, StreamingQuery]) -> None:
        """Take over the batches that Spark has reported. The queries are by stream."""
        for stream, query in queries.items():
            for report in (json.loads(progress.json) for progress in query.recentProgress):
                if report["batchId"] > self._last.get(stream, -1):
                    self._last[stream] = report["batchId"]
                    self._add(stream, report)

    def look(self, *, now: bool = False) -> None:
        """Commit offsets and measure the lag, if it is time or `now`. Brokers may be away."""
        if not now and time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_S
        group = self._offsets.group
        self._ask(f"the offsets of group {group}", self._offsets.commit(self._read))
        answer = unread(self._worker.brokers(), self._topics, self._read)
        found = self._ask("the ends of the topics", answer)
        if found is not None:
            self._unread = found
            for topic, records in found.items():
                self._metrics.lag.labels(topic).set(records)
        if time.monotonic() >= self._next_retention:
            self._next_retention = time.monotonic() + _RETENTION_S
            self._look_at_retention()
            self.look_at_routes()

    def has_read(self, topic: str) -> bool:
        """Whether the lake had read a topic to its end when that was last looked at."""
        return self._unread is not None and self._unread[topic] == 0

    def summary(self) -> str:
        """A sentence about the run."""
        streams = ", ".join(
            f"{stream} {count:,}" for stream, count in sorted(self._records.items())
        )
        said = f"{self._records.total():,} records in {self._batches:,} batches"
        said += f" ({streams})" if streams else ""
        if self._unread is not None:
            said += f"; {sum(self._unread.values()):,} offsets not yet read"
        return said

    def _add(self, stream: str, report: dict[str, Any]) -> None:
        for source in report["sources"]:
            for topic, at in (source["endOffset"] or {}).items():
                self._read.setdefault(topic, {}).update(at)
        records, seconds = report["numInputRows"], report["durationMs"].get("triggerExecution", 0)
        seconds /= 1_000
        if not records:
            return
        self._batches += 1
        self._records[stream] += records
        self._metrics.add(stream, records, seconds)
        if sys.stderr.isatty():
            said = f"{stream}: batch {report['batchId']}, {records:,} records, {seconds:.1f} s"
            print(said, file=sys.stderr)

    def _ask(self, about: str, answer: Coroutine[Any, Any, T]) -> T | None:
        """Ask the brokers; None, and a warning for each new reason, if they do not answer."""
        try:
            return asyncio.run(asyncio.wait_for(answer, _PATIENCE_S))
        except (KafkaError, RingfaustError, TimeoutError, OSError) as error:
            reason = f"{about}: {error!r}"
            if reason not in self._reasons:
                self._reasons.add(reason)
                log.warning("the lake continues without %s", reason)
            return None

    def _look_at_retention(self) -> None:
        answer = time_left(self._worker.brokers(), self._topics, self._read)
        found = self._ask("the retention of the topics", answer)
        if found is None:
            return
        self._metrics.left.clear()  # topics of which everything is read have no value
        for topic, left in found.items():
            self._metrics.left.labels(topic).set(left.left_s)
            if left.is_short:
                log.warning("the lake is behind: topic %s %s. %s", topic, left, REMEDY)

    def look_at_routes(self) -> None:
        """Name the topics of routes that were applied since the start, which nobody copies."""
        if self._queues is None:
            return
        answer = configuration_in_use(self._worker, self._queues)
        found = self._ask("the configuration", answer)
        new = {route.topic for route in found.queues.routes} - self._named if found else set()
        if new:
            self._named |= new
            log.warning("start the lake again, to copy %s, too", ", ".join(sorted(new)))


class _Metrics:
    """The metrics of the driver."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"ringfaust_lake_{name}", text, ["stream"], registry=registry)
            for name, text in {
                "batches": "Batches with records.",
                "records": "Records read.",
                "batch_seconds": "Time spent in batches.",
            }.items()
        }
        self._last, self.lag, self.left = (
            Gauge(f"ringfaust_lake_{name}", text, [label], registry=registry)
            for name, label, text in (
                ("last_batch_seconds", "stream", "Duration of the last batch."),
                ("lag_records", "topic", "Offsets not yet read, with transaction markers."),
                (
                    "retention_left_seconds",
                    "topic",
                    "Time until the topic may delete what is not yet read.",
                ),
            )
        )

    def add(self, stream: str, records: int, seconds: float) -> None:
        self._counters["batches"].labels(stream).inc()
        self._counters["records"].labels(stream).inc(records)
        self._counters["batch_seconds"].labels(stream).inc(seconds)
        self._last.labels(stream).set(seconds)
