"""`python -m bench.availability`: how long a consumer waits when something around it changes.

Two workers, four partitions, and in each one ring, a consumer, and 50 messages a second. For each
change the longest time between two messages of a consumer is noted: for rings whose worker stays,
for rings that move, and before the change ("steady"). On one broker and on three, without other
messages and with a queue of many in each partition. The output is a Markdown table for each.
`--streams` measures a Kafka Streams application instead, which has the same load, a store, and a
standby.

A round takes about a minute. All rows, three rounds each, take about 100 minutes, and 1,000,000
messages in each of four partitions some minutes before.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from bench.brokers import brokers_of
from bench.streams import StreamsWorkers
from bench.workers import NAME, PARTITIONS, RingWorkers, Workers, in_each_partition, until

MESSAGES_PER_S = 50
STEADY_S = 8.0
CHANGED_S = 25.0
STOPPED_S = 16.0
Silences = dict[int, float]
"""By partition: the longest time between two messages, in seconds."""


class Change(NamedTuple):
    """Something that happens to the workers."""

    name: str
    workers: int
    """How many run before it."""
    make: Callable[[Workers], Awaitable[None]]
    moves: str = "worker 1"
    """Whose rings may move: those of worker 1, all, or none."""
    brokers: int = 1
    """How many it needs."""
    is_general: bool = True
    """Whether it happens to the workers of any system."""
    is_upgrade: bool = False
    """Whether it begins with workers of the last release."""


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
    assert isinstance(workers, RingWorkers)
    await workers.apply_changes()


async def _roll(workers: Workers) -> None:
    for number in sorted(workers.running):
        await workers.restart_in_order(number)


async def _upgrade(workers: Workers) -> None:
    assert isinstance(workers, RingWorkers)
    workers.use_this_version()
    await _roll(workers)


async def _lose_a_broker(workers: Workers) -> None:
    workers.brokers.kill_last()


CHANGES = (
    Change("kill -9 of a worker, the other takes over", 2, _kill),
    Change("kill -9 of a worker, restarted at once", 2, _restart),
    Change(f"SIGSTOP of a worker for {STOPPED_S:.0f} s", 2, _pause),
    Change("SIGTERM of a worker", 2, _terminate),
    Change("a worker joins", 1, _join),
    Change("`apply` of queue, pattern, route and sizes", 2, _apply, "none", is_general=False),
    Change("rolling restart of all workers", 2, _roll, "all"),
    Change(
        "from the last release to this version, worker by worker", 2, _upgrade, "all",
        is_general=False, is_upgrade=True,
    ),
    Change("loss of a broker that leads nothing", 2, _lose_a_broker, "none", 3, is_general=False),
)  # fmt: skip


class Rings:
    """A ring in each partition, its producer, and its consumer."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._names = in_each_partition("ring")
        self._received_s: dict[int, list[float]] = {}

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

    async def _send(self) -> None:
        async with self._workers.producer() as send:
            next_s = time.monotonic()
            while True:
                await asyncio.gather(*map(send, self._names))
                next_s = max(next_s + 1 / MESSAGES_PER_S, time.monotonic() - 1)
                await asyncio.sleep(next_s - time.monotonic())

    async def _consume(self, number: int) -> None:
        async for _ in self._workers.received(number, self._names[number]):
            self._received_s.setdefault(number, []).append(time.monotonic())

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Send and consume while the block runs."""
        tasks = [asyncio.ensure_future(self._send())]
        tasks += [asyncio.ensure_future(self._consume(number)) for number in range(PARTITIONS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()  # an error is not taken for a silence

    def are_served(self) -> bool:
        """Whether each consumer has got something in this span."""
        return all(len(self._received_s.get(n, ())) > 1 for n in range(PARTITIONS))


class Found(NamedTuple):
    """The longest silences of one change, in seconds; None: there was no such ring."""

    steady: float
    stays: float | None
    moves: float | None


async def prepare(workers: Workers, messages: int) -> None:
    """Create the topics, and fill the queues."""
    await workers.create_topics()
    if messages:
        assert isinstance(workers, RingWorkers)
        await workers.fill(messages)


async def measure(change: Change, workers: Workers) -> Found:
    """Carry load through one change."""
    rings = Rings(workers)
    await workers.brokers.are_complete(NAME)
    if change.is_upgrade:
        assert isinstance(workers, RingWorkers)
        await asyncio.to_thread(workers.use_last_release)
    for number in range(change.workers):
        workers.start(number)
    async with rings.busy():
        has_standbys = change.workers > 1 and not change.is_upgrade
        await workers.until_settled(change.workers, has_standbys=has_standbys)
        rings.begin()
        await until(rings.are_served, "each ring is served")
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
def _workers(brokers: int, kind: type[Workers]) -> Iterator[Workers]:
    with tempfile.TemporaryDirectory() as folder, brokers_of(brokers) as running:
        workers = kind(Path(folder), running)
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
    streams: Annotated[bool, typer.Option(help="Measure Kafka Streams instead.")] = False,
) -> None:
    """Measure how long consumers wait when something around them changes."""
    if streams and messages:
        raise typer.BadParameter("Kafka Streams is measured without other messages")
    kind = StreamsWorkers if streams else RingWorkers
    for count in brokers or (1, 3):
        changes = [each for each in CHANGES if only in each.name and each.brokers <= count]
        changes = [each for each in changes if each.is_general or not streams]
        for others in messages or ((0,) if streams else (0, 1_000_000)):
            found: dict[str, list[Found]] = {each.name: [] for each in changes}
            with _workers(count, kind) as workers:
                asyncio.run(prepare(workers, others))
                for change in changes:
                    for number in range(rounds):
                        found[change.name].append(asyncio.run(measure(change, workers)))
                        said = f"{change.name}, round {number + 1}: {found[change.name][-1]}"
                        print(said, file=sys.stderr, flush=True)
            print("\n".join(table(count, others, found)), flush=True)


if __name__ == "__main__":
    typer.run(main)
