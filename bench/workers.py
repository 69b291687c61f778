"""The workers of `bench.availability`, by number: processes that hold a ring in each partition."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiokafka import AIOKafkaProducer

from bench.brokers import Brokers
from bench.processes import Process
from ringfaust.client import Admin, RingConsumer, RingProducer, StatusReader
from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol.partitioner import partition_of
from tests.chaos.release import last_release

PARTITIONS = 4
NAME = "available"
_POLL_S = 0.1
_DEADLINE_S = 120.0
_FILL_DEADLINE_S = 1_800.0
_FILL_BYTES = 256 * 1024
_ASSIGNED = re.compile(r"assigned: (.*)")
_READY = re.compile(r"INFO ready: ")
Send = Callable[[str], Awaitable[object]]
"""Sends a message to a key."""


def in_each_partition(name: str) -> list[str]:
    """A key for each partition."""
    found = {partition_of(f"{name}.{n}".encode(), PARTITIONS): f"{name}.{n}" for n in range(99)}
    return [found[number] for number in range(PARTITIONS)]


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + _DEADLINE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_DEADLINE_S:.0f} s: {what}")
        await asyncio.sleep(_POLL_S)


class Workers(ABC):
    """The workers of one application, whichever system it is."""

    def __init__(self, folder: Path, brokers: Brokers) -> None:
        self.folder = folder
        self.brokers = brokers
        self.servers = brokers.servers
        self._starts: dict[int, int] = {}
        self.running: dict[int, Process] = {}

    @abstractmethod
    async def create_topics(self) -> None:
        """Create the topics of the application."""

    @abstractmethod
    def command(self, number: int) -> list[str | Path]:
        """How a worker is started; the same number has the same data directory."""

    @abstractmethod
    def standbys(self) -> AbstractAsyncContextManager[Callable[[], set[int]]]:
        """Yields a function that returns the partitions that have a standby."""

    @abstractmethod
    def producer(self) -> AbstractAsyncContextManager[Send]:
        """Yields a function that sends to the ring of a key."""

    @abstractmethod
    def received(self, number: int, key: str) -> AsyncIterator[object]:
        """The records of the consumer of one partition, without end."""

    def start(self, number: int) -> None:
        """Start a worker."""
        start = self._starts[number] = self._starts.get(number, 0) + 1
        log = self.folder / f"worker-{number}-{start}.log"
        self.running[number] = Process(self.command(number), log)

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to a worker."""
        self.running[number].signal(what)

    async def restart_in_order(self, number: int) -> None:
        """As a rolling update does it: SIGTERM, the end, a new start, ready again."""
        await asyncio.to_thread(self.running.pop(number).stop)
        self.start(number)
        await until(lambda: bool(_READY.search(self.log(number))), "it is ready")

    def log(self, number: int) -> str:
        """What a worker has written since its start."""
        return self.running[number].log.read_text(errors="replace")

    def owners(self) -> dict[int, int]:
        """By partition: the number of the worker that has it, as their logs say."""
        found: dict[int, int] = {}
        for number in self.running:
            assigned = _ASSIGNED.findall(self.log(number))
            for name in assigned[-1].split("; ") if assigned else ():
                if name.startswith("partition "):
                    found[int(name.removeprefix("partition "))] = number
        return found

    async def until_settled(self, workers: int, *, has_standbys: bool) -> None:
        """Wait until each worker has partitions, and if so, each partition a standby."""
        await until(
            lambda: len({*self.owners().values()}) == workers and len(self.owners()) == PARTITIONS,
            "each worker has partitions",
        )
        if has_standbys:
            async with self.standbys() as followed:
                await until(lambda: len(followed()) == PARTITIONS, "each partition has a standby")

    def stop(self) -> None:
        """End all workers, in order, so that the next change begins without them."""
        for process in self.running.values():
            process.stop()
        self.running.clear()


class RingWorkers(Workers):
    """Those of ringfaust."""

    def __init__(self, folder: Path, brokers: Brokers) -> None:
        super().__init__(folder, brokers)
        self._queues: dict[str, Any] = {"#": {"ring_size": 1_000}, "full.*": {"ring_size": -1}}
        self._topics = ["in"]
        self._python: list[str | Path] = [sys.executable]
        """What runs a worker that is started now."""
        self._client: dict[str, Any] = {"bootstrap_servers": self.servers, "application": NAME}
        settings = self._client | {"partitions": PARTITIONS}
        (folder / "worker.yaml").write_text(yaml.safe_dump(settings))
        self._write_queues()

    def _write_queues(self) -> None:
        routes = [{"topic": topic, "queue": "{key}"} for topic in self._topics]
        content = {"queues": self._queues, "routes": routes}
        (self.folder / "queues.yaml").write_text(yaml.safe_dump(content))

    async def create_topics(self) -> None:
        await create_topics(*load(self.folder))

    def command(self, number: int) -> list[str | Path]:
        return [
            *self._python, "-m", "ringfaust", "worker", "--config", self.folder,
            "--data-dir", self.folder / f"data-{number}",
        ]  # fmt: skip

    @asynccontextmanager
    async def standbys(self) -> AsyncIterator[Callable[[], set[int]]]:
        async with StatusReader(**self._client) as status:

            def followed() -> set[int]:
                now_ms = int(time.time() * 1000)
                live = [each for each in status.workers() if not each.is_stale(now_ms)]
                return {n for each in live for n, behind in each.standbys.items() if behind == 0}

            yield followed

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Send]:
        async with RingProducer(**self._client) as producer:
            yield lambda key: producer.send("in", b"x", key=key)

    async def received(self, number: int, key: str) -> AsyncIterator[object]:
        async with RingConsumer(key, partition=number, **self._client) as consumer:
            async for message in consumer:
                yield message
                await message.ack()

    def use_last_release(self) -> None:
        """Workers that are started now are of the last release."""
        _, python = last_release(Path(tempfile.mkdtemp(dir=self.folder)))
        self._python = [python, "-I"]

    def use_this_version(self) -> None:
        """Workers that are started now are of this tree."""
        self._python = [sys.executable]

    async def apply_changes(self) -> None:
        """Apply a new queue, pattern and route with its topic, and other sizes of the rings."""
        number = len(self._topics)
        self._queues["#"] = {"ring_size": 1_000 + number}
        self._queues |= {f"new-{number}": {"ring_size": 10}, f"all-{number}.*": {"ring_size": 20}}
        self._topics.append(f"in-{number}")
        self._write_queues()
        await self.create_topics()
        command: list[str | Path] = [
            sys.executable, "-m", "ringfaust", "apply", "--yes", "--config", self.folder,
        ]  # fmt: skip
        applying = Process(command, self.folder / "apply.log")
        await asyncio.to_thread(applying.wait)

    async def fill(self, messages: int) -> None:
        """Have a queue with so many messages in each partition, which nobody consumes."""
        names = in_each_partition("full")
        self.start(0)
        self.start(1)
        async with AIOKafkaProducer(
            bootstrap_servers=self.servers, linger_ms=20, max_batch_size=_FILL_BYTES
        ) as producer:
            for _ in range(messages):
                for name in names:
                    await producer.send("in", b"x" * 100, name.encode())
            await producer.flush()
        async with Admin(**self._client) as admin:
            deadline_s = time.monotonic() + _FILL_DEADLINE_S
            while True:
                found = {each.queue: each.counts["added"] for each in await admin.queues("full.#")}
                if found == dict.fromkeys(names, messages):
                    break
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"not read: {found}")
                await asyncio.sleep(1)
        self.stop()
