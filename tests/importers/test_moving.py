"""Messages that a real Artemis has stored arrive on a real worker: in order, exactly once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.cli.parts import where
from ringfaust.importers.artemis_export import ArtemisExport, StoredMessage
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import client_of
from tests.chaos.harness import Application, environment
from tests.importers.stored import export

pytestmark = pytest.mark.kafka
RECORDED = Path(__file__).with_name("fixtures") / "exports" / "stored.xml"
"""What Artemis 2.44 exported of 24 messages."""
DUE_AT_MS = 1_900_000_000_000
DEADLINE_S = 120

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from aiokafka import AIOKafkaProducer
from ringfaust.config import load
from ringfaust.importers import send_stored
send_stored.TRANSACTION_RECORDS = int(sys.argv[3])
commits, commit = [], AIOKafkaProducer.commit_transaction
async def commit_or_die(producer):
    commits.append(1)
    if len(commits) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    await commit(producer)
AIOKafkaProducer.commit_transaction = commit_or_die
asyncio.run(send_stored.import_messages(Path(sys.argv[1]), *load(Path(sys.argv[2]))))
"""
"""An import that is killed in its third transaction, when everything is written but the end."""


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    queues = {
        "routes": [{"topic": f"stored-{tmp_path.name}", "queue": "orders"}],
        "queues": {"orders": {}},
    }
    app = Application(tmp_path / "app", broker.bootstrap_servers, queues, partitions=2)
    app.create_topics()
    yield app
    app.end()


async def moved(app: Application, path: Path, transaction_records: int) -> None:
    """Move the messages, with a kill in between, and compare what the worker has with the file."""
    stored = list(ArtemisExport(path, 1_000_000))
    assert [each.properties["number"] for each in stored] == list(range(len(stored)))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, path, app.config_dir, str(transaction_records)],
        env=environment(), check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    arguments = ("import", "artemis", "--messages", path, "--config", app.config_dir)
    done = app.run(*arguments, seconds=200)
    before = 2 * transaction_records
    assert (done.returncode, done.stderr) == (0, "")
    place = where(app.worker_config)
    assert (
        done.stdout == f"{len(stored) - before:,} messages written; {before:,} before ({place})\n"
    )
    again = app.run_inside(*arguments).stdout
    assert again == f"0 messages written; {len(stored):,} before ({place})\n"
    assert await ids_of(app) == [each.id for each in stored]
    app.new_worker()
    async with client_of(app) as client:
        home = await home_of(client, "orders")
        async with asyncio.timeout(DEADLINE_S):  # they go through the hop
            while home["counts"].get("added", 0) < len(stored):
                await asyncio.sleep(0.2)
                home = await home_of(client, "orders")
        assert home["counts"]["added"] == len(stored)
        assert home["ready"] == [each.id for each in ready(stored)]
        assert home["scheduled"] == [each.id for each in stored if is_scheduled(each)]
        first = (await client.say("browse", "orders", limit=1))["answer"]["messages"][0]
        number = ready(stored)[0].properties["number"]
        assert first["value"]["text"] == f"message {number} <äß€😀>"
        assert first["priority"] == 9


async def home_of(client, queue: str) -> dict:
    reply = await client.say("list", queue, limit=10_000)
    return reply.get("answer", {"counts": {}})  # it may not exist yet


def is_scheduled(message: StoredMessage) -> bool:
    return "_AMQ_SCHED_DELIVERY" in message.properties


def ready(stored: list[StoredMessage]) -> list[StoredMessage]:
    """Those that can be delivered, in the order in which they will be."""
    return sorted(
        (each for each in stored if not is_scheduled(each)),
        key=lambda each: (-each.priority, each.properties["number"]),
    )


async def ids_of(app: Application) -> list[str]:
    """The ids in the topic, in order; only what was committed."""
    tp = TopicPartition(app.inputs[0], 0)
    found = []
    async with AIOKafkaConsumer(
        bootstrap_servers=app.servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        consumer.seek(tp, 0)
        while await consumer.position(tp) < end:
            for record in (await consumer.getmany(tp, timeout_ms=200)).get(tp, ()):
                found.append(dict(record.headers)["ringfaust-id"].decode())
    return found


async def test_recorded_messages_arrive_once_although_the_import_is_killed(
    app: Application,
) -> None:
    await moved(app, RECORDED, 4)


@pytest.mark.slow
async def test_10_000_stored_messages_arrive_once_although_the_import_is_killed(
    app: Application, tmp_path: Path
) -> None:
    await moved(app, export(tmp_path, "orders", 10_000, DUE_AT_MS), 1_000)
