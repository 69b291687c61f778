"""Mistakes of new users and records of hostile clients: clear errors, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from ringfaust.protocol import headers as h
from ringfaust.testing.accounts.prove import prove
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import delete_group, delete_topics, records_of
from tests.chaos.harness import Application, Worker, environment, until
from tests.chaos.verdict import wait_until_read

pytestmark = pytest.mark.kafka

NOWHERE = "127.0.0.1:19999"
QUEUE = "größe"


def queues(topic: str) -> dict[str, Any]:
    route = {"topic": topic, "queue": "{header:to}", "hop": "never"}
    return {"routes": [route], "queues": {"*": {"ring_size": 100}}}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    """An application with its topics, and no worker yet."""
    topic = f"in-{tmp_path.name}"
    with Application(
        tmp_path / "app", broker.bootstrap_servers, queues(topic), partitions=1
    ) as app:  # fmt: skip
        yield app


def refused(app: Application, servers: str | None = None) -> str:
    """Start a worker that must refuse to run, with exit status 2. Returns its error message."""
    more = ["--bootstrap-servers", servers] if servers else []
    done = app.run("worker", "--config", app.config_dir, "--data-dir", app.folder / "data", *more)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


# --- before it starts ----------------------------------------------------------------------------


def test_a_missing_broker_is_one_line(app: Application) -> None:
    message = refused(app, NOWHERE)
    assert f"No Kafka broker answers at {NOWHERE}" in message
    assert len(message.splitlines()) == 1


UNCHECKED = """
import sys
from pathlib import Path
from ringfaust.config import load
from ringfaust.config.applied import newest_of
from ringfaust.worker.app import _run_faust, create_app
from ringfaust.worker.logs import logging_config
worker, queues = load(Path(sys.argv[1]), data_dir=Path(sys.argv[2]), bootstrap_servers=sys.argv[3])
app = create_app(worker, newest_of([], queues, ""))
try:
    _run_faust(app, logging_config("info", "text"))
finally:
    print("ran in", type(app.loop))
