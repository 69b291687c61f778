"""Create, write and read topics on the real broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.kafka.reader import read_whole
from ringfaust.protocol.records import InRecord

KEPT = {"retention.ms": "-1"}
"""Settings of a producers' topic that keeps original times."""


def make_topic(
    worker: WorkerConfig, name: str, partitions: int = 4, settings: dict[str, str] | None = None
) -> None:
    async def make() -> None:
        async with open_admin(worker.brokers()) as admin:
            wanted = NewTopic(name, partitions, -1, KEPT if settings is None else settings)
            await admin.create([wanted])

    asyncio.run(make())


async def write_records(servers: str, records: Iterable[dict[str, Any]]) -> None:
    """Write records, each given as the arguments of a producer's `send`."""
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for record in records:
            await producer.send(**record)


def read_topic(worker: WorkerConfig, topic: str) -> dict[int, list[InRecord]]:
    """The committed records, by partition."""
    found: dict[int, list[InRecord]] = defaultdict(list)

    def take(records: Sequence[InRecord]) -> None:
        found[records[0].partition].extend(records)

    client = {"bootstrap_servers": worker.bootstrap_servers}
    asyncio.run(read_whole(client, [topic], take))
    return dict(found)


def all_records(worker: WorkerConfig, topic: str) -> list[InRecord]:
    return [record for records in read_topic(worker, topic).values() for record in records]
