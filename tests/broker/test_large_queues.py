"""R114 and R116 on a real worker: what large queues may cost (lines 13 to 16 of issue 14).

`python -m bench.large_worker` measures the same at full size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from rocksdict import Cache

from ringfaust.core.table import Kind
from ringfaust.protocol import stored_rows as stored
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.store.rocks import RocksStore
from tests.broker.clients import DEADLINE_S, Client, application, client_of
from tests.chaos.harness import Application, Worker

pytestmark = pytest.mark.kafka

MIB = 1 << 20
QUEUES = {
    "#": {"ring_size": -1, "consumer_timeout": 0},
    "grouped": {"ring_size": -1, "consumer_timeout": 0, "max_groups": 10},
}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    with application(broker, tmp_path, QUEUES) as app:
        settings = {
            "application": app.worker_config.application, "bootstrap_servers": app.servers,
            "partitions": 1, "session_timeout_ms": 6_000, "cache_bytes": 4 * MIB,
        }  # fmt: skip
        app.write("worker.yaml", settings)
        yield app


def peak_mib(worker: Worker) -> int:
    """The most memory that the worker has ever had."""
    assert worker._process is not None
    status = Path(f"/proc/{worker._process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


async def fill(app: Application, client: Client, queue: str, count: int, size: int) -> None:
    """Send messages, and wait until the worker has them."""
    async with AIOKafkaProducer(
        bootstrap_servers=app.servers, max_batch_size=MIB, linger_ms=20
    ) as producer:
        for number in range(count):
            ours = [("to", queue.encode()), ("ringfaust-id", b"m%d" % number)]
            await producer.send(app.inputs[0], b"x" * size, headers=ours, partition=0)
        await producer.flush()
    await until_counts(client, queue, ready=count)


async def until_counts(client: Client, queue: str, **wanted: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer: dict[str, Any] = (await client.say("list", queue, limit=1))["answer"]
            if wanted.items() <= answer["counts"].items():
                return
            await asyncio.sleep(0.1)


async def test_a_search_keeps_no_ring_in_memory(app: Application) -> None:
    """Line 13: 60 MB of messages are searched, and 4 MiB of them may be cached."""
    worker = app.new_worker()
    async with client_of(app) as client:
        await fill(app, client, "q", 15_000, 4_000)
        before = peak_mib(worker)
        for kind, more in (("remove", {}), ("move", {"to": "other"}), ("deliver_now", {})):
            reply = await client.say(kind, "q", message="nothing", **more)
            assert reply["reason"] == "bad_command", reply
        attached = await client.say("attach", "q", consumer="c", credit=9, selector="a = 1")
        assert attached["ok"]
        assert peak_mib(worker) - before < 40


async def test_deliveries_are_handed_out_and_returned_in_bounded_memory(app: Application) -> None:
    """Line 14: 60 MB of messages go to one consumer, and come back when it leaves."""
    worker = app.new_worker()
    async with client_of(app) as client:
        await fill(app, client, "q", 15_000, 4_000)
        before = peak_mib(worker)
        await client.say("attach", "q", consumer="c", credit=100_000)
        await until_counts(client, "q", delivering=15_000, ready=0)
        await client.say("detach", "q", consumer="c")
        await until_counts(client, "q", delivering=0, ready=15_000)
        # 30 MiB of the peak before depend on how fast the queue was filled.
        assert peak_mib(worker) - before < 180


async def test_the_owners_of_empty_groups_are_forgotten(app: Application) -> None:
    """Line 15: 2,000 groups come and go, and ten owners are remembered."""
    worker = app.new_worker()
    async with client_of(app) as client:
        await client.say("attach", "grouped", consumer="c", credit=1, ack_mode="none")
        async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
            for number in range(2_000):
                ours = [("to", b"grouped"), ("ringfaust-group", b"g%d" % number)]
                await producer.send(app.inputs[0], b"x", headers=ours, partition=0)
            await producer.flush()
        await until_counts(client, "grouped", added=2_000, ready=0)
    assert worker.stop() == 0
    store = RocksStore(worker.data_dir / "partition-0", Cache(MIB))
    prefix = stored.table_prefix(Kind.GROUP, "grouped", 0)
    rows = [key for key, _ in store.items_from(prefix) if key.startswith(prefix)]
    store.close()
    assert len(rows) == 10


async def test_a_hostile_pattern_on_large_headers_delays_nobody_for_long(app: Application) -> None:
    """Line 16: with a matcher that goes back, 40 headers of 800 kB would take minutes."""
    app.new_worker()
    async with client_of(app) as client:
        async with AIOKafkaProducer(
            bootstrap_servers=app.servers, max_request_size=2 * MIB
        ) as producer:
            for _ in range(40):
                ours = [("to", b"q"), ("h", b"a" * 800_000)]
                await producer.send(app.inputs[0], b"x", headers=ours, partition=0)
            await producer.flush()
        await until_counts(client, "q", ready=40)
        selector = "h LIKE '%a%aa%aaa%aaaa%b'"
        assert (await client.say("attach", "q", consumer="c", credit=9, selector=selector))["ok"]
        assert await client.counts("q") | {"ready": 40, "delivering": 0} == await client.counts("q")
