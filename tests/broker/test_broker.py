"""The embedded broker, as a real process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from ringfaust.kafka.admin import connected_admin
from ringfaust.testing.broker import BrokerFailed, EmbeddedBroker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(partitions_default=3) as running:
        yield running


def alive(pid: int) -> bool:
    """Whether the process runs and is not a zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs after {seconds} s"
        time.sleep(0.02)


async def create(servers: str, topic: str) -> None:
    async with connected_admin({"bootstrap_servers": servers}) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])


async def produce(servers: str, topic: str, *values: bytes, **settings: object) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def read(servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    async with consumer:
        return [(await consumer.getone()).value for _ in range(count)]


async def test_records_survive_a_restart(broker: EmbeddedBroker) -> None:
    servers, before = broker.bootstrap_servers, broker.pid
    await create(servers, "t")
    await produce(servers, "t", b"one", b"two")
    broker.restart()
    assert (broker.bootstrap_servers, broker.pid) != (servers, before)
    assert broker.bootstrap_servers == servers
    await produce(servers, "t", b"three")
    assert await read(servers, "t", 3) == [b"one", b"two", b"three"]


async def test_topics_are_not_created_automatically(broker: EmbeddedBroker) -> None:
    async with connected_admin({"bootstrap_servers": broker.bootstrap_servers}) as admin:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")])
        settings = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert settings["num.partitions"] == "3"
        assert settings["auto.create.topics.enable"] == "false"
        await admin.describe_topics(["never-created"])
        assert "never-created" not in await admin.list_topics()


async def test_transactions_and_records_of_three_megabytes_work(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    await create(servers, "large")
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id="x", max_request_size=4_000_000
    )
    async with producer, producer.transaction():
        await producer.send_and_wait("large", b"x" * 3_000_000, partition=0)
    (value,) = await read(servers, "large", 1)
    assert value is not None
    assert len(value) == 3_000_000


def test_stop_leaves_no_process_and_no_temporary_data() -> None:
    broker = EmbeddedBroker()
    broker.start()
    pid, guard = broker.pid, broker._guard
    assert pid and guard
    folder = broker._data_dir()
    assert folder.is_dir()
    broker.stop()
    assert broker.pid is None
    assert not alive(pid)
    assert not alive(guard.pid)
    assert not folder.exists()
    broker.stop()  # a second stop does nothing


def test_a_collector_that_the_environment_chooses_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Java does not start with two."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseParallelGC")
    monkeypatch.delenv("JDK_JAVA_OPTIONS")
    with EmbeddedBroker() as broker:
        command = Path(f"/proc/{broker.pid}/cmdline").read_text()
    assert "-Xmx640m" in command
    assert "GC" not in command


async def test_a_given_data_folder_is_kept(tmp_path: Path) -> None:
    data, log = tmp_path / "d\xe4ta \\1", tmp_path / "kafka.log"
    with EmbeddedBroker(data_dir=data, log_path=log) as first:
        await create(first.bootstrap_servers, "t")
        await produce(first.bootstrap_servers, "t", b"kept")
    assert log.exists()
    with EmbeddedBroker(data_dir=data) as second:
        assert await read(second.bootstrap_servers, "t", 1) == [b"kept"]


def test_a_port_in_use_is_reported_with_the_log_of_the_broker() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = EmbeddedBroker(port=port)
        with pytest.raises(BrokerFailed, match="while starting") as failed:
            broker.start()
    assert "Address already in use" in failed.value.log_tail
    assert broker.pid is None


def test_a_second_start_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(RuntimeError, match="already running"):
        broker.start()
    assert broker.pid is not None
    assert alive(broker.pid)


PARENT = """
import threading, time
from ringfaust.testing.broker import EmbeddedBroker
broker = EmbeddedBroker()
starter = threading.Thread(target=broker.start)  # the thread ends and the broker runs on
starter.start()
starter.join()
print(broker.pid, broker._guard.pid, broker._data_dir(), flush=True)
time.sleep(600)
"""


def test_the_broker_and_its_data_go_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, guard, folder = parent.stdout.readline().decode().split()
        time.sleep(0.5)
        assert alive(int(pid))
        os.kill(parent.pid, signal.SIGKILL)
    wait_until_gone(int(pid))
    wait_until_gone(int(guard))
    assert not Path(folder).exists()
