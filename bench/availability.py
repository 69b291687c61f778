"""`python -m bench.availability`: how long a consumer waits when something around it changes.

Two workers, four partitions, and in each one ring, a consumer, and 50 messages a second. For each
change the longest time between two messages of a consumer is noted: for rings whose worker stays,
for rings that move, and before the change ("steady"). On one broker and on three, without other
messages and with a queue of many in each partition. The output is a Markdown table for each.

A round takes about a minute. All rows, three rounds each, take about 100 minutes, and 1,000,000
messages in each of four partitions some minutes before.
"""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml
from aiokafka import AIOKafkaProducer

from bench.brokers import Brokers, brokers_of
from bench.processes import Process
from ringfaust.client import Admin, RingConsumer, RingProducer, StatusReader
from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol.partitioner import partition_of

PARTITIONS = 4
MESSAGES_PER_S = 50
STEADY_S = 8.0
CHANGED_S = 25.0
STOPPED_S = 16.0
NAME = "available"
_POLL_S = 0.1
_DEADLINE_S = 120.0
_FILL_DEADLINE_S = 1_800.0
_FILL_BYTES = 256 * 1024
_ASSIGNED = re.compile(r"assigned: (.*)")
_READY = re.compile(r"INFO ready: ")
Silences = dict[int, float]
"""By partition: the longest time between two messages, in seconds."""


def in_each_partition(name: str) -> list[str]:
    """A key for each partition."""
    found = {partition_of(f"{name}.{n}".encode(), PARTITIONS): f"{name}.{n}" for n in range(99)}
    return [found[number] for number in range(PARTITIONS)]


class Workers:
    """The worker processes of one application, by number."""

    def __init__(self, folder: Path, brokers: Brokers) -> None:
        self._folder = folder
        self.brokers = brokers
        self.servers = brokers.servers
        self._starts: dict[int, int] = {}
        self._queues: dict[str, Any] = {"#": {"ring_size": 1_000}, "full.*": {"ring_size": -1}}
        self.running: dict[int, Process] = {}
        config = {"application": NAME, "bootstrap_servers": self.servers}
        settings = config | {"partitions": PARTITIONS}
        (folder / "worker.yaml").write_text(yaml.safe_dump(settings))
        self._write_queues()

    def _write_queues(self) -> None:
        routes = [{"topic": "in", "queue": "{key}"}]
        content = {"queues": self._queues, "routes": routes}
        (self._folder / "queues.yaml").write_text(yaml.safe_dump(content))

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

    async def restart_in_order(self, number: int) -> None:
        """As a rolling update does it: SIGTERM, the end, a new start, ready again."""
        await asyncio.to_thread(self.running.pop(number).stop)
        self.start(number)
        log = self.running[number].log
        await _until(lambda: bool(_READY.search(log.read_text(errors="replace"))), "it is ready")

    async def apply_a_queue(self) -> None:
        """Add a queue to queues.yaml, and apply it."""
        self._queues[f"new-{len(self._queues)}"] = {"ring_size": 10}
        self._write_queues()
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "ringfaust",
            "apply",
            "--yes",
            "--config",
            self._folder,
        ]
        applying = Process(command, self._folder / "apply.log")
        await asyncio.to_thread(applying.wait)

    def owners(self) -> dict[int, int]:
        """By partition: the number of the worker that has it, as their logs say."""
        found: dict[int, int] = {}
        for number, process in self.running.items():
            assigned = _ASSIGNED.findall(process.log.read_text(errors="replace"))
            for name in assigned[-1].split("; ") if assigned else ():
                if name.startswith("partition "):
                    found[int(name.removeprefix("partition "))] = number
        return found

    async def until_settled(self, workers: int) -> None:
        """Wait until each worker has partitions, and each partition a standby if there are two."""
        await _until(
            lambda: len({*self.owners().values()}) == workers and len(self.owners()) == PARTITIONS,
            "each worker has partitions",
        )
        async with StatusReader(bootstrap_servers=self.servers, application=NAME) as status:

            def followed() -> set[int]:
                now_ms = int(time.time() * 1000)
                live = [each for each in status.workers() if not each.is_stale(now_ms)]
                return {n for each in live for n, behind in each.standbys.items() if behind == 0}

            if workers > 1:
                await _until(lambda: len(followed()) == PARTITIONS, "standbys are caught up")

    def stop(self) -> None:
        """End all workers, in order, so that the next change begins without them."""
        for process in self.running.values():
            process.stop()
        self.running.clear()


class Change(NamedTuple):
    """Something that happens to the workers."""

    name: str
    workers: int
    """How many run before it."""
    make: Callable[[Workers], Coroutine[Any, Any, None]]
    moves: str = "worker 1"
    """Whose rings may move: those of worker 1, all, or none."""
    brokers: int = 1
    """How many it needs."""


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
    await asyncio.to_thread(workers.running.pop(1).stop)


async def _join(workers: Workers) -> None:
    workers.start(1)


async def _apply(workers: Workers) -> None:
    await workers.apply_a_queue()


async def _roll(workers: Workers) -> None:
    for number in sorted(workers.running):
        await workers.restart_in_order(number)


async def _lose_a_broker(workers: Workers) -> None:
    workers.brokers.kill_last()


