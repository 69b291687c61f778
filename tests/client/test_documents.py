"""The examples of README and docs run as written: Python, kcat and Java, with the shipped files.

The examples name the broker that everybody has, 127.0.0.1:9092, so there is one for them here.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringfaust.client import RingProducer
from ringfaust.java.jars import KAFKA, fetch
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import ROOT, Application, environment
from tests.client.harness import DEADLINE_S, ClientHarness

pytestmark = pytest.mark.kafka

PORT = 9092
INVOICES = {"routes": [{"topic": "invoices", "queue": "invoices"}], "queues": {"invoices": {}}}
README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "client.md").read_text()
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()


def section(page: str, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientHarness]:
    """The shipped application, with README's queue per key and `invoices` added."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            pytest.skip(f"port {PORT} is taken, by a broker of your own maybe")
    queues = yaml.safe_load((ROOT / "config" / "queues.yaml").read_text())
    (shown,) = blocks(README, "yaml")
    for more in (yaml.safe_load(shown), INVOICES):
        queues["routes"] += more["routes"]
        queues["queues"] |= more["queues"]
    with EmbeddedBroker(port=PORT) as broker:
        folder = tmp_path_factory.mktemp("home")
        app = Application(
            folder, broker.bootstrap_servers, queues, application="ringfaust", partitions=4
        )
        app.create_topics()
        app.new_worker()
        yield ClientHarness(app, "orders")
        app.end()


async def put(home: ClientHarness, *values: str, **options: Any) -> None:
    """Send messages to the queue `orders`; return when they have arrived."""
    before = await home.counts("orders")
    async with RingProducer() as producer:
        for value in values:
            await producer.send("orders", value, **options)
    async with asyncio.timeout(DEADLINE_S):  # earlier messages may still arrive
        while (await home.counts("orders"))["added"] < before["added"] + len(values):
            await asyncio.sleep(0.05)


async def emptied(home: ClientHarness) -> None:
    """Return when the queue is empty."""
    await home.counts("orders", messages=0)


async def cleared(home: ClientHarness) -> Mapping[str, int]:
    """Empty the queue of what other examples left, and return its counts."""
    async with home.connection() as connection:
        await connection.request(0, {"type": "purge", "queue": "orders"})
    return await home.counts("orders", messages=0)


# --- Python -------------------------------------------------------------------------------------


def scripts() -> list[str]:
    """The programs of README, and those of the guide without asyncio."""
    shown = blocks(section(README, "From Python, in five lines"), "python")
    return [*shown, *(each for each in blocks(GUIDE, "python") if "sync." in each)]


@pytest.mark.parametrize("script", scripts(), ids=lambda script: f"{len(script)} characters")
async def test_a_program_in_the_docs_runs_as_written(home: ClientHarness, script: str) -> None:
    await put(home, "a dozen eggs")
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as program:  # fmt: skip
        try:
            await emptied(home)
            program.send_signal(signal.SIGINT)  # the program runs forever
            said, complained = await asyncio.to_thread(program.communicate, timeout=DEADLINE_S)
        finally:
            program.kill()
    assert "a dozen eggs" in said
    assert complained.splitlines()[-1] == "KeyboardInterrupt", complained


async def test_the_examples_of_the_guide_run_as_written(home: ClientHarness) -> None:
    """They run in order in one namespace; an endless one runs until it is idle."""
    namespace: dict[str, Any] = {}
    examples = [each for each in blocks(GUIDE, "python") if "sync." not in each]
    assert len(examples) > 5
    for example in examples:
        await put(home, "a dozen eggs", "")
        code = compile(example, "client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, namespace)  # noqa: S307 - our own code
        if not inspect.isawaitable(running):
            continue
        task = asyncio.ensure_future(running)
        if "async for message" in example:
            await emptied(home)
            task.cancel()
        await asyncio.wait_for(asyncio.wait([task]), DEADLINE_S)
        assert task.cancelled() or task.exception() is None, example
    assert (await home.counts("orders"))["dead"] > 0


# --- kcat ---------------------------------------------------------------------------------------

needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="there is no kcat here")


def shell(command: str) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", command], check=True, capture_output=True, text=True, timeout=DEADLINE_S
    )
    return done.stdout


@needs_kcat
async def test_the_kcat_commands_of_the_protocol_page_work(home: ClientHarness) -> None:
    both = blocks(section(PROTOCOL, "With kcat"), "sh")
    send, attach, read, ack = both[0].splitlines()
    (heartbeat,) = both[1].splitlines()
    before = await cleared(home)
    shell(send)
    shell(attach)
    shell(heartbeat)
    await home.counts("orders", delivering=1)
    said = shell(read)
    assert "ringfaust-id=order-17" in said
    assert "ringfaust-consumer=me" in said
    assert "a dozen eggs" in said
    shell(ack)
    await home.counts("orders", acked=before["acked"] + 1)
    async with home.connection() as connection:  # they reached the queue's partition
        me = {"queue": "orders", "consumer": "me"}
        await connection.request(0, {"type": "heartbeat", **me})
        await connection.request(0, {"type": "detach", **me})


@needs_kcat
async def test_the_kcat_commands_of_the_readme_work(home: ClientHarness) -> None:
    """The records of a queue per key are not repartitioned: its commands go where the key goes."""
    found = re.findall(r"^\$ ((?:echo|kcat) .*)$", README, re.MULTILINE)
    attach, read, ack = found
    async with RingProducer() as producer:
        await producer.send("departures", "boarding", key="UA")
    await home.counts("departures.UA", key="UA", ready=1)
    shell(attach)
    await home.counts("departures.UA", key="UA", delivering=1)
    said = shell(f"{read} -e -q")
    assert "ringfaust-consumer=me" in said
    (message,) = re.findall(r"ringfaust-id=(departures/\d+/\d+)", said)
    shell(ack.replace("departures/0/17", message))
    await home.counts("departures.UA", key="UA", acked=1)


# --- Java ---------------------------------------------------------------------------------------


async def test_the_java_consumer_consumes(home: ClientHarness, tmp_path: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("needs a JDK; Java alone has no compiler")
    (source,) = blocks(PROTOCOL, "java")
    (tmp_path / "Billing.java").write_text(source)
    path = f"{fetch(KAFKA)}/*:{tmp_path}"
    subprocess.run([javac, "-cp", path, "-d", tmp_path, tmp_path / "Billing.java"], check=True)
    before = await cleared(home)
    await put(home, "a dozen eggs", id="order-18")
    with subprocess.Popen(
        ["java", "-cp", path, "Billing", f"127.0.0.1:{PORT}"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as program:  # fmt: skip
        try:
            assert program.stdout is not None
            assert await asyncio.to_thread(program.stdout.readline) == "order-18\n"
            await home.counts("orders", acked=before["acked"] + 1)
        finally:
            program.kill()
