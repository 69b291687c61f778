"""What the console says, in Chromium, while Kafka is stopped or a worker is frozen."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfaust.client import Admin, RingProducer
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application
from tests.console.browser import Browser, needs_chromium
from tests.console.harness import console_process

pytestmark = [pytest.mark.kafka, pytest.mark.slow, needs_chromium]
_CHART = "document.querySelector('.chart').chart"
_LATER_S = 30
_DEADLINE_S = 90


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    topic = f"in-{uuid.uuid4().hex[:6]}"
    queues = {"routes": [{"topic": topic, "queue": "orders"}], "queues": {"orders": {}}}
    app = Application(tmp_path, broker.bootstrap_servers, queues, partitions=1)
    app.create_topics()
    app.new_worker()
    try:
        asyncio.run(_fill(app))
        yield app
    finally:
        app.end()


async def _fill(app: Application) -> None:
    where = {"bootstrap_servers": app.servers, "application": app.worker_config.application}
    async with Admin(**where) as admin, RingProducer(**where) as producer:  # type: ignore[arg-type]
        await admin.queues()
        for number in range(20):
            await producer.send(app.inputs[0], {"number": number})


@pytest.fixture
def page(app: Application, browser: Browser) -> Iterator[Browser]:
    """The overview, which is live."""
    with console_process(app) as base:
        browser.base = base
        browser.look_like("light")
        browser.open("/")
        browser.until_shown("orders\t20", "#queues")
        browser.until_shown("balance", "#state")
        browser.until(lambda: browser.text("#live") == "live", "the page says that it is live")
        yield browser


def tile(browser: Browser, name: str) -> str:
    """What the tile shows."""
    found = re.search(rf"^{name}\n(.+)", browser.text("#state"), re.MULTILINE)
    return found[1] if found else ""


def seconds_ago(browser: Browser) -> float:
    """How old the news are, as the page says."""
    found = re.search(r"No news since .*?\(([\d.]+) s ago\)", browser.text("#state"))
    return float(found[1]) if found else 0.0


def check_that_nothing_looks_present(browser: Browser, why: str) -> None:
    browser.until_shown(why, "#state")
    assert [tile(browser, name) for name in ("Lag", "Added", "Evicted")] == ["–"] * 3
    assert tile(browser, "Accounts") == "unknown"
    assert tile(browser, "Ready") == "20"
    assert browser.run("return document.querySelector('#state').classList.contains('old')")
    browser.until(lambda: browser.text("#live") == "not live: no news", "the footer says so")
    browser.until(
        lambda: browser.run(
            "return document.querySelector('.chart').chart.data[1].at(-1) === null"
        ),
        "the chart has a gap",
    )
    assert browser.faults() == []


def check_over_time(browser: Browser, why: str) -> None:
    """The same is said soon, half a minute later, and by a page that is opened then."""
    check_that_nothing_looks_present(browser, why)
    browser.until(lambda: seconds_ago(browser) >= _LATER_S, "half a minute passes", _DEADLINE_S)
    check_that_nothing_looks_present(browser, why)
    for path in ("/queue?name=orders", "/"):
        browser.open(path)
        shown = browser.text("#state")
        assert "No news since" in shown
        assert why in shown
        assert browser.faults() == []


def check_that_it_is_over(browser: Browser) -> None:
    browser.until(lambda: tile(browser, "Accounts") == "balance", "accounts balance", _DEADLINE_S)
    assert "No news" not in browser.text("main")
    assert tile(browser, "Lag") == "0"
    browser.until(lambda: browser.text("#live") == "live", "the page says that it is live")
    ready = browser.run(f"return {_CHART}.data[1]")
    assert None in ready[1:], "the outage is a gap in the chart"


def test_kafka_that_is_stopped_is_named(page: Browser, broker: EmbeddedBroker) -> None:
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        check_over_time(page, "the Kafka brokers do not answer")
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    check_that_it_is_over(page)


def test_a_worker_that_is_frozen_is_named(page: Browser, app: Application) -> None:
    """Before it counts as silent, the page says how old its latest row is."""
    (worker,) = app.workers
    worker.signal(signal.SIGSTOP)
    try:
        page.until(lambda: row_s(page) > 5, "the row of the worker gets older")
        check_over_time(page, "no worker says anything")
        page.until_shown("silent for", "#workers")
    finally:
        worker.signal(signal.SIGCONT)
    check_that_it_is_over(page)


def row_s(browser: Browser) -> float:
    found = re.search(r"row of a worker is ([\d.]+) s old", browser.text("#state"))
    return float(found[1]) if found else 0.0