CHANGES = (
    Change("kill -9 of a worker, the other takes over", 2, _kill),
    Change("kill -9 of a worker, restarted at once", 2, _restart),
    Change(f"SIGSTOP of a worker for {STOPPED_S:.0f} s", 2, _pause),
    Change("SIGTERM of a worker", 2, _terminate),
    Change("a worker joins", 1, _join),
    Change("`apply` of a queue", 2, _apply, "none"),
    Change("rolling restart of all workers", 2, _roll, "all"),
    Change("loss of a broker that leads nothing", 2, _lose_a_broker, "none", 3),
)


class Rings:
    """A ring in each partition, its producer, and its consumer."""

    def __init__(self) -> None:
        self.names = in_each_partition("ring")
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
        async with RingProducer(bootstrap_servers=servers, application=NAME) as producer:
            next_s = time.monotonic()
            while True:
                await asyncio.gather(*(producer.send("in", b"x", key=name) for name in self.names))
                next_s = max(next_s + 1 / MESSAGES_PER_S, time.monotonic() - 1)
                await asyncio.sleep(next_s - time.monotonic())

    async def consume(self, servers: str, number: int) -> None:
        """Consume a ring, until cancelled."""
        options: dict[str, Any] = {"bootstrap_servers": servers, "application": NAME}
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


async def fill(workers: Workers, messages: int) -> None:
    """Have a queue with so many messages in each partition, which nobody consumes."""
    names = in_each_partition("full")
    async with AIOKafkaProducer(
        bootstrap_servers=workers.servers, linger_ms=20, max_batch_size=_FILL_BYTES
    ) as producer:
        for _ in range(messages):
            for name in names:
                await producer.send("in", b"x" * 100, name.encode())
        await producer.flush()
    async with Admin(bootstrap_servers=workers.servers, application=NAME) as admin:
        deadline_s = time.monotonic() + _FILL_DEADLINE_S
        while True:
            found = {each.queue: each.counts["added"] for each in await admin.queues("full.#")}
            if found == dict.fromkeys(names, messages):
                return
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not read: {found}")
            await asyncio.sleep(1)


async def prepare(workers: Workers, messages: int) -> None:
    """Create the topics, and fill the queues."""
    await workers.create_topics()
    if messages:
        workers.start(0)
        workers.start(1)
        await fill(workers, messages)
        workers.stop()


async def measure(change: Change, workers: Workers) -> Found:
    """Carry load through one change."""
    rings = Rings()
    await workers.brokers.are_complete(NAME)
    for number in range(change.workers):
        workers.start(number)
    async with rings.busy(workers.servers):
        await workers.until_settled(change.workers)
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
    workers.stop()
    moved = _moved(change.moves, before, after)
    stays = [silences[n] for n in silences if n not in moved]
    moves = [silences[n] for n in moved]
    return Found(steady, max(stays, default=None), max(moves, default=None))


def _moved(whose: str, before: dict[int, int], after: dict[int, int]) -> set[int]:
    """The rings that the change concerns."""
    if whose == "worker 1":  # what it has, or had
        return {n for n in range(PARTITIONS) if 1 in (before[n], after.get(n))}
    return {*range(PARTITIONS)} if whose == "all" else set()


@contextmanager
def _workers(brokers: int) -> Iterator[Workers]:
    with tempfile.TemporaryDirectory() as folder, brokers_of(brokers) as running:
        workers = Workers(Path(folder), running)
        try:
            yield workers
        finally:
            for process in workers.running.values():
                process.kill()


def table(brokers: int, messages: int, found: dict[str, list[Found]]) -> list[str]:
    """The medians, as lines of Markdown."""
    return [
        f"{brokers} broker{'s' * (brokers > 1)}, {messages:,} other messages per partition:",
        "",
        "| change | steady (s) | rings whose worker stays | rings that move |",
        "|---|---|---|---|",
        *(
            f"| {name} | {' | '.join(_median(each) for each in zip(*rounds, strict=True))} |"
            for name, rounds in found.items()
        ),
        "",
    ]


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.2f}" if known else ""


def main(
    rounds: Annotated[int, typer.Option(help="How often each change is made.")] = 3,
    only: Annotated[str, typer.Option(help="Part of the name of the changes to make.")] = "",
    brokers: Annotated[list[int] | None, typer.Option(help="Default: 1 and 3.")] = None,
    messages: Annotated[
        list[int] | None, typer.Option(help="Others per partition. Default: 0 and 1000000.")
    ] = None,
) -> None:
    """Measure how long consumers wait when something around them changes."""
    for count in brokers or (1, 3):
        changes = [each for each in CHANGES if only in each.name and each.brokers <= count]
        for others in messages or (0, 1_000_000):
            found: dict[str, list[Found]] = {each.name: [] for each in changes}
            with _workers(count) as workers:
                asyncio.run(prepare(workers, others))
                for change in changes:
                    for number in range(rounds):
                        found[change.name].append(asyncio.run(measure(change, workers)))
                        said = f"{change.name}, round {number + 1}: {found[change.name][-1]}"
                        print(said, file=sys.stderr, flush=True)
            print("\n".join(table(count, others, found)), flush=True)


if __name__ == "__main__":
    typer.run(main)
