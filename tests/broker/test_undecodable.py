"""A record that the Kafka client itself cannot decode does not stop a partition."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as PurePythonBuilder
from faust.types import TP

from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol.headers import UNDECODABLE_CONTENT
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.faust.fetcher import Fetcher
from ringfaust.worker.faust.transport import BatchApp
from ringfaust.worker.interfaces import Batch
from ringfaust.worker.partition.orders import open_orders

pytestmark = pytest.mark.kafka


class BadName(str):
    """Encodes to bytes that are not UTF-8."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff\xfe"


@pytest.fixture
async def topics(broker: EmbeddedBroker) -> tuple[str, str]:
    names = (f"bad-{uuid.uuid4().hex[:8]}", f"good-{uuid.uuid4().hex[:8]}")
    async with connected_admin({"bootstrap_servers": broker.bootstrap_servers}) as admin:
        await admin.create_topics([NewTopic(name, 1, 1) for name in names])
    return names


async def _produce(broker: EmbeddedBroker, topic: str, count: int, bad: set[int]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for start in range(0, count, 500):
            batch = producer.create_batch()
            batch._builder = PurePythonBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
            for number in range(start, start + 500):
                raw = [(BadName("bad") if number in bad else "fine", b"x")]
                batch.append(timestamp=1, key=None, value=b"%d" % number, headers=raw)
            await producer.send_batch(batch, topic, partition=0)


@pytest.fixture(params=[0, 300], ids=lambda latency_ms: f"{latency_ms}ms")
def latency_ms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay each fetch, as if the broker were far away or busy."""
    fetch = Fetcher._fetch_from

    async def later(*args: Any) -> None:
        await asyncio.sleep(request.param / 1000)
        await fetch(*args)

    monkeypatch.setattr(Fetcher, "_fetch_from", later)


class FromTheBeginning:
    """Reads all that is assigned, from offset 0."""

    def __init__(
        self, app: BatchApp, topics: tuple[str, str], offer: Callable[[Batch], None]
    ) -> None:
        self._app = app
        self.topics = frozenset(topics)
        self.offer = offer

    async def on_assigned(self, tps: frozenset[TP], standbys: frozenset[int]) -> None:
        for tp in tps:
            await self._app.reader.seek(tp, 0)

    async def on_stop(self, *, is_orderly: bool) -> None: ...

    def on_unreadable(self, tp: TP) -> None: ...


async def test_a_batch_that_expands_too_far_is_skipped(
    broker: EmbeddedBroker, topics: tuple[str, str], tmp_path: object
) -> None:
    """R116. The client expanded every batch, whatever its size."""
    bomb, good = topics
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        batch = producer.create_batch()
        gzip = 1
        batch._builder = PurePythonBuilder(2, gzip, 0, -1, -1, 0, 1 << 30)
        for _ in range(4):
            batch.append(timestamp=1, key=None, value=bytes(10_000_000))
        await (await producer.send_batch(batch, bomb, partition=0))
        await producer.send_and_wait(bomb, b"behind", partition=0)
        await producer.send_and_wait(good, b"good", partition=0)
    app = BatchApp(
        f"g{uuid.uuid4().hex[:8]}", broker=f"kafka://{broker.bootstrap_servers}",
        datadir=str(tmp_path), broker_max_poll_records=300,
    )  # fmt: skip
    seen: dict[str, list[Any]] = {bomb: [], good: []}
    app.listener = FromTheBeginning(
        app, topics, lambda batch: seen[batch.tp.topic].extend(batch.records)
    )
    async with asyncio.timeout(60):
        await app.start()
        while sum(map(len, seen.values())) < 6:
            await asyncio.sleep(0.05)
    await app.stop()
    assert [record.offset for record in seen[bomb]] == list(range(5))
    for record in seen[bomb][:4]:
        ((name, text),) = record.headers
        assert name == UNDECODABLE_CONTENT
        assert b"expands to more than 33,554,432 bytes" in text
    assert [record.value for record in (seen[bomb][4], seen[good][0])] == [b"behind", b"good"]


@pytest.mark.usefixtures("latency_ms")
async def test_an_undecodable_record_is_skipped_and_nothing_else(
    broker: EmbeddedBroker, topics: tuple[str, str], tmp_path: object
) -> None:
    bad_topic, good_topic = topics
    bad = {0, 700, 701, 1999}
    await _produce(broker, bad_topic, 2000, bad)
    await _produce(broker, good_topic, 2000, set())
    app = BatchApp(
        f"g{uuid.uuid4().hex[:8]}", broker=f"kafka://{broker.bootstrap_servers}",
        datadir=str(tmp_path), broker_max_poll_records=300,
    )  # fmt: skip
    seen: dict[TP, list[tuple[int, bool]]] = {}

    def read(batch: Batch) -> None:
        for record in batch.records:
            is_bad = any(name == UNDECODABLE_CONTENT for name, _ in record.headers)
            seen.setdefault(batch.tp, []).append((record.offset, is_bad))

    app.listener = FromTheBeginning(app, topics, read)
    async with asyncio.timeout(60):
        await app.start()
        while sum(map(len, seen.values())) < 4000:
            await asyncio.sleep(0.05)
    await app.stop()
    # The client cannot continue within a batch, so the records behind a bad one are skipped too.
    skipped = {*range(500), *range(700, 1000), 1999}
    assert seen[TP(bad_topic, 0)] == [(at, at in skipped) for at in range(2000)]
    assert seen[TP(good_topic, 0)] == [(offset, False) for offset in range(2000)]


async def test_an_order_behind_an_undecodable_record_is_not_missed(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    control, replies = topics
    client = {"bootstrap_servers": broker.bootstrap_servers}
    orders = await open_orders(0, control, replies, 1, client)
    try:
        await _produce(broker, control, 500, {0, 70})
        async with AIOKafkaProducer(**client) as producer:
            await producer.send_and_wait(
                control, b'{"type":"retry_partition","partition":"0"}', partition=0
            )
        async with asyncio.timeout(60):
            assert (await orders.next("0")).type == "retry_partition"
    finally:
        await orders.close()
