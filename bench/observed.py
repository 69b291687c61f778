"""`python -m bench.observed`: what status and metrics cost a worker.

The loads of `make bench-quick`, on a worker whose status is published and whose metrics are scraped
at its start and every 15 seconds, and on one without both. They take turns, and begin in turns. The
CPU time of the worker for each message is what other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import yaml
from rich.console import Console
from rich.table import Table

from bench.kafka import Kafka
from bench.model import Figures, Load
from bench.peers.application import Application
from bench.peers.ringfaust import Ringfaust
from bench.processes import Process
from bench.workloads import QUICK, workloads

PORT = 16_066
SCRAPE_S = 15.0
"""As in `compose/`."""
MOST_SLOWER = 0.03


class Observed(Application):
    """Its pages are on, and its metrics are scraped."""

    @contextmanager
    def scraped(self) -> Iterator[None]:
        """Scrape the metrics in a thread."""
        path = self.folder / "worker.yaml"
        settings = yaml.safe_load(path.read_text()) | {"web": {"enabled": True, "port": PORT}}
        path.write_text(yaml.safe_dump(settings))
        ended = threading.Event()
        thread = threading.Thread(target=self._scrape, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _scrape(self, ended: threading.Event) -> None:
        pause_s = 1.0
        while not ended.wait(pause_s):
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60).read()
                pause_s = SCRAPE_S


class _Plain(Application):
    """Nobody can see what its workers do."""

    def worker(self, number: int) -> Process:
        """Start a worker without status and metrics."""
        return Process(
            [sys.executable, "-m", "bench.plain_worker", "worker", "--config", self.folder,
             "--data-dir", self.data_dir(number)],
            self.folder / f"worker-{number}.log",
        )  # fmt: skip


class On(Ringfaust):
    """With status and metrics."""

    name = "on"

    @contextmanager
    def _application(self, load: Load, source: str) -> Iterator[Application]:
        app = Observed(self._kafka, load, source)
        with app.scraped():
            yield app
        self._end(app)


class Off(Ringfaust):
    """Without."""

    name = "off"

    @contextmanager
    def _application(self, load: Load, source: str) -> Iterator[Application]:
        app = _Plain(self._kafka, load, source)
        yield app
        self._end(app)


def _loads() -> list[Load]:
    """The first load of each workload of `make bench-quick`, which all peers carry, in full."""
    by_workload = workloads(1.0)
    return [by_workload[name][0] for name in QUICK]


def _slower(on: Sequence[Figures], off: Sequence[Figures], name: str) -> float:
    """The median over the rounds of what a figure is larger with status and metrics."""
    pairs = zip(on, off, strict=True)
    return statistics.median(ours[name] / theirs[name] for ours, theirs in pairs) - 1


def main() -> None:
    """Measure, and print a table. Exit status 1: they cost more than 3 % of the processor."""
    parser = argparse.ArgumentParser(prog="python -m bench.observed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    table = Table("load", "worker, on", "worker, off", "processor", "rate, on", "rate, off")
    worst = 0.0
    with Kafka() as kafka:
        for load in _loads():
            found: dict[str, list[Figures]] = {"on": [], "off": []}
            turns = [On(kafka), Off(kafka)]
            for _ in range(rounds):
                for peer in turns:
                    found[peer.name].append(peer.run(load))
                turns.reverse()
            more = _slower(found["on"], found["off"], "worker_us")
            worst = max(worst, more)
            columns = [
                statistics.median(figures[name] for figures in found[side])
                for name in ("worker_us", "per_second")
                for side in ("on", "off")
            ]
            table.add_row(
                load.title, f"{columns[0]:.1f} µs", f"{columns[1]:.1f} µs", f"{more:+.1%}",
                f"{columns[2]:,.0f}/s", f"{columns[3]:,.0f}/s",
            )  # fmt: skip
    Console(width=100).print(table)
    print(f"{rounds} rounds; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    sys.exit(worst > MOST_SLOWER)


if __name__ == "__main__":
    main()
