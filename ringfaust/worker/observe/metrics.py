"""Metrics in Prometheus' format. Only this module knows prometheus-client.

Nothing is counted here. `coarse` reads the worker's `Numbers`; its size depends on the partitions,
not on the queues. `detailed` reads the state of the queues that are asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from ringfaust.core.model import HELD_STATES, TOTALS, Counts
from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.protocol.status import time_to_overwrite_s
from ringfaust.worker.observe.numbers import Numbers
from ringfaust.worker.partition.numbers import Histogram
from ringfaust.worker.partition.repartition import RepartitionWork
from ringfaust.worker.partition.work import PartitionWork

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
FAMILIES = ("messages", "transitions", "evicted", "overwrite")
"""What `detailed` can be asked for."""
MOST_QUEUES = 500
"""Most queues in one answer of `detailed`."""
_ROWS = 25
"""Queues that are read before the event loop runs (R122): less than 1 ms."""


class _Collected(Collector):
    """Metrics that were collected before."""

    def __init__(self, found: Collection[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._found


def exposition(found: Collection[Metric], *, with_process: bool = False) -> bytes:
    """Metrics as Prometheus reads them; if asked, with memory and CPU time of this process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(found))
    if with_process:
        ProcessCollector(registry=registry)
    return generate_latest(registry)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[tuple[Any, ...]]
) -> Metric:
    """The family with its samples: for each the values of its labels, then the number."""
    for *labels, number in samples:
        family.add_metric([str(label) for label in labels], float(number))
    return family


def gauge(name: str, text: str, labels: str, samples: Iterable[tuple[Any, ...]]) -> Metric:
    """A gauge with the samples: for each the values of its labels, then the number."""
    return _filled(GaugeMetricFamily(name, text, labels=labels.split()), samples)


def _counter(name: str, text: str, labels: str, samples: Iterable[tuple[Any, ...]]) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels.split()), samples)


def _histogram(name: str, text: str, of_partitions: Iterable[tuple[int, Histogram]]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=["partition"])
    for number, histogram in of_partitions:
        bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
        buckets = zip(bounds, map(float, accumulate(histogram.counts)), strict=True)
        family.add_metric([str(number)], [*buckets], histogram.sum)
    return family


class WorkerMetrics:
    """The metrics of one worker."""

    def __init__(self, numbers: Numbers, info: Mapping[str, str]) -> None:
        """Read nothing yet.

        Args:
            numbers: of the worker.
            info: labels of `ringfaust_worker_info`.
        """
        self._numbers = numbers
        self._info = info

    # --- all partitions --------------------------------------------------------------------------

    def coarse(self) -> bytes:
        """The metrics of the worker and of each partition: about 5 kB for each partition."""
        works = sorted(self._numbers.works(), key=lambda work: work.number)
        copying = self._numbers.copying()
        return exposition(
            [
                *self._worker(), *self._inputs(works, copying), *_contents(works),
                *_activity(works, copying),
            ],
            with_process=True,
        )  # fmt: skip

    def _worker(self) -> list[Metric]:
        health = self._numbers.health
        info = GaugeMetricFamily("ringfaust_worker_info", "The worker.", labels=[*self._info])
        return [
            _filled(info, [(*self._info.values(), 1)]),
            gauge("ringfaust_ready", "1 if /readyz answers 200.", "", [(not health.problems(),)]),
            gauge(
                "ringfaust_brokers_connected", "0 if the brokers are silent.", "",
                [(not health.are_brokers_lost,)],
            ),
            gauge(
                "ringfaust_memory_limit_bytes", "The setting memory_bytes.", "",
                [(health.memory.most_bytes,)],
            ),
            gauge(
                "ringfaust_intake_paused",
                "1 while the process has more memory than it may.", "",
                [(health.memory.is_exceeded,)],
            ),
            gauge(
                "ringfaust_partition_input_bytes", "Input that waits to be decided.", "partition",
                self._numbers.waiting_bytes().items(),
            ),
            gauge(
                "ringfaust_partition_stopped",
                "1 if the partition cannot go on and waits for an order.",
                "partition",
                [(task.work.unit, task.stopped is not None) for task in health.tasks()],
            ),
            gauge(
                "ringfaust_recovery_remaining_records",
                "Records that a partition must read before it is caught up.",
                "partition", self._numbers.recovery().items(),
            ),
            gauge(
                "ringfaust_standby_behind_records",
                "Records of the changelog that a standby has not applied yet; -1: not known yet.",
                "partition",
                [
                    (number, -1 if behind is None else behind)
                    for number, behind in self._numbers.standbys().items()
                ],
            ),
        ]  # fmt: skip

    def _inputs(
        self, works: Collection[PartitionWork], copying: Collection[RepartitionWork]
    ) -> list[Metric]:
        read: list[PartitionWork | RepartitionWork] = [*works, *copying]
        return [
            gauge(
                "ringfaust_partition_lag_records",
                "Offsets between the position and the end of an input, transaction markers "
                "included.",
                "partition topic",
                [(work.number, *lag) for work in read for lag in self._numbers.lag(work).items()],
            ),
            gauge(
                "ringfaust_partition_input_paused",
                "1 while a paused or full queue keeps an input from being read.",
                "partition topic",
                [
                    (work.number, tp.topic, tp.topic in work.paused_topics)
                    for work in works
                    for tp in sorted(work.tps)
                ],
            ),
        ]

    # --- single queues ---------------------------------------------------------------------------

    async def detailed(self, families: Collection[str], pattern: str) -> bytes:
        """The metrics of single queues; the event loop runs between them (R122).

        Args:
            families: some of `FAMILIES`.
            pattern: a queue's name, or a pattern: * is one word, # any number of words.
        """
        found, is_cut = await self._find(pattern)
        works = self._numbers.works()
        found = [each for each in found if each[0] in works]  # the next owner has the others
        metrics: list[Metric] = [
            gauge(
                "ringfaust_detailed_truncated",
                f"1 if more than {MOST_QUEUES} queues match.", "", [(is_cut,)],
            )
        ]  # fmt: skip
        if "messages" in families:
            metrics.append(await asyncio.to_thread(_messages, found))
        if "transitions" in families:
            metrics.append(await asyncio.to_thread(_transitions, found))
        if "evicted" in families:
            metrics.append(_evicted(found))
        if "overwrite" in families:
            metrics.append(await self._overwrite(found))
        return await asyncio.to_thread(exposition, metrics)

    async def _overwrite(self, found: Iterable[_Found]) -> Metric:
        times: dict[str, float] = {}
        for work, name, _ in found:
            if (rates := work.numbers.rates.get(name)) is None:
                continue
            await asyncio.sleep(0)  # a queue may have to be read first
            queue = work.state.queue(name) if work in self._numbers.works() else None
            if queue is None:
                continue
            ready, ring_size = queue.counts.ready, queue.spec.ring_size
            if (seconds := time_to_overwrite_s(ready, ring_size, rates)) is not None:
                times[name] = min(seconds, times.get(name, seconds))
        return gauge(
            "ringfaust_time_to_overwrite_seconds",
            "How long until arrivals push out the oldest message, at the present rates.",
            "queue", times.items(),
        )  # fmt: skip

    async def _find(self, pattern: str) -> tuple[list[_Found], bool]:
        """The queues that match, and whether there are more."""
        found: list[_Found] = []
        if not is_pattern(pattern):
            for work in self._numbers.works():
                if (row := work.state.queue_rows.get(pattern)) is not None:
                    found.append((work, pattern, Counts(*row.counts)))
            return found, False
        compiled = Pattern(pattern)
        for work in sorted(self._numbers.works(), key=lambda work: work.number):
            state = work.state
            after: str | None = None
            # It may be revoked or reopened while this waits, also for another partition.
            while work in self._numbers.works() and work.state is state:
                rows = state.stored_queues(after, _ROWS)
                if not rows:
                    break
                for name, row in rows:
                    if compiled.matches(name.split(".")):
                        if len(found) == MOST_QUEUES:
                            return found, True
                        found.append((work, name, Counts(*row.counts)))
                after = rows[-1][0]
                await asyncio.sleep(0)
        return found, False


