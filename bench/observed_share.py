"""`python -m bench.observed_share`: which share of a worker's time status and metrics take.

The rounds of `bench.observed` differ by more than what they measure. So this samples what a worker
under load does, with py-spy, and counts the samples in the modules of status and metrics. Evictions
are counted in compiled code, which py-spy cannot tell apart: that is timed on its own, and added.

Needs py-spy: pip install py-spy. Exit status 1: the share is more than 3 %.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.kafka import Kafka
from bench.model import Load
from bench.observed import MOST_SLOWER, Observed
from bench.peers.application import Application
from bench.peers.ringfaust import Ringfaust
from bench.processes import Process
from ringfaust.core.effects import Evicted
from ringfaust.core.model import EvictReason, Message
from ringfaust.processor.outbox import Activity, EvictionCounts
from ringfaust.protocol.records import Payload
from ringfaust.worker.partition.numbers import PartitionNumbers

LOADS = (
    Load("evict", "", "evict", 900_000),
    Load("cycle", "individual, credit 1,000", "cycle", 200_000, ring=-1, credit=1_000,
         ack_mode="individual"),
)  # fmt: skip
MODULES = (
    "worker/observe/", "worker/partition/numbers.py", "kafka/status_topic.py",
    "aiohttp/web", "prometheus_client",
)  # fmt: skip
IMPORTING = "<frozen importlib"
"""A frame of samples that do not count: the worker has no load yet."""
SAMPLES_PER_S = 250
EVICTIONS = 5_000


class _Sampled(Observed):
    """Its worker is sampled from its start until it ends."""

    spy: subprocess.Popen[bytes] | None = None

    @property
    def samples(self) -> Path:
        """What py-spy writes: a line for each stack, with how often it was found."""
        return self.folder / "samples"

    def worker(self, number: int) -> Process:
        """Start a worker, and py-spy beside it."""
        worker = super().worker(number)
        command = ["py-spy", "record", "--format", "raw", "--duration",
                   "unlimited", "--rate", str(SAMPLES_PER_S), "--output", str(self.samples),
                   "--pid", str(worker.pid)]  # fmt: skip
        self.spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return worker


class Sampled(Ringfaust):
    """With status and metrics, under the eyes of py-spy."""

    def __init__(self, kafka: Kafka) -> None:
        """`kafka`: runs already."""
        super().__init__(kafka)
        self.found = (0, 0)
        """Samples of the last load, and how many of them are in `MODULES`."""

    @contextmanager
    def _application(self, load: Load, source: str) -> Iterator[Application]:
        app = _Sampled(self._kafka, load, source)
        with app.scraped():
            yield app
        assert app.spy is not None
        app.spy.wait(60)
        self.found = _count(app.samples)
        self._end(app)


def _count(samples: Path) -> tuple[int, int]:
    total = ours = 0
    for line in samples.read_text().splitlines():
        stack, times = line.rsplit(" ", 1)
        if IMPORTING in stack:
            continue
        total += int(times)
        if any(module in stack for module in MODULES):
            ours += int(times)
    return total, ours


def _counting_us() -> float:
    """How long it takes to count an eviction, in µs: the best of several batches."""
    payload = Payload(None, b"", (), "in/0/0")
    evictions = [
        Evicted("orders", Message(f"m{number}", 1, 1, 4, number, 0, 0, "", 0, 0, (), 1, payload),
                EvictReason.OVERFLOW, "m", 1_000, 999, EVICTIONS, "full")
        for number in range(EVICTIONS)
    ]  # fmt: skip
    taken_s = []
    for _ in range(20):
        counts, numbers, began_s = EvictionCounts(), PartitionNumbers(), time.perf_counter()
        for eviction in evictions:
            counts.add(eviction)
        numbers.commit({}, Activity((), counts, (), ()), 0.01)
        taken_s.append(time.perf_counter() - began_s)
    return min(taken_s) / EVICTIONS * 1e6


def main() -> None:
    """Measure, and print a table."""
    if shutil.which("py-spy") is None:
        sys.exit("py-spy is not installed: pip install py-spy")
    table = Table("load", "samples", "in status and metrics", "counting", "share")
    counting_us, worst = _counting_us(), 0.0
    with Kafka() as kafka:
        peer = Sampled(kafka)
        for load in LOADS:
            worker_us = peer.run(load)["worker_us"]
            total, ours = peer.found
            counted = counting_us / worker_us if load.kind == "evict" else 0.0
            share = ours / total + counted
            worst = max(worst, share)
            table.add_row(
                load.title, f"{total:,}", f"{ours / total:.1%}",
                f"{counting_us:.2f} of {worker_us:.1f} µs" if counted else "", f"{share:.1%}",
            )  # fmt: skip
    Console(width=100).print(table)
    sys.exit(worst > MOST_SLOWER)


if __name__ == "__main__":
    main()
