"""A trace by key, of records and events that the test writes itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ringfaust.client import trace as tracing
from ringfaust.client.lifecycles import Trace
from ringfaust.client.sentences import left_out
from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.testing.broker import EmbeddedBroker

pytestmark = pytest.mark.kafka
PARTITIONS = 3
REDRIVEN = [("ringfaust-redrives", b"2"), ("ringfaust-redrive-of", b"q/1")]


class Written:
    """An application whose topics have what the test writes."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.name = f"trace{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}.in"
        self.where: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers, "application": self.name,
        }  # fmt: skip
        self._records: list[tuple[int, bytes, list[tuple[str, bytes]]]] = []
        self._next = [0] * PARTITIONS

    def add(self, partition: int, key: bytes = b"k", headers: Any = ()) -> str:
        """A record, and the event of its message."""
        self._records.append((partition, key, list(headers)))
        self._next[partition] += 1
        return f"{self.topic}/{partition}/{self._next[partition] - 1}"

    async def write(self, id_: str = "") -> None:
        worker = WorkerConfig(
            application=self.name, bootstrap_servers=self.where["bootstrap_servers"]
        )
        events = f"{self.name}.events"
        async with open_admin(worker.brokers()) as admin:
            await admin.create(
                [NewTopic(self.topic, PARTITIONS, -1, {}), NewTopic(events, 1, -1, {})]
            )
        producer = AIOKafkaProducer(bootstrap_servers=self.where["bootstrap_servers"])
        await producer.start()
        for number, (partition, key, headers) in enumerate(self._records):
            sent = await producer.send_and_wait(self.topic, b"v", key, partition, headers=headers)
            source = f"{self.topic}/{partition}/{sent.offset}"
            line = {
                "step": number, "event": "added", "queue": "q", "id": id_ or source,
                "sequence": number + 1, "source": source, "priority": 4, "bytes": 2,
                "by": source, "time_ms": number,
            }  # fmt: skip
            await producer.send_and_wait(events, json.dumps(line).encode())
        await producer.stop()

    async def trace(self, target: str = "", **options: Any) -> Trace:
        return await tracing.trace(target, **{"since_ms": 0, **options}, **self.where)


@pytest.fixture
def written(broker: EmbeddedBroker) -> Iterator[Written]:
    yield Written(broker)


async def test_a_key_is_looked_for_in_all_partitions_at_once(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [written.add(partition) for partition in (2, 0, 1)]
    written.add(1, b"other")
    await written.write()
    assigned: list[int] = []
    asked: list[int] = []
    assign, end_offsets = AIOKafkaConsumer.assign, AIOKafkaConsumer.end_offsets

    def spy(consumer: AIOKafkaConsumer, places: Any) -> None:
        assigned.append(len(places))
        assign(consumer, places)

    async def count(consumer: AIOKafkaConsumer, places: Any) -> Any:
        asked.append(len(places))
        return await end_offsets(consumer, places)

    monkeypatch.setattr(AIOKafkaConsumer, "assign", spy)
    monkeypatch.setattr(AIOKafkaConsumer, "end_offsets", count)
    found = await written.trace(key="k", topics=[written.topic])
    assert [each.source for each in found.lifecycles] == sources
    assert assigned == asked == [PARTITIONS, 1], "the producers' topic, then the events"
    assert found.left_out == ()


async def test_many_partitions_are_read_in_parts(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [written.add(partition) for partition in range(PARTITIONS)]
    await written.write()
    monkeypatch.setattr(tracing, "_PARTITIONS_AT_ONCE", 2)
    found = await written.trace(key="k", topics=[written.topic])
    assert [each.source for each in found.lifecycles] == sources


async def test_what_a_trace_by_key_leaves_out_is_said(written: Written) -> None:
    of_0 = [written.add(0, headers=REDRIVEN) for _ in range(23)]
    of_1 = [written.add(1) for _ in range(21)]
    await written.write()
    found = await written.trace(key="k", topics=[written.topic, "no-such-topic"])
    assert [each.source for each in found.lifecycles] == [*of_0[3:], *of_1[1:]]
    assert {each.redrives for each in found.lifecycles[:20]} == {2}, "also of the oldest"
    assert found.left_out == (
        f"earlier records with this key in {written.topic}/0: 3",
        f"earlier records with this key in {written.topic}/1: 1",
        "topic no-such-topic, which does not exist",
    )
    (*_, last) = left_out(found)
    assert last == "  - topic no-such-topic, which does not exist"


async def test_a_trace_by_id_says_of_which_records_it_has_not_read_the_redrives(
    written: Written,
) -> None:
    """Producers have used the id again and again."""
    for _ in range(22):
        written.add(0, headers=REDRIVEN)
    await written.write(id_="again")
    found = await written.trace("again")
    assert [each.redrives for each in found.lifecycles] == [0, 0, *[2] * 20]
    assert found.left_out == ("whether earlier messages were redriven: 2",)


@pytest.mark.parametrize(
    "headers",
    [
        [("ringfaust-redrive-of", b"q/1")],
        [("ringfaust-redrives", b"many"), ("ringfaust-redrive-of", b"q/1")],
        [("ringfaust-redrives", b"2")],
    ],
    ids=["no count", "no number", "copied"],
)
async def test_headers_of_a_producer_that_are_no_redrive_are_none(
    written: Written, headers: list[tuple[str, bytes]]
) -> None:
    source = written.add(0, headers=headers)
    await written.write()
    for asked in ({"target": source}, {"key": "k", "topics": [written.topic]}):
        (found,) = (await written.trace(**asked)).lifecycles
        assert (found.source, found.redrives) == (source, 0)
