"""Worker and job process the same command log to the same output, record by record.

The scenario files are played on a real worker. Then a job reads the same topics from the beginning
and appends its output to the same topics.

Files with a commit are left out: a commit writes to several topics at the same time, and nothing
defines which of them comes first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from ringfaust.config import load as load_config
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.faust import FaustHarness
from ringfaust.testing.scenario.grammar import Scenario
from ringfaust.testing.scenario.reading import load
from tests.spark.chosen_scenarios import CHOSEN, FILES
from tests.spark.shared_session import run

OUTPUTS = (Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES)


def read(servers: str, application: str, begins: Mapping[Role, int]) -> dict[Role, list[Any]]:
    """The end of each output topic, and all committed records from `begins` on."""

    async def consume() -> dict[Role, list[Any]]:
        found: dict[Role, list[Any]] = {}
        async with AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level="read_committed"
        ) as consumer:
            for role in OUTPUTS:
                tp = TopicPartition(f"{application}.{role}", 0)
                consumer.assign([tp])
                consumer.seek(tp, begins.get(role, 0))
                end = (await consumer.end_offsets([tp]))[tp]
                records: list[Any] = []
                while await consumer.position(tp) < end:
                    records += (await consumer.getmany(tp, timeout_ms=500)).get(tp, [])
                found[role] = [end, records]
        return found

    return asyncio.run(consume())


@pytest.mark.kafka
@pytest.mark.parametrize(
    "names",
    [CHOSEN, pytest.param(sorted(FILES), marks=pytest.mark.slow)],
    ids=["chosen scenarios", "all scenarios"],
)
def test_worker_and_job_write_the_same_records(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, names: Sequence[str]
) -> None:
    servers = broker.bootstrap_servers
    harness = FaustHarness(servers)
    try:
        for name in names:
            scenario = load(FILES[name])
            if not (scenario.crashes() or commits(scenario) or may_lag(scenario)):
                harness.play(scenario)
        harness.stop_worker()
        application = load_config(harness.folder)[0].application
        by_worker = read(servers, application, {})
        ends = {role: end for role, (end, _) in by_worker.items()}
        folders = ["--config", str(harness.folder), "--checkpoint", str(tmp_path)]
        run(spark, "spark", "ring", *folders, "--once", "--take-over")
        by_job = read(servers, application, ends)
    finally:
        harness.close()
    for role in OUTPUTS:
        worker, job = plain(role, by_worker[role][1]), plain(role, by_job[role][1])
        for number, (one, other) in enumerate(zip(worker, job, strict=False)):
            assert one == other, f"{role} {number}"
        assert len(worker) == len(job) > 0


def commits(scenario: Scenario) -> bool:
    return any(step.kind == "commit" for step in scenario.steps)


def may_lag(scenario: Scenario) -> bool:
    """Whether messages may lag. Then the client polls for it, and answers come at random times."""
    pauses = any(step.kind == "pause" and step.what.what == "pulling" for step in scenario.steps)
    return pauses or "'block'" in str(scenario)


def plain(role: Role, records: list[Any]) -> list[Any]:
    if role is not Role.EVENTS:
        return [(record.key, record.value, record.headers) for record in records]
    return [json.loads(line) for record in records for line in record.value.splitlines()]
