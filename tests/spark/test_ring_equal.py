"""Worker and job process the same command log to the same output, record by record.

The scenario files are played on a real worker. Then a job reads the same topics from the beginning
and appends its output to the same topics.

Files with a commit are left out: a commit writes to several topics at the same time, and nothing
defines which of them comes first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringfaust.config import WorkerConfig
from ringfaust.config import load as load_config
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.faust import FaustHarness
from ringfaust.testing.scenario.grammar import Scenario
from ringfaust.testing.scenario.reading import load
from tests.spark.chosen_scenarios import CHOSEN, FILES
from tests.spark.shared_session import run
from tests.spark.topics import all_records

OUTPUTS = (Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES)


def read(worker: WorkerConfig) -> dict[Role, list[Any]]:
    """All committed records of each output topic."""
    return {role: all_records(worker, worker.topic(role)) for role in OUTPUTS}


@pytest.mark.kafka
@pytest.mark.parametrize(
    "names",
    [CHOSEN, pytest.param(sorted(FILES), marks=pytest.mark.slow)],
    ids=["chosen scenarios", "all scenarios"],
)
def test_worker_and_job_write_the_same_records(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, names: Sequence[str]
) -> None:
    harness = FaustHarness(broker.bootstrap_servers)
    try:
        for name in names:
            scenario = load(FILES[name])
            if not (scenario.crashes() or commits(scenario) or may_lag(scenario)):
                harness.play(scenario)
        harness.stop_worker()
        config = load_config(harness.folder)[0]
        by_worker = read(config)
        folders = ["--config", str(harness.folder), "--checkpoint", str(tmp_path)]
        run(spark, "spark", "ring", *folders, "--once", "--take-over")
        by_both = read(config)
    finally:
        harness.close()
    for role in OUTPUTS:
        of_worker = by_worker[role]
        worker, job = plain(role, of_worker), plain(role, by_both[role][len(of_worker) :])
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
