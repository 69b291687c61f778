"""A ring job on a broker: what is sent to it, and what it writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol import headers as h
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import Role
from ringfaust.testing.process import Process, WorkerProcess
from tests.spark.topics import all_records, write_records

PARTITIONS = 4
RINGS = 16
RING_SIZE = 50
CREDIT = 5
"""Credit of the consumer that every fourth ring has; it never settles."""
_DEADLINE_S = 300
_POLL_S = 0.5
"""A poll opens a consumer or reads a topic, which takes CPU time from the job."""


class RingHarness:
    """One application on a broker."""

    def __init__(self, folder: Path, servers: str, application: str, hop: str = "auto") -> None:
        self.folder = folder
        self.servers = servers
        self.application = application
        self._repartitions = hop == "always"
        route = f"{{topic: {application}.sent, queue: 'r.{{key}}', hop: {hop}}}"
        (folder / "queues.yaml").write_text(
            f"routes: [{route}]\n"
            f"queues: {{'r.*': {{ring_size: {RING_SIZE}, consumer_timeout: 0}}}}\n"
        )
        (folder / "worker.yaml").write_text(
            f"{{application: {application}, partitions: {PARTITIONS}, "
            f"bootstrap_servers: '{servers}', data_dir: '{folder}/data'}}\n"
        )
        self.config, queues = load(folder)
        asyncio.run(create_topics(self.config, queues))

    def job(self, *more: str) -> Process:
        """A job in a process of its own, not started yet."""
        return Process(self.arguments(*more), self.folder / "job.log")

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        """A worker of the application, for the block."""
        worker = WorkerProcess(self.folder, self.folder / "worker.log")
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()

    def arguments(self, *more: str) -> list[str]:
        """The command line of the job."""
        checkpoint = str(self.folder / "checkpoint")
        return [
            "spark", "ring", "--config", str(self.folder), "--checkpoint", checkpoint,
            "--tasks", "2", *more,
        ]  # fmt: skip

    # --- in ---------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach a consumer to every fourth ring."""
        for ring in range(0, RINGS, 4):
            self.command(f"r.{ring}", type="attach", consumer="c", credit=CREDIT)

    def command(self, queue: str, **fields: Any) -> None:
        """Write a control command to the queue's partition."""
        value = json.dumps({"v": 1, "queue": queue, **fields}).encode()
        partition = self.partition(queue)
        self.write(
            [{"topic": self.config.topic(Role.CONTROL), "value": value, "partition": partition}]
        )

    def partition(self, queue: str) -> int:
        """The partition a queue lives in."""
        return partition_of(queue if self._repartitions else queue.removeprefix("r."), PARTITIONS)

    def send(self, first: int, count: int) -> None:
        """Send `count` records to each ring; their values are their numbers."""
        topic, numbers = (
            f"{self.application}.sent",
            product(range(first, first + count), range(RINGS)),
        )
        self.write({"topic": topic, "value": b"%d" % n, "key": b"%d" % ring} for n, ring in numbers)

    def write(self, records: Iterable[dict[str, Any]]) -> None:
        """See `write_records`."""
        asyncio.run(write_records(self.servers, records))

    # --- out --------------------------------------------------------------------------------------

    def count(self, role: Role) -> int:
        """How many records a topic has."""

        async def ask() -> int:
            async with AIOKafkaConsumer(bootstrap_servers=self.servers) as consumer:
                tps = [TopicPartition(self.config.topic(role), p) for p in range(PARTITIONS)]
                return sum((await consumer.end_offsets(tps)).values())

        return asyncio.run(ask())

    def read(self, role: Role) -> list[Any]:
        """All records of a topic, each partition in order."""
        return all_records(self.config, self.config.topic(role))


@contextmanager
def paused(session: int) -> Iterator[None]:
    """Pause all processes of a session, which is the first one's process id, for the block."""
    os.killpg(session, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(session, signal.SIGCONT)


def until(done: Callable[[], bool], process: Process | None = None) -> None:
    """Wait until `done`, as long as the process runs."""
    deadline = time.monotonic() + _DEADLINE_S
    while not done():
        if process is not None:
            process.check()
        assert time.monotonic() < deadline, f"no progress for {_DEADLINE_S} s"
        time.sleep(_POLL_S)


def lines(records: Sequence[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of the events topic with their partition."""
    for record in records:
        for text in record.value.splitlines():
            yield record.partition, json.loads(text)


def check_evicted(records: Sequence[Any], sent: int) -> None:
    """Each ring evicted, in order, all but its newest messages and the delivering ones."""
    by_ring: dict[str, list[int]] = {}
    for record in records:
        queue = dict(record.headers)[h.QUEUE].decode()
        by_ring.setdefault(queue, []).append(int(record.value))
    for ring in range(RINGS):
        delivering = CREDIT if ring % 4 == 0 else 0
        wanted = list(range(delivering, sent - RING_SIZE))
        assert by_ring.get(f"r.{ring}", []) == wanted, f"ring {ring}"


def check_dispatched(records: Sequence[Any]) -> None:
    """Each consumer got the first messages of its ring, each once."""
    by_ring: dict[str, list[int]] = {}
    for record in records:
        queue = dict(record.headers)[h.QUEUE].decode()
        by_ring.setdefault(queue, []).append(int(record.value))
    assert by_ring == {f"r.{ring}": list(range(CREDIT)) for ring in range(0, RINGS, 4)}


def check_events(records: Sequence[Any], sent: int) -> None:
    """Every record was added once, and no step is missing."""
    added: Counter[str] = Counter()
    steps: dict[int, set[int]] = {}
    for partition, line in lines(records):
        steps.setdefault(partition, set()).add(line["step"])
        if line["event"] == "added":
            added[line["source"]] += 1
    assert set(added.values()) == {1} and len(added) == sent * RINGS
    for partition, seen in steps.items():
        assert seen == set(range(1, max(seen) + 1)), f"partition {partition}"
