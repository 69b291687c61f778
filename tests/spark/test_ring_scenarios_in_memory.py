"""All scenario files on a job's micro-batches, through the public protocol, without Kafka or Spark.

`test_ring_scenarios` plays some of them on a real job.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock, patch

import pytest

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.catalog import Catalog
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.protocol.headers import QUEUE
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.routes import Route
from ringfaust.spark.ring.micro_batch import BatchRules, JobStart, MicroBatch, OperatorConfig
from ringfaust.testing.scenario import channel
from ringfaust.testing.scenario.channel import ScenarioRecord, WorkerChannel
from ringfaust.testing.scenario.kafka import KafkaScenarioHost
from ringfaust.testing.scenario.partition import ADDRESS, ScenarioPartition, _producer_topics
from ringfaust.testing.scenario.player import play
from ringfaust.testing.scenario.reading import load
from tests.spark.chosen_scenarios import FILES
from tests.spark.test_ring_pages import MemoryPages

WORKER = WorkerConfig(application="app", partitions=1, clock="log")
PROCESSOR = ProcessorConfig(
    control_topic=WORKER.topic(Role.CONTROL),
    repartition_topic="",
    routes=[Route(topic, f"{{header:{QUEUE}}}") for topic in _producer_topics("app")],
    max_record_bytes=WORKER.max_record_bytes,
    log_is_clock=True,
    spread=frozenset(),
)


class Written:
    """An output record."""

    def __init__(self, key: Any, value: Any, headers: Any) -> None:
        self.key, self.value, self.headers = key, value, tuple(headers)


class InMemoryJob(WorkerChannel):
    """A channel whose records go to a micro-batch at once."""

    def __init__(self) -> None:
        clients = ("AIOKafkaConsumer", "AIOKafkaProducer", "TransactionalWriter")
        with patch.multiple(channel, **dict.fromkeys(clients, Mock())):
            super().__init__("nowhere:1", "app", Mock(), answer_seconds=0)
        self._offsets: Counter[str] = Counter()
        self._pages = MemoryPages()
        self._batch = 0
        self._starts = [JobStart(ends={})]

    def crash(self) -> None:
        """Start again with the state of the last micro-batch."""
        self._starts.append(JobStart(ends={}, first_batch=self._batch))

    async def write(
        self, records: Sequence[ScenarioRecord], as_one: bool = False
    ) -> dict[str, ScenarioRecord]:
        return await super().write(records)

    async def abort(self, records: Sequence[ScenarioRecord]) -> None:
        """Only the offsets advance."""
        self._offsets.update(record.topic for record in records)

    async def _write(self, producer: Any, records: Sequence[ScenarioRecord]) -> list[str]:
        taken = []
        for each in records:
            at = self._offsets[each.topic]
            self._offsets[each.topic] += 1
            taken.append(
                FetchedRecord(each.topic, 0, at, 0, 0, each.key, each.value, tuple(each.headers))
            )
        self._run(taken)
        return [f"{record.topic}/0/{record.offset}" for record in taken]

    def _run(self, records: list[FetchedRecord]) -> None:
        catalog = Catalog({"unused": {}}, {}, {f"#{ADDRESS}": {}})
        config = OperatorConfig(
            rules=BatchRules(processor_config=PROCESSOR, catalog=catalog),
            cache_bytes=1 << 20,
            starts=self._starts,
        )
        micro_batch = MicroBatch(config, 0, self._pages, 0, batch=self._batch, new_buffer=list)
        self._batch += 1
        for outputs in micro_batch.run(records):
            for (role, _), written in outputs.items():
                for key, value, headers in written:
                    if role is Role.EVENTS:
                        self._lines += map(json.loads, value.splitlines())
                    elif role is Role.REPLIES:
                        self._replies.append((key.decode(), json.loads(value)))
                    else:
                        self._records[role].append(Written(key, value, headers))
        micro_batch.close()

    async def _until(self, done: Any, seconds: float) -> None:
        assert done(), f"the micro-batch did not write everything: {self._lines}"

    async def _read_to_end(self) -> None:
        pass


class Loop:
    """Runs coroutines."""

    def run(self, coroutine: Any) -> Any:
        return asyncio.run(coroutine)


def redrives(name: str) -> bool:
    """Whether the file redrives messages, for which it reads the topics of a broker."""
    return any(step.kind == "redrive" for step in load(FILES[name]).steps)


@pytest.mark.parametrize("name", [name for name in sorted(FILES) if not redrives(name)])
def test_a_scenario_holds_on_micro_batches(name: str) -> None:
    job = InMemoryJob()
    declared = QueuesConfig.model_validate({"addresses": {f"#{ADDRESS}": {}}})
    partition = ScenarioPartition(Loop(), job, WORKER, declared, job.crash)
    play(load(FILES[name]), KafkaScenarioHost(partition, "file."))
