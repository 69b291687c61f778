"""A real worker with a real broker: routes, the hop, control and replies, start and stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from ringfaust.client import Admin
from ringfaust.config import WorkerConfig, load
from ringfaust.config.topics import create_topics
from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol.partitioner import murmur2
from ringfaust.testing.broker import EmbeddedBroker

pytestmark = pytest.mark.kafka

DEADLINE_S = 60
QUEUES = """
routes:
  - {{topic: {name}-keyed, queue: "device.{{key}}"}}
  - {{topic: {name}-any, queue: "far.{{header:to}}"}}
queues:
  "device.*": {{ring_size: 2}}
  "far.*": {{ring_size: 2}}
  "far.open": {{ring_size: -1, window: 3}}
"""


class Bench:
    """An application of its own: topics, worker process, producer, and readers of all outputs."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.folder = folder
        (folder / "queues.yaml").write_text(QUEUES.format(name=self.name))
        worker = {
            "application": self.name,
            "bootstrap_servers": servers,
            "partitions": 3,
            "data_dir": str(folder / "state"),
            "session_timeout_ms": 6000,
        }
        (folder / "worker.yaml").write_text(json.dumps(worker))
        self.config: WorkerConfig = load(folder)[0]
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a worker process."""
        words = command or ("-m", "ringfaust", "worker", "--config", str(self.folder))
        environment = os.environ | {"RINGFAUST_CONFIG": str(self.folder)}
        process = subprocess.Popen([sys.executable, *words], env=environment)
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """Kill the worker processes."""
        for process in self.processes:
            process.kill()
            process.wait()

    async def read(self, role: str, count: int, queue: str = "") -> list[ConsumerRecord]:
        """The first `count` records of an output topic, or of a queue there, in their order."""
        found: list[ConsumerRecord] = []
        async with self.reader(role) as reader:
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < count:
                    for records in (await reader.getmany(timeout_ms=200)).values():
                        found += [r for r in records if queue in ("", _headers(r).get("queue"))]
        return found

    @asynccontextmanager
    async def reader(self, role: str) -> AsyncIterator[AIOKafkaConsumer]:
        reader = AIOKafkaConsumer(
            self.config.topic(role),
            bootstrap_servers=self.config.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await reader.start()
        try:
            yield reader
        finally:
            await reader.stop()

    async def send(self, topic: str, value: str, key: str | None = None, **headers: str) -> None:
        """Send a message; `_` in the name of a header becomes `-`."""
        await self.producer.send_and_wait(
            f"{self.name}-{topic}",
            value.encode(),
            key.encode() if key else None,
            headers=[(name.replace("_", "-"), text.encode()) for name, text in headers.items()],
        )

    async def control(self, key: str, **command: Any) -> dict[str, Any]:
        """Send a control command with the queue's key. Returns its reply."""
        reply = uuid.uuid4().hex
        value = json.dumps({**command, "reply": reply}).encode()
        await self.producer.send_and_wait(self.config.topic("control"), value, key.encode())
        async with self.reader("replies") as reader, asyncio.timeout(DEADLINE_S):
            async for record in reader:
                if record.key == reply.encode():
                    return dict(json.loads(record.value))
        raise AssertionError


@pytest.fixture
async def bench(broker: EmbeddedBroker, tmp_path: Path) -> AsyncIterator[Bench]:
    """An application of the test's own, without a worker yet."""
    bench = Bench(broker.bootstrap_servers, tmp_path)
    await create_topics(*load(tmp_path))
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as bench.producer:
        yield bench
    bench.kill()


