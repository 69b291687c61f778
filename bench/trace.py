"""`python -m bench.trace`: how long `ringfaust trace` takes on 1,000,000 events of the last hour.

Every event is younger than an hour, so a trace reads them all. Records have 400 lines, as when a
worker is busy, or 20, as when it is nearly idle.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from itertools import islice

from aiokafka import AIOKafkaProducer
from rich.console import Console
from rich.table import Table

from bench.event_lines import event_lines
from ringfaust.client.trace import trace
from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker

LINES = 1_000_000
PARTITIONS = 4
LINES_PER_RECORD = (400, 20)
ROUNDS = 5
GOAL_S = 2.0
WANTED = f"orders/1/{LINES // PARTITIONS // 4}"
"""A message of the middle of a partition, which was evicted."""


async def _fill(worker: WorkerConfig, at_once: int) -> None:
    topic = worker.topic(Role.EVENTS)
    async with open_admin(worker.brokers()) as admin:
        await admin.create([NewTopic(topic, PARTITIONS, 1, {})])
    producer = AIOKafkaProducer(
        bootstrap_servers=worker.bootstrap_servers, max_batch_size=500_000, linger_ms=5
    )
    await producer.start()
    from_ms = int(time.time() * 1000) - 600_000
    for partition in range(PARTITIONS):
        lines = event_lines(partition, from_ms)
        left = LINES // PARTITIONS
        while left > 0:
            text = "\n".join(islice(lines, min(at_once, left)))
            await producer.send(topic, text.encode(), partition=partition)
            left -= at_once
    await producer.stop()


def _command_s(worker: WorkerConfig) -> tuple[float, float]:
    """Seconds that the command takes, with the start of Python; and of CPU time."""
    began, began_cpu_s = time.perf_counter(), _children_cpu_s()
    where = ("--bootstrap-servers", worker.bootstrap_servers, "--application", worker.application)
    command = [sys.executable, "-m", "ringfaust", "trace", WANTED, *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took_s = time.perf_counter() - began
    if "evicted to make room for" not in done.stdout:
        raise SystemExit(f"the trace is wrong: {done.stdout} {done.stderr}")
    return took_s, _children_cpu_s() - began_cpu_s


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _search_s(worker: WorkerConfig) -> float:
    """Seconds that the search alone takes, with its connections."""
    began = time.perf_counter()
    found = await trace(
        WANTED, since_ms=int((time.time() - 3_600) * 1000),
        bootstrap_servers=worker.bootstrap_servers, application=worker.application,
    )  # fmt: skip
    if len(found.lifecycles) != 1:
        raise SystemExit(f"the trace is wrong: {found}")
    return time.perf_counter() - began


def main() -> None:
    """Run the benchmark on a broker of its own."""
    out = Console()
    table = Table("lines per record", "search", "fastest command", "command", "its CPU")
    medians = []
    with EmbeddedBroker() as broker:
        for at_once in LINES_PER_RECORD:
            worker = WorkerConfig(
                application=f"bench-{at_once}", bootstrap_servers=broker.bootstrap_servers
            )
            asyncio.run(_fill(worker, at_once))
            searches = [asyncio.run(_search_s(worker)) for _ in range(ROUNDS)]
            commands = [_command_s(worker) for _ in range(ROUNDS)]
            walls, cpus = zip(*commands, strict=True)
            medians.append(statistics.median(walls))
            seconds = (
                statistics.median(searches), min(walls), medians[-1], statistics.median(cpus),
            )  # fmt: skip
            table.add_row(str(at_once), *(f"{each:.2f} s" for each in seconds))
    out.print(table)
    out.print(f"goal: {GOAL_S} s; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    sys.exit(max(medians) > GOAL_S)


if __name__ == "__main__":
    main()
