"""`python -m bench.lake_cluster`: the lake on executors of their own, and what its driver does.

Executors of one core each, on this machine: one, then two. They share its cores with the driver and
with the broker, so two executors need more than two cores to be twice as fast.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.lake import LINES, WARM_LINES, Cost, cost_of, fill, lake_query
from bench.processes import executors, tree_cpu_s
from ringfaust.config import WorkerConfig
from ringfaust.spark.session import open_session
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.times import wall_ms

EXECUTORS = (1, 2)
EXECUTOR_MB = 2_048


class Run(NamedTuple):
    """One run of the lake with gold."""

    cost: Cost
    executors_cpu_s: float
    """CPU time of the executors' processes, of the cost's."""
    alone_s: float
    """For how long no task ran."""


def _executors_cpu_s() -> float:
    """CPU time of the executors of this process."""
    return sum(tree_cpu_s(of=pid) for pid in executors(os.getsid(0)))


def _tasks(log: Path, since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """When tasks ran, in ms since 1970, according to Spark's event log."""
    for line in log.read_text(encoding="utf-8").splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            began, ended = max(info["Launch Time"], since_ms), min(info["Finish Time"], until_ms)
            if began < ended:
                yield began, ended


def _alone_ms(tasks: Sequence[tuple[int, int]], since_ms: int, until_ms: int) -> int:
    """For how long no task ran."""
    alone_ms, at_ms = 0, since_ms
    for began_ms, ended_ms in sorted(tasks):
        alone_ms += max(0, began_ms - at_ms)
        at_ms = max(at_ms, ended_ms)
    return alone_ms + max(0, until_ms - at_ms)


def _measured(broker: EmbeddedBroker, folder: Path, master: str) -> Run:
    logs = folder / "logs"
    logs.mkdir()
    spark = open_session(
        "bench lake",
        master,
        {
            "spark.executor.memory": f"{EXECUTOR_MB}m",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(logs),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        },
    )
    _read_all(spark, broker, folder / "warm", "warm")
    before_s, since_ms = _executors_cpu_s(), wall_ms()
    cost = _read_all(spark, broker, folder / "lake", "bench")
    until_ms, executors_s = wall_ms(), _executors_cpu_s() - before_s
    spark.stop()
    (log,) = logs.iterdir()
    alone_ms = _alone_ms([*_tasks(log, since_ms, until_ms)], since_ms, until_ms)
    return Run(cost, executors_s, alone_ms / 1000)


def _read_all(spark: SparkSession, broker: EmbeddedBroker, folder: Path, application: str) -> Cost:
    query = lake_query(spark, _worker(broker, application), str(folder), gold=True)
    return cost_of(query, broker.pid or 0)


def _worker(broker: EmbeddedBroker, application: str) -> WorkerConfig:
    return WorkerConfig(application=application, bootstrap_servers=broker.bootstrap_servers)


def main() -> None:
    """Measure the lake on one executor, and on two."""
    out = Console()
    table = Table("on", "lines/s", "CPU µs/line", "of it in executors", "no task runs")
    rates: list[float] = []
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="ringfaust-") as name:
        for application, count in (("warm", WARM_LINES), ("bench", LINES)):
            asyncio.run(fill(_worker(broker, application), count))
        for number in EXECUTORS:
            master = f"local-cluster[{number},1,{EXECUTOR_MB}]"
            folder = Path(name) / str(number)
            folder.mkdir()
            run = _measured(broker, folder, master)
            rates.append(LINES / run.cost.wall_s)
            table.add_row(
                master,
                f"{rates[-1]:,.0f}",
                f"{run.cost.cpu_s / LINES * 1e6:.1f}",
                f"{run.executors_cpu_s / run.cost.cpu_s:.0%}",
                f"{run.alone_s / run.cost.wall_s:.0%}",
            )
    out.print(table)
    out.print(f"two executors against one: {rates[1] / rates[0]:.2f} times the rate")
    out.print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
