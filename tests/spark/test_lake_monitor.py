"""What a person, Kafka's tools and Prometheus learn about a lake; and how fast it may read."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from pyspark.sql import SparkSession

from ringfaust.config import QueuesConfig, RouteConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.kafka.admin import BrokerRefused, NewTopic, open_admin
from ringfaust.kafka.lag import TimeLeft, time_left, unread
from ringfaust.kafka.names import lake_group
from ringfaust.kafka.offsets import group_offsets
from ringfaust.spark.lake import monitor as monitor_module
from ringfaust.spark.lake.monitor import LakeMonitor
from ringfaust.spark.lake.store import LakeProgress
from ringfaust.spark.lake.stream import lake_session, start, streams
from ringfaust.spark.metrics import MonitorCannotListen
from ringfaust.testing.broker import EmbeddedBroker, free_port
from tests.spark.batched_lake import WORKER, copy_empty
from tests.spark.topics import make_topic

HOUR_MS = 3_600_000
DEADLINE_S = 90


def batch(number: int, records: int, end: int) -> Any:
    """A report of Spark, as far as it is read."""
    said = {
        "batchId": number,
        "durationMs": {"triggerExecution": 1_500},
        "numInputRows": records,
        "sources": [{"endOffset": {"sent": {"0": end}}}],
    }
    return SimpleNamespace(json=json.dumps(said))


def query(*reports: Any) -> Any:
    return SimpleNamespace(recentProgress=reports)


def a_worker(broker: EmbeddedBroker) -> WorkerConfig:
    return WorkerConfig(
        application=f"lag{uuid.uuid4().hex[:6]}",
        bootstrap_servers=broker.bootstrap_servers,
        partitions=2,
    )


async def send(worker: WorkerConfig, topic: str, records: int, at_ms: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=worker.bootstrap_servers) as producer:
        for n in range(records):
            await producer.send(topic, b"%d" % n, partition=0, timestamp_ms=at_ms + n)


def test_each_batch_counts_once_and_prometheus_reads_it() -> None:
    port = free_port()
    worker = WorkerConfig(bootstrap_servers="127.0.0.1:1")
    monitor = LakeMonitor(worker, ["sent"], {}, port)
    monitor.update({"events": query(batch(0, 100, 100))})
    monitor.update({"events": query(batch(0, 100, 100), batch(1, 0, 100), batch(2, 20, 120))})
    monitor.update({"inputs": query(batch(0, 7, 7))})
    assert monitor.summary() == "127 records in 3 batches (events 120, inputs 7)"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'ringfaust_lake_records_total{stream="events"} 120.0' in text
    assert 'ringfaust_lake_batch_seconds_total{stream="events"} 3.0' in text
    with pytest.raises(MonitorCannotListen, match=rf"port {port}.*--metrics-port"):
        LakeMonitor(worker, ["sent"], {}, port)


def test_brokers_that_do_not_answer_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    monitor = LakeMonitor(
        WorkerConfig(bootstrap_servers="127.0.0.1:1"), ["sent"], {"sent": {"0": 1}}
    )
    for _ in range(2):
        monitor.look(now=True)
    said = [text for text in caplog.messages if text.startswith("the lake continues without")]
    assert [" ".join(text.split()[4:6]) for text in said] == [
        "the offsets", "the ends", "the retention",
    ]  # fmt: skip
    assert not monitor.has_read("sent")


def test_a_request_that_fails_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: object) -> None:
        raise BrokerRefused("answer a request about topics", "RequestTimedOutError")

    monkeypatch.setattr(monitor_module, "time_left", refuse)
    LakeMonitor(WorkerConfig(bootstrap_servers="127.0.0.1:1"), ["sent"], {}).look(now=True)
    assert "without the retention of the topics: BrokerRefused" in caplog.messages[-1]


def test_brokers_that_hang_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(monitor_module, "configuration_in_use", hang)
    monkeypatch.setattr(monitor_module, "_PATIENCE_S", 0.01)
    worker = WorkerConfig(bootstrap_servers="127.0.0.1:1")
    LakeMonitor(worker, ["sent"], {}, queues=QueuesConfig()).look_at_routes()
    assert "continues without the configuration: TimeoutError()" in caplog.messages[-1]


def test_a_route_that_is_applied_while_the_lake_runs_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    routes = [RouteConfig(topic=name, queue="q") for name in ("sent", "new")]
    queues = QueuesConfig.model_validate({"routes": routes[:1], "queues": {"q": {}}})

    async def in_use(*_: object) -> InUse:
        applied = queues.model_copy(update={"routes": routes})
        return InUse(applied, applied)

    monkeypatch.setattr(monitor_module, "configuration_in_use", in_use)
    worker = WorkerConfig(bootstrap_servers="127.0.0.1:1")
    for given, told in ((queues, 1), (None, 0)):
        caplog.clear()
        monitor = LakeMonitor(worker, ["sent"], {}, queues=given)
        for _ in range(2):
            monitor.look_at_routes()
        assert sum("start the lake again" in text for text in caplog.messages) == told


@pytest.mark.kafka
def test_lag_and_the_time_until_retention(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = a_worker(broker)
    kept, forever = f"{worker.application}-kept", f"{worker.application}-forever"
    fifty_minutes_ago = int(time.time() * 1000) - HOUR_MS * 5 // 6

    async def prepare() -> None:
        async with open_admin(worker.brokers()) as admin:
            for name, retention in ((kept, str(HOUR_MS)), (forever, "-1")):
                await admin.create([NewTopic(name, 2, 1, {"retention.ms": retention})])
        for name in (kept, forever):
            await send(worker, name, 30, fifty_minutes_ago)

    asyncio.run(prepare())
    topics = (kept, forever)
    read = {kept: {"0": 10}}
    assert asyncio.run(unread(worker.brokers(), topics, read)) == {kept: 20, forever: 30}
    (found,) = asyncio.run(time_left(worker.brokers(), topics, read)).items()
    topic, left = found
    assert (topic, left.retention_s) == (kept, 3_600)
    assert 0 < left.left_s <= 600.01
    assert asyncio.run(time_left(worker.brokers(), topics, {kept: {"0": 30}})) == {}

    monitor = LakeMonitor(worker, topics, read)
    monitor.look()
    (warning,) = [text for text in caplog.messages if "is behind" in text]
    assert f"topic {kept} keeps records for 1.0 h" in warning
    monitor.update({"events": query(batch(0, 20, 30))})
    assert not monitor.has_read(kept)


def test_a_record_that_may_be_deleted_by_now_goes_at_any_moment() -> None:
    assert str(TimeLeft(5_400, 86_400)).endswith("was not read in 1.5 h")
    assert str(TimeLeft(-1, 86_400)).endswith("was not read at any moment")
    assert TimeLeft(5_400, 86_400).is_short
    assert not TimeLeft(5_400, 7_200).is_short


@pytest.mark.kafka
def test_full_batches_follow_one_another(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """With a batch every 30 s, four of them would take longer than the deadline."""
    worker = WORKER.model_copy(update={"bootstrap_servers": broker.bootstrap_servers})
    root, topic = str(tmp_path / "lake"), f"full{uuid.uuid4().hex[:6]}"
    make_topic(worker, topic, 1)
    asyncio.run(send(worker, topic, 100, int(time.time() * 1000)))
    copy_empty(spark, Path(root))
    session = lake_session(spark, root, worker)
    inputs = streams(root, worker, [topic])[-1]
    small = replace(inputs, max_records=20)
    running = start(session, root, worker, small, once=False)
    monitor = LakeMonitor(worker, [topic], {})
    deadline = time.monotonic() + DEADLINE_S
    try:
        while LakeProgress(session, root, inputs.name).batch < 4:
            assert time.monotonic() < deadline, running.status
            running.awaitTermination(0.2)
        while not monitor.has_read(topic):
            assert time.monotonic() < deadline, monitor.summary()
            running.awaitTermination(0.2)
            monitor.update({inputs.name: running})
            monitor.look(now=True)
    finally:
        running.stop()
    assert monitor.summary() == "100 records in 5 batches (inputs 100); 0 offsets not yet read"
    group = lake_group(worker.application)
    (at,) = asyncio.run(group_offsets(worker.client_options(), group, [(topic, 0)])).values()
    assert at.offset == 100
