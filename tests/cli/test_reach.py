"""Brokers that hang and workers that do not live are named at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from typer.testing import CliRunner

from ringfaust.cli import reach
from ringfaust.cli.main import main
from ringfaust.client.resource import AsyncResource
from ringfaust.config import WorkerConfig
from ringfaust.kafka import probe, sign_topic
from ringfaust.kafka.admin import Brokers, BrokerUnreachable
from ringfaust.kafka.names import spark_group
from ringfaust.kafka.offsets import commit_group_offsets
from ringfaust.kafka.sign_topic import LastSign, last_sign
from ringfaust.protocol.records import Role
from ringfaust.protocol.status import sign_key, worker_key
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application

NOBODY = "127.0.0.1:1"
QUEUES = {"routes": [{"topic": "reach-in", "queue": "orders"}], "queues": {"orders": {}}}
IN_ALL_S = 3.0
"""Within this time a command says what is wrong, besides the start of Python."""


@asynccontextmanager
async def hanging() -> AsyncIterator[str]:
    """A server that accepts connections and never answers."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(1_000):
                pass
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


def brokers(servers: str) -> Brokers:
    return WorkerConfig(bootstrap_servers=servers).brokers()


def test_a_broker_that_hangs_is_given_up_in_time() -> None:
    """It is asked once, and then its port is looked at."""
    assert probe.ANSWER_S + probe.ANSWER_S / 2 < IN_ALL_S
    assert reach.PATIENCE_S + probe.ANSWER_S <= IN_ALL_S


async def test_each_server_is_named_with_its_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ANSWER_S", 0.2)
    async with hanging() as server:
        with pytest.raises(BrokerUnreachable) as refused:
            await probe.answering(brokers(f"{server},{NOBODY}"))
    said = str(refused.value)
    assert f"{server} accepts connections, but does not answer as a Kafka broker" in said
    assert f"{NOBODY} cannot be reached (Connection refused)" in said


@pytest.mark.kafka
async def test_a_server_that_answers_is_used_beside_one_that_hangs(broker: EmbeddedBroker) -> None:
    async with hanging() as server:
        servers = f"{server},{broker.bootstrap_servers}"
        assert await probe.answering(brokers(servers)) == broker.bootstrap_servers
        assert await probe.silent(brokers(servers)) == []


async def test_a_redrive_names_a_broker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for 40 s, and then said only that no broker answers."""
    monkeypatch.setattr(probe, "ANSWER_S", 0.2)
    async with hanging() as server:
        command = ["dead", "redrive", "--id", "m", "--yes", "--bootstrap-servers", server]
        done = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert f"{server} accepts connections, but does not answer" in done.stderr


async def test_a_broker_that_hangs_while_a_client_starts_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hangs(AsyncResource):
        async def start(self) -> None:
            await asyncio.Event().wait()

    asked = []

    async def silent(_: Brokers) -> list[str]:
        asked.append(1)
        return ["b:9092 does not respond"] if len(asked) > 1 else []

    monkeypatch.setattr(reach, "PATIENCE_S", 0.0)
    monkeypatch.setattr(reach, "silent", silent)
    with pytest.raises(reach.BrokerHangs, match=r"^b:9092 does not respond. Nothing was changed$"):
        async with reach.started(Hangs(), WorkerConfig()):
            pass
    assert len(asked) == 2


# --- workers --------------------------------------------------------------------------------------


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Application:
    made = Application(tmp_path, broker.bootstrap_servers, QUEUES, partitions=1)
    made.create_topics()
    return made


def test_a_new_sign_is_waited_for_as_long_as_the_slowest_worker_takes() -> None:
    """This machine's worker.yaml may have another `failover_after_ms` than the workers (R126)."""
    silent = {"a": sign_topic._Row(1, 500), "b": sign_topic._Row(1, 2_000)}
    assert sign_topic._patience_s(silent, 1_000) == 4.0
    assert sign_topic._patience_s(silent, 12_000) == 6.0
    assert sign_topic._patience_s({}, 1_000) == 0.5


@pytest.mark.parametrize("value", [b"[]", b"\xff", b'{"time_ms":1e999}', b"[" * 100_000])
def test_a_sign_that_makes_no_sense_is_none(value: bytes) -> None:
    """It kept every worker that started from giving signs of life, and all commands that ask."""
    signs: dict[str, sign_topic._Row] = {}
    assert not sign_topic._take(signs, sign_key("a"), value)
    assert signs == {}


async def write(app: Application, key: bytes, time_ms: int | None) -> None:
    """Write a row to the status topic; None removes it."""
    value = None if time_ms is None else json.dumps({"time_ms": time_ms}).encode()
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        topic = app.worker_config.topic(Role.STATUS)
        await producer.send_and_wait(topic, value, key, partition=0)


async def look(app: Application, failover_after_ms: int = 1_000) -> LastSign:
    client = app.worker_config.client_options()
    return await last_sign(client, app.worker_config.topic(Role.STATUS), failover_after_ms)


async def commands(app: Application) -> int:
    """How many commands were written."""
    tp = TopicPartition(app.worker_config.topic(Role.CONTROL), 0)
    async with AIOKafkaConsumer(bootstrap_servers=app.servers) as consumer:
        return int((await consumer.end_offsets([tp]))[tp])


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["queue purge orders --yes", "receive orders", "queue ls"])
def test_a_command_says_that_no_worker_lives_and_is_not_sent(
    app: Application, command: str
) -> None:
    """Otherwise it would take effect when a worker starts."""
    options = [*command.split(), "--config", str(app.config_dir)]
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 2
    application = f"application {app.worker_config.application} at {app.servers}"
    assert f"no worker of the {application} lives: none was started, or the last" in result.stderr
    assert asyncio.run(commands(app)) == 0


@pytest.mark.kafka
def test_what_is_sent_without_a_worker_waits(app: Application) -> None:
    options = ["send", "reach-in", "x", "--config", str(app.config_dir)]
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 0, result.output
    assert "no worker lives: what was sent waits in the topic until one runs" in result.stderr


@pytest.mark.kafka
async def test_signs_tell_whether_a_worker_lives(app: Application) -> None:
    """Also if the clocks differ: then a new sign counts."""
    assert await look(app) == LastSign(False, 0)
    await write(app, sign_key("w"), 1_000)
    assert await look(app) == LastSign(False, 1_000)
    await write(app, sign_key("other"), 2**53)
    assert await look(app) == LastSign(True, 2**53)
    await write(app, sign_key("other"), None)
    assert await look(app) == LastSign(False, 1_000)
    looking = asyncio.create_task(look(app, failover_after_ms=60_000))
    while not looking.done():
        await write(app, sign_key("w"), 2_000)
    assert await looking == LastSign(True, 2_000)


@pytest.mark.kafka
async def test_a_worker_without_signs_is_known_by_its_row(app: Application) -> None:
    await write(app, worker_key("old"), 2**53)
    assert await look(app) == LastSign(True, 2**53)


@pytest.mark.kafka
async def test_a_spark_job_gives_no_signs_and_may_live(app: Application) -> None:
    worker = app.worker_config
    assert (await reach.lives(worker)).lives is False
    group = spark_group(worker.application)
    await commit_group_offsets(worker.client_options(), group, {(worker.topic("control"), 0): 0})
    assert (await reach.lives(worker)).lives is True