@pytest.fixture(scope="module")
def running(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """An application with a worker."""
    bench = Bench(broker.bootstrap_servers, tmp_path_factory.mktemp("shared"))
    with ThreadPoolExecutor(1) as pool:  # this thread may have a running event loop
        pool.submit(asyncio.run, create_topics(*load(bench.folder))).result()
    bench.start()
    yield bench
    bench.kill()


@pytest.fixture
async def shared(running: Bench) -> AsyncIterator[Bench]:
    """For tests that use queues of their own."""
    servers = running.config.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as running.producer:
        yield running


def _headers(record: ConsumerRecord) -> dict[str, str]:
    return {name.removeprefix("ringfaust-"): value.decode() for name, value in record.headers}


async def test_a_ring_per_key_needs_no_hop(shared: Bench) -> None:
    for number in range(4):
        await shared.send("keyed", f"v{number}", "d7", colour="blue")
    evicted = await shared.read("evicted", 2, "device.d7")
    assert [record.value for record in evicted] == [b"v0", b"v1"]
    partition = (murmur2(b"d7") & 0x7FFFFFFF) % 3
    assert {record.partition for record in evicted} == {partition}
    headers = _headers(evicted[0])
    assert headers["queue"] == "device.d7"
    assert headers["reason"] == "overflow"
    assert headers["cause"] == f"{shared.name}-keyed/{partition}/2"
    assert headers["source"] == f"{shared.name}-keyed/{partition}/0"
    assert (headers["ring-size"], headers["ready"], headers["colour"]) == ("2", "2", "blue")
    listing = await shared.control("d7", type="list", queue="device.d7")
    assert listing["answer"]["ready"] == [f"{shared.name}-keyed/{partition}/{n}" for n in (2, 3)]
    assert listing["answer"]["counts"]["evicted"] == 2


async def test_the_hop_brings_all_messages_of_a_queue_to_one_partition(shared: Bench) -> None:
    for number in range(6):
        await shared.producer.send_and_wait(
            f"{shared.name}-any", b"v%d" % number, None, partition=number % 3,
            headers=[("to", b"a"), ("ringfaust-id", b"m%d" % number)],
        )  # fmt: skip
    evicted = await shared.read("evicted", 4, "far.a")
    partition = (murmur2(b"far.a") & 0x7FFFFFFF) % 3
    assert {record.partition for record in evicted} == {partition}
    sources = {_headers(record)["source"].rsplit("/", 2)[0] for record in evicted}
    assert sources == {f"{shared.name}-any"}
    listing = await shared.control("far.a", type="list", queue="far.a")
    everyone = {_headers(record)["id"] for record in evicted} | set(listing["answer"]["ready"])
    assert everyone == {f"m{number}" for number in range(6)}
    assert listing["answer"]["counts"]["added"] == 6


async def test_a_window_dispatches_without_a_consumer_and_control_settles(shared: Bench) -> None:
    for number in range(5):
        await shared.send("any", f"v{number}", "one key", to="open", ringfaust_id=f"m{number}")
    dispatched = await shared.read("dispatched", 3, "far.open")
    assert [_headers(record)["id"] for record in dispatched] == ["m0", "m1", "m2"]
    headers = _headers(dispatched[0])
    assert (headers["consumer"], headers["attempt"], headers["handovers"]) == ("@window", "1", "1")
    settle = {"queue": "far.open", "consumer": "@window"}
    assert (await shared.control("far.open", type="ack", message="m0", **settle))["ok"]
    again = await shared.control("far.open", type="ack", message="m0", **settle)
    assert (again["ok"], again["reason"]) == (False, "stale_delivery")
    assert (await shared.control("far.open", type="release", message="m1", **settle))["ok"]
    dispatched = await shared.read("dispatched", 5, "far.open")
    assert [_headers(record)["id"] for record in dispatched[3:]] == ["m3", "m1"]
    assert _headers(dispatched[4])["redelivered"] == "1"


async def test_state_and_time_survive_a_graceful_restart(bench: Bench) -> None:
    process = bench.start()
    await bench.send("keyed", "now", "k", ringfaust_id="now")
    await _event(bench, "added", lambda event: event["id"] == "now")  # the worker is up: it counts
    await bench.send("keyed", "late", "k", ringfaust_delay_ms="5000", ringfaust_id="late")
    await _event(bench, "scheduled", lambda event: event["id"] == "late")
    listing = await bench.control("k", type="list", queue="device.k")
    assert listing["answer"]["scheduled"] == ["late"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=15) == 0
    bench.start()
    await bench.send("keyed", "more", "k")
    await bench.control("k", type="attach", queue="device.k", consumer="c", credit=9)
    dispatched = await bench.read("dispatched", 3)
    assert [record.value for record in dispatched] == [b"now", b"more", b"late"]


async def test_messages_expire_and_consumers_time_out_without_new_records(shared: Bench) -> None:
    await shared.send("any", "soon gone", to="gone", ringfaust_ttl_ms="300")
    dead = await shared.read("dead", 1, "far.gone")
    assert _headers(dead[0])["reason"] == "expired"
    await shared.control(
        "k", type="create_queue", queue="mine", settings={"consumer_timeout": 500, "ring_size": 5}
    )
    await shared.control("k", type="attach", queue="mine", consumer="silent", credit=1)
    await _event(shared, "detached", lambda event: event["timeout"] and event["queue"] == "mine")


async def _event(bench: Bench, kind: str, holds: Any) -> dict[str, Any]:
    async with bench.reader("events") as reader, asyncio.timeout(DEADLINE_S):
        async for record in reader:
            for line in record.value.splitlines():
                event = json.loads(line)
                if event["event"] == kind and holds(event):
                    return dict(event)
    raise AssertionError


async def test_the_command_line_of_faust_starts_a_worker(bench: Bench) -> None:
    bench.start("-m", "faust", "-A", "ringfaust.worker.faust_app", "worker", "--without-web")
    for number in range(3):
        await bench.send("keyed", f"v{number}", "k")
    assert [record.value for record in await bench.read("evicted", 1)] == [b"v0"]


async def test_the_command_line_of_faust_uses_what_was_applied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R128. With a file that was changed since, it could not join the group of the workers."""
    bench.start()
    for number in range(3):
        await bench.send("keyed", f"v{number}", "k")
    await bench.read("evicted", 1)
    servers = bench.config.bootstrap_servers
    async with Admin(bootstrap_servers=servers, application=bench.name) as admin:
        await admin.apply(load(bench.folder)[1].document())
    text = QUEUES.format(name=bench.name).replace("ring_size: 2", "ring_size: 5")
    (bench.folder / "queues.yaml").write_text(text)
    monkeypatch.setenv("RINGFAUST_DATA_DIR", str(bench.folder / "other"))
    bench.start("-m", "faust", "-A", "ringfaust.worker.faust_app", "worker", "--without-web")
    await _joined(bench, 2)


def test_the_command_line_of_faust_says_a_mistake_in_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "faust", "-A", "ringfaust.worker.faust_app", "worker"]
    environment = os.environ | {"RINGFAUST_CONFIG": str(tmp_path / "missing")}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.startswith(f"ringfaust: {tmp_path / 'missing'} cannot be used")
    assert "Traceback" not in done.stderr


async def _joined(bench: Bench, count: int) -> None:
    """Wait until the group of workers has so many members."""
    members: list[Any] = []
    async with (
        connected_admin(bench.config.client_options()) as admin,
        asyncio.timeout(DEADLINE_S),
    ):
        while len(members) != count:
            (found,) = await admin.describe_consumer_groups([bench.name])
            members = found.groups[0][5]
            await asyncio.sleep(0.1)


@pytest.fixture(autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    before = _workers()
    yield
    assert _workers() <= before


def _workers() -> set[str]:
    """The ids of the workers that this process has started and that still run."""
    command = ["ps", "-eo", "ppid,pid,args"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    mine = [line.split(None, 2) for line in lines if "ringfaust worker" in line]
    return {pid for parent, pid, _ in mine if parent == str(os.getpid())}
