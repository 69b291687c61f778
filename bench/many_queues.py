"""`python -m bench.many_queues`: the status and the metrics of a worker with 100,000 queues.

A worker process with one partition on an embedded broker: bytes that reach the status topic while
the queues are idle and while they are busy, and the size and time of scrapes of `/metrics`.
docs/operations.md (limits) has the figures.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import yaml
from aiokafka import AIOKafkaProducer

from bench.large_worker import APP, TOPIC, Case, queue, seed, write_config
from bench.processes import Process, until
from ringfaust.client import StatusReader
from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.testing.broker import EmbeddedBroker

QUEUES = 100_000
RING = 2
MESSAGES_PER_S = 1_000
PORT = 16_067
SPAN_S = 60
MOST_BYTES, MOST_MS = 1_000_000, 200.0


class Span(NamedTuple):
    """What was measured in a span of time."""

    messages: int
    """How many the worker has processed: each evicts another one."""
    status_bytes: int
    """Growth of the status topic's log: compressed, with headers."""
    seconds: float
    sizes: list[int]
    """Bytes of each scrape."""
    scrapes_ms: list[float]

    def line(self, name: str) -> str:
        """The figures in one line."""
        return (
            f"{name}, {self.messages / self.seconds:,.0f} messages/s: "
            f"{self.status_bytes / self.seconds:,.0f} bytes/s on the status topic; "
            f"/metrics has {max(self.sizes):,} bytes in {statistics.median(self.scrapes_ms):.0f} ms"
            f", at most {max(self.scrapes_ms):.0f} ms ({len(self.sizes)} scrapes)"
        )

    def is_within_bounds(self) -> bool:
        """Whether scrapes are as small and, in the median, as fast as promised."""
        return max(self.sizes) < MOST_BYTES and statistics.median(self.scrapes_ms) < MOST_MS


def _configure(folder: Path, servers: str) -> None:
    write_config(folder, servers)
    path = folder / "worker.yaml"
    settings = yaml.safe_load(path.read_text()) | {"web": {"enabled": True, "port": PORT}}
    path.write_text(yaml.safe_dump(settings))
    path = folder / "queues.yaml"
    settings = yaml.safe_load(path.read_text()) | {"queues": {"#": {"ring_size": RING}}}
    path.write_text(yaml.safe_dump(settings))


def _scrape() -> tuple[bytes, float]:
    """The metrics, and how many ms they took."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60) as answer:
        text: bytes = answer.read()
    return text, (time.perf_counter() - began) * 1000


def _processed(metrics: bytes) -> int:
    lines = metrics.decode().splitlines()
    evicted = [line for line in lines if line.startswith("ringfaust_partition_evicted_messages_t")]
    return sum(int(float(line.split()[-1])) for line in evicted)


def _is_ready() -> bool:
    with suppress(OSError):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=60):
            return True
    return False


def _segments(data: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in data.glob(f"logs/{APP}.status-*/*.log")}


def _growth(before: dict[Path, int], after: dict[Path, int]) -> int:
    """How many bytes were appended; segments may have been compacted meanwhile."""
    return sum(max(size - before.get(path, 0), 0) for path, size in after.items())


def _measure(data: Path) -> Span:
    began = time.perf_counter()
    first = text = _scrape()[0]
    sizes, scrapes_ms, written, known = [], [], 0, _segments(data)
    while (seconds := time.perf_counter() - began) < SPAN_S:
        text, took_ms = _scrape()
        sizes.append(len(text))
        scrapes_ms.append(took_ms)
        time.sleep(1)
        now = _segments(data)
        written, known = written + _growth(known, now), now
    return Span(_processed(text) - _processed(first), written, seconds, sizes, scrapes_ms)


async def _published(servers: str) -> int:
    async with StatusReader(bootstrap_servers=servers, application=APP) as status:
        return sum(each.published for each in status.workers())


async def _send(servers: str) -> None:
    """Send messages of some 20 to 400 bytes to any of the queues, until cancelled."""
    chosen = random.Random(1)
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=20) as producer:
        began = time.monotonic()
        for sent in count():
            while sent > (time.monotonic() - began) * MESSAGES_PER_S:
                await asyncio.sleep(0.01)
            name, body = queue(chosen.randrange(QUEUES)), b"x" * chosen.randrange(20, 400)
            await producer.send(TOPIC, body, partition=0, headers=[("to", name.encode())])


async def _measure_busy(servers: str, data: Path) -> Span:
    sending = asyncio.create_task(_send(servers))
    try:
        return await asyncio.to_thread(_measure, data)
    finally:
        sending.cancel()


def main() -> None:
    """Measure, and print the figures. Exit status 1: a scrape is too large or too slow."""
    with tempfile.TemporaryDirectory(prefix="ringfaust-bench-") as name:
        folder, data = Path(name), Path(name) / "kafka"
        seed(folder / "state" / "partition-0", Case(QUEUES, RING * QUEUES, 100, 0, ()))
        with EmbeddedBroker(data) as broker:
            servers = broker.bootstrap_servers
            _configure(folder, servers)
            asyncio.run(create_topics(*load(folder)))
            command = [sys.executable, "-m", "ringfaust", "worker", "--config", str(folder)]
            with Process(command, folder / "worker.log") as worker:
                until(_is_ready, "the worker is ready", [worker])
                began = time.monotonic()
                until(
                    lambda: asyncio.run(_published(servers)) >= QUEUES,
                    f"{QUEUES:,} queues are published", [worker], every_s=5,
                )  # fmt: skip
                print(f"all {QUEUES:,} rows published after {time.monotonic() - began:.0f} s")
                time.sleep(10)  # the last rows are on their way
                idle = _measure(data)
                print(idle.line("idle"), flush=True)
                busy = asyncio.run(_measure_busy(servers, data))
                print(busy.line("busy"), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    sys.exit(not (idle.is_within_bounds() and busy.is_within_bounds()))


if __name__ == "__main__":
    main()