_Found = tuple[PartitionWork, str, Counts]


def _contents(works: Iterable[PartitionWork]) -> list[Metric]:
    counted = [(w.number, held) for w in works if (held := w.numbers.holding) is not None]
    return [
        gauge(
            "ringfaust_partition_queues", "Stored queues.", "partition",
            [(number, held.queues) for number, held in counted],
        ),
        gauge(
            "ringfaust_partition_messages", "Messages by state.", "partition state",
            [
                (number, each, getattr(it, each)) for number, it in counted for each in HELD_STATES
            ],
        ),
        gauge(
            "ringfaust_accounts_balanced", "1 if the counts of every queue add up.", "partition",
            [(number, held.is_balanced) for number, held in counted],
        ),
        gauge(
            "ringfaust_partition_counted_timestamp_seconds",
            "When queues and messages were last counted.", "partition",
            [(number, held.at_s) for number, held in counted],
        ),
    ]  # fmt: skip


def _activity(works: Collection[PartitionWork], copying: Iterable[RepartitionWork]) -> list[Metric]:
    done = [(work.number, work.numbers) for work in works]
    written = [(work.unit, work.numbers.written) for work in works]
    written += [(work.unit, work.written) for work in copying]
    return [
        _counter(
            "ringfaust_partition_written_records", "Records written to ringfaust's topics.",
            "partition role",
            [(unit, *each) for unit, roles in written for each in sorted(roles.items())],
        ),
        _counter(
            "ringfaust_partition_evicted_messages", "Evictions.", "partition reason",
            [
                (number, reason, sum(of_queues.values()))
                for number, it in done
                for reason, of_queues in sorted(it.evicted.items())
            ],
        ),
        _histogram(
            "ringfaust_eviction_age_seconds", "Age of messages when they were evicted.",
            [(number, it.eviction_age_s) for number, it in done],
        ),
        _histogram(
            "ringfaust_commit_duration_seconds",
            "Duration of transactions, with their write to the store.",
            [(number, it.commit_s) for number, it in done],
        ),
    ]  # fmt: skip


def _added_up(samples: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """One sample for those with the same labels: several partitions may have a queue (R113)."""
    found: dict[tuple[str, str], int] = {}
    for queue, label, number in samples:
        found[queue, label] = found.get((queue, label), 0) + number
    return [(*labels, number) for labels, number in found.items()]


def _messages(found: Iterable[_Found]) -> Metric:
    return gauge(
        "ringfaust_queue_messages", "Messages by state.", "queue state",
        _added_up(
            (name, each, getattr(counts, each)) for _, name, counts in found for each in HELD_STATES
        ),
    )  # fmt: skip


def _transitions(found: Iterable[_Found]) -> Metric:
    return _counter(
        "ringfaust_queue_transitions",
        "Messages that were added, or have left, since the queue was created.",
        "queue transition",
        _added_up(
            (name, each, getattr(counts, each)) for _, name, counts in found for each in TOTALS
        ),
    )


def _evicted(found: Iterable[_Found]) -> Metric:
    return _counter(
        "ringfaust_queue_evicted_messages",
        "Evictions since the partition was opened.",
        "queue reason",
        _added_up(
            (name, reason, messages)
            for work, name, _ in found
            for reason, of_queues in work.numbers.evicted.items()
            if (messages := of_queues.get(name))
        ),
    )
