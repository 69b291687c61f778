"""Faust and Spark on the same command log: equal, record by record.

The log is that of the scenario files, played to a real worker. Then a job reads the same topics
from their beginning, at once, and writes to the same outputs behind what the worker wrote.

Left out are files with a commit: it writes to several topics in one moment, and which of them goes
first is nobody's promise.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.config import load as load_config
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.faust import FaustHarness
from ringfaust.testing.scenario.grammar import Scenario
from ringfaust.testing.scenario.reading import load

FILES = sorted(Path(__file__).parents[1].joinpath("scenarios").glob("*.yaml"))
OUTPUTS = (Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES)


def read(servers: str, application: str, begins: Mapping[Role, int]) -> dict[Role, list[Any]]:
    """All committed records from `begins` on; of events the lines."""

    async def consume() -> dict[Role, list[Any]]:
        found: dict[Role, list[Any]] = {}
        async with AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level="read_committed"
        ) as consumer:
            for role in OUTPUTS:
                place = TopicPartition(f"{application}.{role}", 0)
                consumer.assign([place])
                consumer.seek(place, begins.get(role, 0))
                end = (await consumer.end_offsets([place]))[place]
                records: list[Any] = []
                while await consumer.position(place) < end:
                    records += (await consumer.getmany(place, timeout_ms=500)).get(place, [])
                found[role] = [end, records]
        return found

    return asyncio.run(consume())


@pytest.mark.kafka
def test_the_same_log_gives_the_same_records(broker: EmbeddedBroker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    stage = FaustHarness(servers)
    try:
        for path in FILES:
            scenario = load(path)
            if not (scenario.crashes() or commits(scenario) or may_lag(scenario)):
                stage.play(scenario)
        application = load_config(stage.folder)[0].application
        by_worker = read(servers, application, {})
        ends = {role: end for role, (end, _) in by_worker.items()}
        command = [sys.executable, "-m", "ringfaust", "spark", "ring", "--config", stage.folder]
        subprocess.run([*command, "--checkpoint", tmp_path, "--once"], check=True, timeout=600)
        by_job = read(servers, application, ends)
    finally:
        stage.close()
    for role in OUTPUTS:
        worker, job = plain(role, by_worker[role][1]), plain(role, by_job[role][1])
        for number, (one, other) in enumerate(zip(worker, job, strict=False)):
            assert one == other, f"{role} {number}"
        assert len(worker) == len(job) > 0


def commits(scenario: Scenario) -> bool:
    return any(step.kind == "commit" for step in scenario.steps)


def may_lag(scenario: Scenario) -> bool:
    """Then its client asks whether it does, and when that is answered is decided by chance."""
    pauses = any(step.kind == "pause" and step.what.what == "pulling" for step in scenario.steps)
    return pauses or "'block'" in str(scenario)


def plain(role: Role, records: list[Any]) -> list[Any]:
    if role is not Role.EVENTS:
        return [(record.key, record.value, record.headers) for record in records]
    return [json.loads(line) for record in records for line in record.value.splitlines()]
