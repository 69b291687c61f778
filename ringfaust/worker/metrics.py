"""Metrics in Prometheus' format. Only this module knows prometheus-client.

Nothing is counted here. `coarse` reads what the partitions have counted at their commits (`Meter`)
and in the background (`Censuses`); its size depends on the partitions, not on the queues.
`detailed` reads the state of the queues that are asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from faust.types import TP
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from ringfaust.core.catalog import matches
from ringfaust.core.model import Counts
from ringfaust.core.queue import Queue
from ringfaust.worker.census import Censuses
from ringfaust.worker.health import Health
from ringfaust.worker.meter import Histogram
from ringfaust.worker.partition import PartitionWork

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
FAMILIES = ("messages", "transitions", "evicted", "overwrite")
"""What `detailed` can be asked for."""
MOST_QUEUES = 500
"""Most queues in one answer of `detailed`."""
_ROWS = 200
_STATES = ("ready", "delivering", "scheduled")
_TRANSITIONS = (
    "added", "acked", "evicted", "expired", "dead", "refused", "removed", "moved_out", "lost",
)  # fmt: skip


class _Collected(Collector):
    """Metrics that were collected before."""

    def __init__(self, found: Collection[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._found


def _exposition(found: Collection[Metric], *, with_process: bool = False) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(found))
    if with_process:
        ProcessCollector(registry=registry)
    return generate_latest(registry)


class WorkerMetrics:
    """The metrics of one worker."""

    def __init__(
        self,
        health: Health,
        works: Callable[[], Collection[PartitionWork]],
        censuses: Censuses,
        highwater: Callable[[TP], int | None],
        info: Mapping[str, str],
    ) -> None:
        """Read nothing yet.

        Args:
            health: whether the worker and its partitions are ready.
            works: the partitions whose state is loaded.
            censuses: how much they hold.
            highwater: the end of an input partition, as far as it is known.
            info: labels of `ringfaust_worker_info`.
        """
        self._health = health
        self._works = works
        self._censuses = censuses
        self._highwater = highwater
        self._info = info

    # --- all partitions --------------------------------------------------------------------------

    def coarse(self) -> bytes:
        """The metrics of the worker and of each partition: about 5 kB for each partition."""
        works = sorted(self._works(), key=lambda work: work.number)
        found: list[Metric] = [
            self._worker_info(),
            *self._worker_state(),
            *self._inputs(works),
            *self._contents(),
            *_activity(works),
        ]
        return _exposition(found, with_process=True)

    def _worker_info(self) -> Metric:
        family = GaugeMetricFamily("ringfaust_worker_info", "The worker.", labels=[*self._info])
        family.add_metric([*self._info.values()], 1)
        return family

    def _worker_state(self) -> list[Metric]:
        health = self._health
        ready = GaugeMetricFamily("ringfaust_ready", "1 if /readyz answers 200.")
        ready.add_metric([], float(not health.problems()))
        brokers = GaugeMetricFamily("ringfaust_brokers_connected", "0 if the brokers are silent.")
        brokers.add_metric([], float(not health.are_brokers_lost))
        remaining = GaugeMetricFamily(
            "ringfaust_recovery_remaining_records",
            "Records that a partition must read before it is caught up.",
            labels=["partition"],
        )
        left: dict[int, int] = {}
        for task in health.tasks():
            number = task.work.number
            left[number] = max(left.get(number, 0), health.remaining(task))
        for number, records in sorted(left.items()):
            remaining.add_metric([str(number)], records)
        return [ready, brokers, remaining]

    def _inputs(self, works: Sequence[PartitionWork]) -> list[Metric]:
        lag = GaugeMetricFamily(
            "ringfaust_partition_lag_records",
            "Offsets between the position and the end of an input, transaction markers included.",
            labels=["partition", "topic"],
        )
        paused = GaugeMetricFamily(
            "ringfaust_partition_input_paused",
            "1 while a paused or full queue keeps an input from being read.",
            labels=["partition", "topic"],
        )
        for work in works:
            for tp in sorted(work.tps):
                labels = [str(work.number), tp.topic]
                end = self._highwater(tp)
                if end is not None:
                    lag.add_metric(labels, max(end - work.positions.get(tp.topic, 0), 0))
                paused.add_metric(labels, float(tp.topic in work.paused_topics))
        return [lag, paused]

    def _contents(self) -> list[Metric]:
        queues = GaugeMetricFamily(
            "ringfaust_partition_queues", "Stored queues.", labels=["partition"]
        )
        messages = GaugeMetricFamily(
            "ringfaust_partition_messages", "Messages by state.", labels=["partition", "state"]
        )
        balanced = GaugeMetricFamily(
            "ringfaust_accounts_balanced",
            "1 if the counts of every queue add up.",
            labels=["partition"],
        )
        counted = GaugeMetricFamily(
            "ringfaust_partition_counted_timestamp_seconds",
            "When queues and messages were last counted.",
            labels=["partition"],
        )
        for number, census in sorted(self._censuses.last.items()):
            partition = str(number)
            queues.add_metric([partition], census.queues)
            for state in _STATES:
                messages.add_metric([partition, state], getattr(census, state))
            balanced.add_metric([partition], float(census.is_balanced))
            counted.add_metric([partition], census.at_s)
        return [queues, messages, balanced, counted]

    # --- single queues ---------------------------------------------------------------------------

    async def detailed(self, families: Collection[str], pattern: str) -> bytes:
        """The metrics of single queues.

        Args:
            families: some of `FAMILIES`.
            pattern: a queue's name, or a pattern: * is one word, # any number of words.
        """
        found, is_cut = await self._find(pattern)
        works = self._works()
        found = [each for each in found if each[0] in works]  # the next owner has the others
        metrics: list[Metric] = [_cut(is_cut)]
        if "messages" in families:
            metrics.append(_messages(found))
        if "transitions" in families:
            metrics.append(_transitions(found))
        if "evicted" in families:
            metrics.append(_evicted(works, {name for _, name, _ in found}))
        if "overwrite" in families:
            metrics.append(_overwrite(found))
        return _exposition(metrics)

    async def _find(self, pattern: str) -> tuple[list[_Found], bool]:
        """The queues that match, and whether there are more."""
        words = pattern.split(".")
        found: list[_Found] = []
        if not {"*", "#"} & {*words}:
            for work in self._works():
                if (row := work.state.queue_rows.get(pattern)) is not None:
                    found.append((work, pattern, Counts(*row.counts)))
            return found, False
        for work in sorted(self._works(), key=lambda work: work.number):
            state = work.state
            after: str | None = None
            # It may be revoked or reopened while this waits, also for another partition.
            while work in self._works() and work.state is state:
                rows = state.stored_queues(after, _ROWS)
                if not rows:
                    break
                for name, row in rows:
                    if matches(words, name.split(".")):
                        if len(found) == MOST_QUEUES:
                            return found, True
                        found.append((work, name, Counts(*row.counts)))
                after = rows[-1][0]
                await asyncio.sleep(0)
        return found, False


_Found = tuple[PartitionWork, str, Counts]


def _activity(works: Iterable[PartitionWork]) -> list[Metric]:
    written = CounterMetricFamily(
        "ringfaust_partition_written_records",
        "Records written to ringfaust's topics.",
        labels=["partition", "role"],
    )
    evicted = CounterMetricFamily(
        "ringfaust_partition_evicted_messages", "Evictions.", labels=["partition", "reason"]
    )
    ages = HistogramMetricFamily(
        "ringfaust_eviction_age_seconds",
        "Age of messages when they were evicted.",
        labels=["partition"],
    )
    commits = HistogramMetricFamily(
        "ringfaust_commit_duration_seconds",
        "Duration of transactions, with their write to the store.",
        labels=["partition"],
    )
    for work in works:
        if (meter := work.meter) is None:
            continue
        partition = str(work.number)
        for role, records in sorted(meter.written.items()):
            written.add_metric([partition, role], records)
        for reason, of_queues in sorted(meter.evicted.items()):
            evicted.add_metric([partition, reason], sum(of_queues.values()))
        ages.add_metric([partition], _buckets(meter.eviction_age_s), meter.eviction_age_s.sum)
        commits.add_metric([partition], _buckets(meter.commit_s), meter.commit_s.sum)
    return [written, evicted, ages, commits]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
    return [*zip(bounds, map(float, accumulate(histogram.counts)), strict=True)]


def _cut(is_cut: bool) -> Metric:
    family = GaugeMetricFamily(
        "ringfaust_detailed_truncated", f"1 if more than {MOST_QUEUES} queues match."
    )
    family.add_metric([], float(is_cut))
    return family


def _messages(found: Iterable[_Found]) -> Metric:
    family = GaugeMetricFamily(
        "ringfaust_queue_messages", "Messages by state.", labels=["queue", "state"]
    )
    for _, name, counts in found:
        for state in _STATES:
            family.add_metric([name, state], getattr(counts, state))
    return family


def _transitions(found: Iterable[_Found]) -> Metric:
    family = CounterMetricFamily(
        "ringfaust_queue_transitions",
        "Messages that were added, or have left, since the queue was created.",
        labels=["queue", "transition"],
    )
    for _, name, counts in found:
        for transition in _TRANSITIONS:
            family.add_metric([name, transition], getattr(counts, transition))
    return family


def _evicted(works: Iterable[PartitionWork], names: Collection[str]) -> Metric:
    family = CounterMetricFamily(
        "ringfaust_queue_evicted_messages",
        "Evictions since the partition was opened.",
        labels=["queue", "reason"],
    )
    for work in works:
        for reason, of_queues in work.meter.evicted.items() if work.meter is not None else ():
            for name, messages in of_queues.items():
                if name in names:
                    family.add_metric([name, reason], messages)
    return family


def _overwrite(found: Iterable[_Found]) -> Metric:
    family = GaugeMetricFamily(
        "ringfaust_time_to_overwrite_seconds",
        "How long a message stays in the ring, at the rate at which the ready ones have come.",
        labels=["queue"],
    )
    for work, name, _ in found:
        queue = work.state.queue(name)
        seconds = None if queue is None else _time_to_overwrite_s(queue, work.wall_ms())
        if seconds is not None:
            family.add_metric([name], seconds)
    return family


def _time_to_overwrite_s(queue: Queue, now_ms: int) -> float | None:
    """The span of the ready messages, extended to a full ring; None if that is not known."""
    ready, ring_size = queue.counts.ready, queue.spec.ring_size
    if not ready or ring_size <= 0:
        return None
    span_s = max(now_ms - queue.lowest().enqueued_ms, 0) / 1000
    return span_s * ring_size / ready
