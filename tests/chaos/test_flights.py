"""The load of the demo with a worker that is killed: every flight has one outcome.

Slow, so not in `make test`: `.venv/bin/pytest -m slow tests/chaos/test_flights.py`.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from ringfaust.config import WorkerConfig, load
from ringfaust.config.topics import create_topics
from ringfaust.demo.flights import read_flights, replay
from ringfaust.demo.flights_run import write_config
from ringfaust.kafka.offsets import group_offsets
from ringfaust.testing.accounts.prove import prove
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DEADLINE_S = 120
KILLS = [(60_000, False), (150_000, True), (240_000, False)]
"""After how many evictions the worker is killed, and whether its data is deleted too."""


async def test_every_flight_has_one_outcome(broker: EmbeddedBroker, tmp_path: Path) -> None:
    write_config(tmp_path, "flights-killed", broker.bootstrap_servers, "flights-killed.flights")
    config, queues = load(tmp_path)
    await create_topics(config, queues)
    flights = read_flights()
    rings = {flight.key for flight in flights}
    worker = WorkerProcess(tmp_path, tmp_path / "log")
    worker.start()
    client = {"bootstrap_servers": broker.bootstrap_servers}
    try:
        async with AIOKafkaProducer(**client) as producer, AIOKafkaConsumer(**client) as reader:
            topic = queues.routes[0].topic
            sending = asyncio.ensure_future(replay(producer, topic, config.partitions, flights))
            ends = [TopicPartition(config.topic("evicted"), n) for n in range(config.partitions)]

            async def evicted(at_least: int) -> None:
                deadline = time.monotonic() + DEADLINE_S
                while sum((await reader.end_offsets(ends)).values()) < at_least:
                    assert time.monotonic() < deadline, f"fewer than {at_least:,} evictions in time"
                    await asyncio.sleep(0.02)

            for count, wipe in KILLS:
                await evicted(count)
                worker.kill()
                if wipe:
                    shutil.rmtree(config.data_dir)
                worker.start()
            await sending
            deadline = time.monotonic() + DEADLINE_S
            while await _read_by_the_worker(config, topic) < len(flights):
                assert time.monotonic() < deadline, "not all flights were read in time"
                await asyncio.sleep(0.2)
    finally:
        worker.stop()  # an orderly stop commits the batch in flight
    proof = await prove(config, [topic])
    assert proof.faults == []
    assert proof.balanced
    assert sum(row.counts.added for row in proof.accounts.values()) == len(flights)
    assert sum(row.counts.ready for row in proof.accounts.values()) <= 50 * len(rings)


async def _read_by_the_worker(config: WorkerConfig, topic: str) -> int:
    """How many flights have been read and committed, over all partitions."""
    client = {"bootstrap_servers": config.bootstrap_servers}
    tps = [(topic, number) for number in range(config.partitions)]
    offsets = await group_offsets(client, config.application, tps)
    return sum(found.offset for found in offsets.values())