"""
"""A worker that does not ask first, as if the broker had gone just after it had answered."""


def test_a_broker_that_goes_while_a_worker_starts_gives_no_traceback(app: Application) -> None:
    command = [sys.executable, "-c", UNCHECKED, app.config_dir, app.folder / "data", NOWHERE]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.returncode == 1
    assert "Unable to bootstrap" in done.stderr
    assert "ran in <class 'uvloop.Loop'>" in done.stdout  # ADR 61
    assert "Traceback" not in done.stdout + done.stderr


def test_a_missing_topic_is_named(app: Application) -> None:
    app.write("queues.yaml", queues("odrers"))
    assert "Topic odrers, which a route of queues.yaml reads, does not exist" in refused(app)


def test_a_wrong_number_of_partitions_is_explained(app: Application) -> None:
    worker = app.worker_config
    settings = {"application": worker.application, "bootstrap_servers": app.servers}
    app.write("worker.yaml", {**settings, "partitions": 3})
    message = refused(app)
    assert "has 1 partition, but `partitions` in worker.yaml is 3" in message
    assert "hop: always" in message  # for the producer's own topic


# --- while it runs -------------------------------------------------------------------------------


class Client:
    """Writes any bytes, and reads the results."""

    def __init__(self, app: Application, **options: Any) -> None:
        self.app = app
        self._producer = AIOKafkaProducer(
            bootstrap_servers=app.servers, max_request_size=4 << 20, enable_idempotence=True,
            **options,
        )  # fmt: skip

    async def __aenter__(self) -> Client:
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def send(
        self, value: bytes | None, *headers: tuple[str, bytes | None], to: bytes = QUEUE.encode()
    ) -> str:
        """Send a message. Returns its source."""
        return await self._put(self.app.inputs[0], value, [("to", to), *headers])

    async def control(self, value: bytes | None) -> str:
        return await self._put(self.app.topic("control"), value, [])

    async def _put(self, topic: str, value: bytes | None, headers: list[Any]) -> str:
        sent = await self._producer.send_and_wait(
            topic, value, key=b"key", headers=headers, partition=0
        )
        return f"{sent.topic}/{sent.partition}/{sent.offset}"

    async def dead(self) -> dict[str, dict[str, str]]:
        """The headers of each dead record, by source."""
        found = {}
        for record in await records_of(self.app, "dead"):
            headers = {name: (raw or b"").decode(errors="replace") for name, raw in record.headers}
            found[headers[h.SOURCE]] = headers
        return found

    async def ask(self, **fields: Any) -> dict[str, Any]:
        """Send a command after everything before it was read. Returns its reply."""
        await wait_until_read(self.app, 30)
        reply = f"reply-{time.monotonic_ns()}"
        await self.control(json.dumps({**fields, "reply": reply}).encode())
        await wait_until_read(self.app, 30)
        found = [r for r in await records_of(self.app, "replies") if r.key == reply.encode()]
        assert len(found) == 1
        return dict(json.loads(found[0].value or b""))


CODECS = ("gzip", "snappy", "lz4", "zstd")
"""Those of Kafka. None of them may need another package."""


async def test_undecodable_and_oversized_records_stop_nothing(app: Application) -> None:
    """The good ones behind them are compressed, with each codec."""
    worker = app.new_worker()
    async with Client(app) as client:
        start = b'{"type":"configure","queue":"q","settings":'
        deep = start + b'{"a":' * 10_000 + b"1" + b"}" * 10_001
        long = start + b'{"ring_size":%s}}' % (b"9" * 4_000)
        bad = {
            await client.send(b"x" * 2_000_000): ("too_large", "2000"),
            await client.send(b"", ("big", b"x" * 2_000_000)): ("too_large", "at most"),
            await client.send(b"", *[("", None)] * 70_000): ("too_large", "70001 headers"),
            await client.send(b"", (h.PRIORITY, b"abc")): ("undecodable", "from 0 to 9"),
            await client.send(b"", to=b"\xff\xfe"): ("undecodable", "is not UTF-8"),
            await client.send(b"", (h.ID, b"a\0b")): ("undecodable", "none of them NUL"),
            await client.send(b"", (h.ID, b"x" * 100_000)): ("undecodable", "at most 512"),
            await client.send(b"", (h.DELAY_MS, b"9" * 400)): ("undecodable", "whole number"),
            await client.send(b"", to=b""): ("undecodable", "from 1 to 249"),
            await client.control(b"\x00\xff\xfe\x80garbage"): ("undecodable", "Invalid JSON"),
            await client.control(b"x" * 1_900_000): ("too_large", "at most 900000"),
            await client.control(b"x" * 70_000): ("too_large", "the limit is 65536"),
            await client.control(b'["list"]'): ("undecodable", "an object"),
            await client.control(b'{"type":"atach","queue":"q"}'): ("undecodable", "attach"),
            await client.control(b'{"type":"pause","queue":"q"}'): ("undecodable", "what"),
            await client.control(deep): ("undecodable", "recursion"),
            await client.control(None): ("undecodable", "needs a JSON value"),
            await client.control(b'{"type":"list","queue":"a\\u0000b"}'): ("undecodable", "queue"),
        }
        await client.control(long)
        for number, codec in enumerate(CODECS):
            async with Client(app, compression_type=codec) as other:
                named = (h.ID, f"nr-{number}ß".encode())
                await other.send(b"good" * 100, ("null", None), named)
        listed = (await client.ask(type="list", queue=QUEUE))["answer"]
        assert listed["ready"] == [f"nr-{number}ß" for number in range(len(CODECS))]
        dead = await client.dead()
        for source, (reason, text) in bad.items():
            assert dead[source][h.REASON] == reason, dead[source]
            assert text in dead[source][h.TEXT]
        assert dead.keys() == bad.keys()
        refusal = await client.ask(type="list", queue="nowhere.at.all")
        assert (refusal["ok"], refusal["reason"]) == (False, "unknown_queue")
    assert worker.alive
    proof = await prove(app.worker_config, app.inputs)
    assert proof.balanced, proof.problems()
    assert (proof.inputs, proof.undecodable) == (9 + len(CODECS), 9)
    assert worker.stop() == 0
    assert "Traceback" not in worker.log_text()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that a test may stop."""
    with EmbeddedBroker(data_dir=tmp_path / "kafka") as running:
        yield running


