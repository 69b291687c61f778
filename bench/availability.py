"""`python -m bench.availability`: how long a consumer waits when something around it changes.

Two workers, four partitions, and in each one ring, a consumer, and 50 messages a second. For each
change the longest time between two messages of a consumer is noted: for rings whose worker stays,
for rings that move, and before the change ("steady").
"""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml
from rich.console import Console
from rich.table import Table

from bench.processes import Process
from ringfaust.client import RingConsumer, RingProducer
from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker

PARTITIONS = 4
MESSAGES_PER_S = 50
STEADY_S = 8.0
CHANGED_S = 25.0
STOPPED_S = 16.0
_POLL_S = 0.1
_DEADLINE_S = 60.0
_ASSIGNED = re.compile(r"assigned: (.*)")
Silences = dict[int, float]
"""By partition: the longest time between two messages, in seconds."""


class Workers:
    """The worker processes of one application, by number."""

    def __init__(self, folder: Path, servers: str) -> None:
        self._folder = folder
        self.servers = servers
        self._starts: dict[int, int] = {}
        self.running: dict[int, Process] = {}
        config = {"application": "available", "bootstrap_servers": servers}
        settings = config | {"partitions": PARTITIONS}
        (folder / "worker.yaml").write_text(yaml.safe_dump(settings))
        routes = [{"topic": "in", "queue": "{key}"}]
        rings = {"queues": {"#": {"ring_size": 1_000}}, "routes": routes}
        (folder / "queues.yaml").write_text(yaml.safe_dump(rings))

    async def create_topics(self) -> None:
        """Create the topics of the application."""
        await create_topics(*load(self._folder))

    def start(self, number: int) -> None:
        """Start a worker; the same number has the same data directory."""
        start = self._starts[number] = self._starts.get(number, 0) + 1
        command: list[str | Path] = [
            sys.executable, "-m", "ringfaust", "worker", "--config", self._folder,
            "--data-dir", self._folder / f"data-{number}",
        ]  # fmt: skip
        self.running[number] = Process(command, self._folder / f"worker-{number}-{start}.log")

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to a worker."""
        self.running[number].signal(what)

    def owners(self) -> dict[int, int]:
        """By partition: the number of the worker that has it, as their logs say."""
        found: dict[int, int] = {}
        for number, process in self.running.items():
            assigned = _ASSIGNED.findall(process.log.read_text(errors="replace"))
            for name in assigned[-1].split("; ") if assigned else ():
                if name.startswith("partition "):
                    found[int(name.removeprefix("partition "))] = number
        return found

    def stop(self) -> None:
        """End all workers."""
        for process in self.running.values():
            process.kill()


class Change(NamedTuple):
    """Something that happens to the workers."""

    name: str
    workers: int
    """How many run before it."""
    make: Callable[[Workers], Coroutine[Any, Any, None]]


async def _kill(workers: Workers) -> None:
    workers.running.pop(1).kill()


async def _restart(workers: Workers) -> None:
    workers.running[1].kill()
    workers.start(1)


async def _pause(workers: Workers) -> None:
    workers.signal(1, signal.SIGSTOP)
    await asyncio.sleep(STOPPED_S)
    workers.signal(1, signal.SIGCONT)


async def _terminate(workers: Workers) -> None:
    workers.signal(1, signal.SIGTERM)


async def _join(workers: Workers) -> None:
    workers.start(1)


CHANGES = (
    Change("kill -9 of a worker, the other takes over", 2, _kill),
    Change("kill -9 of a worker, restarted at once", 2, _restart),
    Change(f"SIGSTOP of a worker for {STOPPED_S:.0f} s", 2, _pause),
    Change("SIGTERM of a worker", 2, _terminate),
    Change("a worker joins", 1, _join),
)


class Rings:
    """A ring in each partition, its producer, and its consumer."""

    def __init__(self) -> None:
        found = {partition_of(f"ring-{n}".encode(), PARTITIONS): f"ring-{n}" for n in range(99)}
        self.names = [found[number] for number in range(PARTITIONS)]
        self._received_s: dict[int, list[float]] = {}
        self.silences: Silences = {}

    def begin(self) -> None:
        """Begin a span of time."""
        now_s = time.monotonic()
        self._received_s = {number: [now_s] for number in range(PARTITIONS)}

    def end(self) -> Silences:
        """The silences of the span."""
        now_s = time.monotonic()
        return {
            number: max(after - before for before, after in zip(at, [*at[1:], now_s], strict=True))
            for number, at in self._received_s.items()
        }

    async def send(self, servers: str) -> None:
        """Send to all rings, until cancelled."""
        async with RingProducer(bootstrap_servers=servers, application="available") as producer:
            next_s = time.monotonic()
            while True:
                await asyncio.gather(*(producer.send("in", b"x", key=name) for name in self.names))
                next_s = max(next_s + 1 / MESSAGES_PER_S, time.monotonic() - 1)
                await asyncio.sleep(next_s - time.monotonic())

    async def consume(self, servers: str, number: int) -> None:
        """Consume a ring, until cancelled."""
        options: dict[str, Any] = {"bootstrap_servers": servers, "application": "available"}
        async with RingConsumer(self.names[number], partition=number, **options) as consumer:
            async for message in consumer:
                self._received_s.setdefault(number, []).append(time.monotonic())
                await message.ack()

    @asynccontextmanager
    async def busy(self, servers: str) -> AsyncIterator[None]:
        """Send and consume while the block runs."""
        tasks = [asyncio.ensure_future(self.send(servers))]
        tasks += [asyncio.ensure_future(self.consume(servers, n)) for n in range(PARTITIONS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def are_served(self) -> bool:
        """Whether each consumer has got something in this span."""
        return all(len(self._received_s.get(n, ())) > 1 for n in range(PARTITIONS))


class Found(NamedTuple):
    """The longest silences of one change, in seconds; None: there was no such ring."""

    steady: float
    stays: float | None
    moves: float | None


async def _until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_DEADLINE_S:.0f} s: {what}")
        await asyncio.sleep(_POLL_S)


async def measure(change: Change, workers: Workers) -> Found:
    """Carry load through one change."""
    rings = Rings()
    await workers.create_topics()
    for number in range(change.workers):
        workers.start(number)
    await _until(
        lambda: (
            len({*workers.owners().values()}) == change.workers
            and len(workers.owners()) == PARTITIONS
        ),
        "each worker has partitions",
    )
    async with rings.busy(workers.servers):
        rings.begin()
        await _until(rings.are_served, "each ring is served")
        await asyncio.sleep(STEADY_S)
        rings.begin()
        await asyncio.sleep(STEADY_S)
        steady, before = max(rings.end().values()), workers.owners()
        rings.begin()
        await change.make(workers)
        await asyncio.sleep(CHANGED_S)
        silences, after = rings.end(), workers.owners()
    # What worker 1 has, or had, is what the change concerns.
    moved = {n for n in range(PARTITIONS) if 1 in (before[n], after.get(n))}
    stays = [silences[n] for n in silences if n not in moved]
    moves = [silences[n] for n in moved]
    return Found(steady, max(stays, default=None), max(moves, default=None))


@contextmanager
def _workers() -> Iterator[Workers]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        workers = Workers(Path(folder), broker.bootstrap_servers)
        try:
            yield workers
        finally:
            workers.stop()


def main(
    rounds: Annotated[int, typer.Option(help="How often each change is made.")] = 3,
    only: Annotated[str, typer.Option(help="Part of the name of the changes to make.")] = "",
) -> None:
    """Measure how long consumers wait when workers change."""
    out = Console()
    table = Table("change", "steady (s)", "worker stays (s)", "ring moves (s)")
    for change in CHANGES:
        if only not in change.name:
            continue
        found = []
        for number in range(rounds):
            with _workers() as workers:
                found.append(asyncio.run(measure(change, workers)))
            out.print(f"{change.name}, round {number + 1}: {found[-1]}", highlight=False)
        table.add_row(change.name, *(_median(each) for each in zip(*found, strict=True)))
    out.print(table)


def _median(values: tuple[float | None, ...]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.2f}" if known else ""


if __name__ == "__main__":
    typer.run(main)
