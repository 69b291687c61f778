"""A ring job as a process of its own, what is sent to it, and what came of that."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol import headers as h
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import Role
from ringfaust.testing.process import Process

PARTITIONS = 4
RINGS = 16
RING_SIZE = 50
CREDIT = 5
"""Of a consumer of every fourth ring, which takes so many and keeps them."""


class Rig:
    """One application on a broker."""

    def __init__(self, folder: Path, servers: str, application: str, hop: str = "auto") -> None:
        self.folder = folder
        self.servers = servers
        self.application = application
        self._hops = hop == "always"
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
        return Process(self._arguments(*more), self.folder / "job.log")

    def run_once(self, *more: str) -> None:
        """A job that ends when it has read all."""
        command = [sys.executable, "-m", "ringfaust", *self._arguments("--once", *more)]
        subprocess.run(command, check=True, timeout=600)

    def _arguments(self, *more: str) -> list[str]:
        checkpoint = str(self.folder / "checkpoint")
        return [
            "spark", "ring", "--config", str(self.folder), "--checkpoint", checkpoint,
            "--tasks", "2", *more,
        ]  # fmt: skip

    # --- in --------------------------------------------------------------------------------------

    def attach(self) -> None:
        """A consumer for every fourth ring."""
        for ring in range(0, RINGS, 4):
            self.command(f"r.{ring}", type="attach", consumer="c", credit=CREDIT)

    def command(self, queue: str, **said: Any) -> None:
        """Write a control command to the queue's partition."""

        async def write() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.servers) as producer:
                await producer.send_and_wait(
                    self.config.topic(Role.CONTROL),
                    json.dumps({"v": 1, "queue": queue, **said}).encode(),
                    partition=self.home(queue),
                )

        asyncio.run(write())

    def home(self, queue: str) -> int:
        """Where it lives: its records are partitioned by their key, or take the hop."""
        return partition_of(queue if self._hops else queue.removeprefix("r."), PARTITIONS)

    def send(self, first: int, count: int) -> None:
        """So many records to each ring; each is its number."""

        async def write() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.servers, linger_ms=5) as producer:
                for number in range(first, first + count):
                    for ring in range(RINGS):
                        await producer.send(
                            f"{self.application}.sent", b"%d" % number, key=b"%d" % ring
                        )

        asyncio.run(write())

    # --- out -------------------------------------------------------------------------------------

    def count(self, role: Role) -> int:
        """How many records the topic has."""

        async def ask() -> int:
            async with AIOKafkaConsumer(bootstrap_servers=self.servers) as consumer:
                places = [TopicPartition(self.config.topic(role), p) for p in range(PARTITIONS)]
                return sum((await consumer.end_offsets(places)).values())

        return asyncio.run(ask())

    def read(self, role: Role) -> list[Any]:
        """All records of the topic; those of a partition in order."""

        async def consume() -> list[Any]:
            found: list[Any] = []
            async with AIOKafkaConsumer(
                bootstrap_servers=self.servers, isolation_level="read_committed"
            ) as consumer:
                for number in range(PARTITIONS):
                    place = TopicPartition(self.config.topic(role), number)
                    consumer.assign([place])
                    consumer.seek(place, 0)
                    end = (await consumer.end_offsets([place]))[place]
                    while await consumer.position(place) < end:
                        found += (await consumer.getmany(place, timeout_ms=500)).get(place, [])
            return found

        return asyncio.run(consume())


def without_repeats(records: Sequence[Any]) -> list[Any]:
    """What a reader of a job's output does: the same record again, to the byte, is dropped."""
    found = {(r.partition, r.key, r.value, r.headers): r for r in reversed(records)}
    return list(reversed(found.values()))


def lines(records: Sequence[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of the events topic with their partition, repeats dropped."""
    known = set()
    for record in records:
        for text in record.value.splitlines():
            if (record.partition, text) not in known:
                known.add((record.partition, text))
                yield record.partition, json.loads(text)


def check_evicted(records: Sequence[Any], sent: int) -> None:
    """Each ring has lost all but its newest and those that its consumer holds, in order."""
    by_ring: dict[str, list[int]] = {}
    for record in records:
        queue = dict(record.headers)[h.QUEUE].decode()
        by_ring.setdefault(queue, []).append(int(record.value))
    for ring in range(RINGS):
        held = CREDIT if ring % 4 == 0 else 0
        wanted = list(range(held, sent - RING_SIZE))
        assert by_ring.get(f"r.{ring}", []) == wanted, f"ring {ring}"


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