@pytest.fixture
def own_app(own_broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    """An application on a broker that may be stopped."""
    topic = f"in-{tmp_path.name}"
    with Application(
        tmp_path / "app", own_broker.bootstrap_servers, queues(topic), partitions=1
    ) as app:
        yield app


async def test_a_worker_survives_10_s_without_a_broker_and_stops_without_one(
    own_broker: EmbeddedBroker, own_app: Application
) -> None:
    worker = own_app.new_worker()
    async with Client(own_app) as client:
        await client.send(b"before")
        await wait_until_read(own_app, 30)
    before = len(worker.log_text().splitlines())
    await asyncio.to_thread(own_broker.stop)
    await asyncio.sleep(10)
    await asyncio.to_thread(own_broker.start)
    async with Client(own_app) as client:
        await client.send(b"after")
        await wait_until_read(own_app, 60)
    assert worker.alive
    lines = worker.log_text().splitlines()[before:]
    assert len(lines) < 40, "\n".join(lines)
    assert not any("Traceback" in line for line in lines)
    proof = await prove(own_app.worker_config, own_app.inputs)
    assert proof.balanced, proof.problems()

    before = len(worker.log_text())
    await asyncio.to_thread(own_broker.stop)
    await until(lambda: len(worker.log_text()) > before, 60, "the worker notices")
    assert await asyncio.to_thread(worker.stop) == 0


# --- what somebody deletes -----------------------------------------------------------------------


async def create_again(app: Application, name: str) -> None:
    await delete_topics(app, name)
    app.create_topics()


async def work_and_stop(app: Application) -> None:
    worker = app.new_worker()
    async with Client(app) as client:
        for _ in range(3):
            await client.send(b"x")
        await wait_until_read(app, 30)
    assert await asyncio.to_thread(worker.stop) == 0


async def stopped(worker: Worker) -> str:
    """What a worker logs from its start until its partition has stopped alone (R123)."""

    def log() -> str:
        return worker.log_text().rpartition("--- start")[2]

    await until(lambda: "not ready: partition 0: stopped" in log(), 60, "the partition stops")
    assert await asyncio.to_thread(worker.stop) == 0
    assert "Traceback" not in log()
    return log()


async def test_a_changelog_that_is_created_again_while_a_worker_runs_loses_nothing_in_silence(
    app: Application,
) -> None:
    """The new changelog lacks what the rings held before, so the worker must not write to it."""
    worker = app.new_worker()
    async with Client(app) as client:
        for _ in range(3):
            await client.send(b"before")
        await wait_until_read(app, 30)
        await create_again(app, app.topic("changelog"))
        await client.send(b"after")
        logs = [await stopped(worker)]
    for _ in range(2):  # the first start changes nothing that the second looks at
        worker.start()
        logs.append(await stopped(worker))
    for log in logs:
        assert "deleted and created again" in log
        assert "may have the only copy of the rings" in log
        assert "set aside" not in log
    assert not [*worker.data_dir.glob("*set-aside*")]
    worker.wipe()  # now only the group's offsets tell that the changelog lacks something
    for _ in range(2):
        worker.start()
        assert "it may lack what the rings held" in await stopped(worker)


async def test_lost_group_offsets_change_nothing(app: Application) -> None:
    await work_and_stop(app)
    await delete_group(app)
    worker = app.workers[0]
    worker.start()
    async with Client(app) as client:
        source = await client.send(b"one more")
        await until(lambda: "assigned:" in worker.log_text().rsplit("--- start", 1)[1], 60, "ready")
        listed = (await client.ask(type="list", queue=QUEUE))["answer"]
    assert len(listed["ready"]) == 4
    assert listed["ready"][-1] == source
    proof = await prove(app.worker_config, app.inputs)
    assert proof.balanced, proof.problems()
