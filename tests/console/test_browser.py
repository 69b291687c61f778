"""The console in Chromium: alone on 10,000 made-up queues, and on a live worker.

It needs Debian's `chromium` and `chromium-driver`. With `RINGFAUST_SCREENSHOTS=DIR` it also writes
the pictures of docs/console.md there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from ringfaust.client import Admin, RingConsumer, RingProducer, TwoPhase
from ringfaust.testing.broker import EmbeddedBroker, free_port
from tests.chaos.harness import Application
from tests.console.browser import MODES, WAIT_S, Browser, needs_chromium
from tests.console.harness import TOKEN, console_process
from tests.console.made_up import serve_made_up

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    needs_chromium,
]
PICTURES = os.environ.get("RINGFAUST_SCREENSHOTS")
SHOWN = {"overview-light", "overview-phone", "queue-dark", "message-light", "dead-light"}
"""The pictures that the docs use."""


def take_picture(browser: Browser, name: str) -> None:
    """Write a picture for the docs, if they are wanted."""
    if PICTURES and name in SHOWN:
        from PIL import Image  # noqa: PLC0415 - only for pictures

        image = Image.open(BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
        image.quantize(96).save(Path(PICTURES, f"console-{name}.png"), optimize=True)


# --- 10,000 made-up queues ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_up() -> Iterator[str]:
    """The address of a console on 10,000 made-up queues, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stack = serve_made_up(10_000)
    port = asyncio.run_coroutine_threadsafe(stack.__aenter__(), loop).result(WAIT_S)
    yield f"http://127.0.0.1:{port}/console"
    asyncio.run_coroutine_threadsafe(stack.__aexit__(None, None, None), loop).result(WAIT_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("mode", MODES)
def test_pages_are_readable_for_everybody(browser: Browser, made_up: str, mode: str) -> None:
    browser.base = made_up
    browser.look_like(mode)
    browser.complaints()
    for name, path, sign in PAGES:
        browser.open(path)
        browser.until_shown(sign)
        assert browser.faults() == [], f"{name} in {mode}"
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), name
        take_picture(browser, f"{name}-{mode}")
    assert browser.complaints() == []


PAGES = [
    ("overview", "/", "10,000 queues"),
    ("queue", "/queue?name=orders", "Ready"),
    ("message", "/message?queue=orders&id=order-1041", "Body"),
    ("dead", "/dead", "order-943"),
    ("gone", "/message?queue=orders&id=order-943&kind=dead&record=0:17", "Preview a redrive"),
    ("redrive", "/redrive?kind=dead&record=0:17", "Send 1 message again?"),
    ("transactions", "/transactions", "transfer-77"),
    ("login", "/login", "Token"),
]


def test_pages_of_many_queues_are_loaded_and_searched(
    browser: Browser, made_up: str, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.base = made_up
    browser.look_like("light")
    timing = "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd"
    times = {}
    for name, path, sign in PAGES:
        browser.open(path)
        browser.until_shown(sign)
        browser.until(lambda: browser.run(timing), "the page is loaded")
        times[name] = round(browser.run(timing))
    browser.open("/")
    browser.one("body").send_keys("/")
    browser.run("return document.activeElement").send_keys("sensor.00777")
    browser.until_shown("1 queue\n", "#queues")
    assert "search=sensor.00777" in browser.driver.current_url
    browser.open("/queues?page=3")
    browser.one("body").send_keys("jj")
    second = browser.run("return document.querySelectorAll('[data-row]')[1].innerText")
    assert browser.run("return document.activeElement.innerText") == second
    browser.run("return document.activeElement").send_keys("k\ue007")  # Enter
    browser.until(lambda: "/queue?name=" in browser.driver.current_url, "Enter opens the row")
    browser.one("body").send_keys("?")
    assert browser.run("return document.querySelector('#help').open")
    with capsys.disabled():
        print(f"\nload times with 10,000 queues, in ms: {times}")


# --- a live worker --------------------------------------------------------------------------------


class Live:
    """A worker, a console beside it, and one in it."""

    def __init__(self, app: Application, browser: Browser) -> None:
        self.app = app
        self.browser = browser
        self.where: dict[str, Any] = {
            "bootstrap_servers": app.servers, "application": app.worker_config.application,
        }  # fmt: skip
        self.base = ""
        self.worker_base = ""

    def send(self, queue: str, *ids: str, **options: Any) -> None:
        async def send() -> None:
            async with RingProducer(**self.where) as producer:
                for each in ids:
                    body = {"id": each, "html": "<b>bold</b>"}
                    await producer.send("in", body, id=each, headers={"to": queue}, **options)

        asyncio.run(send())

    def done(self, text: str) -> None:
        """Wait for what the console says was done."""
        self.browser.until_shown(text, ".notice.done")
        assert "<b>" not in self.browser.text(".notice.done")


@pytest.fixture(scope="module")
def live(
    broker: EmbeddedBroker, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    queues = {
        "routes": [{"topic": "in", "queue": "{header:to}"}],
        "queues": {"orders": {"ring_size": 5}, "parked": {}, "dull": {}},
    }
    worker_port = free_port()
    app = Application(
        tmp_path_factory.mktemp("console"), broker.bootstrap_servers, queues, partitions=1,
        web={"enabled": True, "port": worker_port},
    )  # fmt: skip
    app.create_topics()
    app.new_worker()
    running = Live(app, browser)
    running.worker_base = f"http://127.0.0.1:{worker_port}/console"
    try:
        asyncio.run(_until_ready(running))
        with console_process(app) as base:
            running.base = base
            yield running
    finally:
        app.end()


async def _until_ready(live: Live) -> None:
    async with Admin(**live.where) as admin:
        await admin.queues()


def test_without_permission_nothing_can_be_changed(browser: Browser, live: Live) -> None:
    live.send("orders", "r-1")
    for base in (live.base, live.worker_base):
        browser.base = base
        browser.open("/queue?name=orders")
        browser.until_shown("r-1", "#messages")
        buttons = "return [...document.querySelectorAll('main form[method=post] button')]"
        assert browser.run(f"{buttons}.length") >= 7
        assert browser.run(f"{buttons}.every((button) => button.disabled)")
        refused = browser.driver.execute_async_script(
            "const done = arguments[0];"
            "fetch('/console/queue/purge', {method: 'POST', body: new URLSearchParams("
            "{queue: 'orders'})}).then((answer) => done(answer.status))"
        )
        assert refused == 403
    assert all("403" in each for each in browser.complaints())


def test_the_overview_changes_while_messages_come(browser: Browser, live: Live) -> None:
    browser.base = live.worker_base
    browser.open("/")
    browser.until_shown("orders", "#queues")
    browser.run("window.isSamePage = true")
    before = browser.text("#state")
    live.send("dull", *(f"d-{number}" for number in range(50)))
    browser.until_shown("dull\t50", "#queues")
    assert browser.text("#state") != before
    browser.until(lambda: browser.run("return document.querySelector('canvas') !== null"), "chart")
    assert browser.run("return window.isSamePage")
    assert browser.complaints() == []


def test_every_action_works(browser: Browser, live: Live) -> None:
    browser.base = live.base
    browser.open("/login?back=/console/queue?name=orders")
    browser.one("#token").send_keys(TOKEN)
    browser.one("#token").submit()
    browser.until_shown("changes allowed", ".who")
    _steer_a_queue(browser, live)
    _steer_messages(browser, live)
    _close_a_consumer(browser, live)
    _decide_transactions(browser, live)
    _redrive(browser, live)
    browser.open("/queue?name=parked")
    browser.press("/queue/delete")
    live.done("parked was deleted")
    browser.press("/logout")
    browser.until_shown("read-only", ".who")
    assert browser.complaints() == []


def _steer_a_queue(browser: Browser, live: Live) -> None:
    for what, badge in (("dispatch", "dispatch paused"), ("pulling", "reading paused")):
        browser.press("/queue/pause", what=what)
        live.done("orders is paused")
        browser.until_shown(badge, "#state")
        browser.press("/queue/resume", what=what)
        live.done("orders is resumed")
    ring_size = browser.one("#set-ring_size")
    ring_size.clear()
    ring_size.send_keys("7")
    browser.press("/queue/set")
    live.done("orders: set ring_size = 7")
    live.send("orders", "p-1", "p-2")
    live.send("parked", "there")
    browser.open("/queue?name=orders")
    browser.until_shown("p-2", "#messages")
    browser.one("#move-to").send_keys("parked")
    most = browser.one("#most")
    most.clear()
    most.send_keys("1")
    browser.press("/queue/move")
    live.done("Moved 1 message from orders to parked")
    _send_a_message(browser)
    browser.press("/queue/purge")
    live.done("All ready messages of orders were evicted")


def _send_a_message(browser: Browser) -> None:
    """The route has the queue in a header: without it the page says so."""
    for headers, said in (("", "no route leads a message"), ("to=orders", "by-hand was sent to")):
        browser.run("document.querySelector('#send-id').closest('details').open = true")
        for name, text in (("value", "typed by hand"), ("id", "by-hand"), ("headers", headers)):
            browser.one(f"#send-{name}").send_keys(text)
        browser.press("/queue/send")
        browser.until_shown(said)
    browser.until(lambda: browser.driver.refresh() or "by-hand" in browser.text("#messages"), "it")


def _steer_messages(browser: Browser, live: Live) -> None:
    live.send("orders", "m-1", "m-2")
    live.send("orders", "s-1", "s-2", delay_ms=3_600_000)
    browser.open("/queue?name=orders")
    browser.until(lambda: browser.driver.refresh() or "m-2" in browser.text("#messages"), "m-2")
    assert "<b>bold</b>" in browser.run("return document.querySelector('#messages').textContent")
    browser.press("/message/remove", message="m-1")
    live.done("Message m-1 was removed")
    browser.open("/message?queue=orders&id=m-2")
    browser.until_shown("Entered the queue from in/0/", "#trace")
    browser.one("#move-to").send_keys("parked")
    browser.press("/message/move")
    live.done("Message m-2 was moved from orders to parked")
    browser.open("/queue?name=orders&state=scheduled")
    browser.until(lambda: browser.driver.refresh() or "s-2" in browser.text("#messages"), "s-2")
    browser.press("/message/deliver-now", message="s-1")
    live.done("Message s-1 is due now")
    browser.press("/message/cancel", message="s-2")
    live.done("Message s-2 was cancelled")


def _close_a_consumer(browser: Browser, live: Live) -> None:
    async def hold() -> None:
        async with RingConsumer("orders", name="sleeper", credit=1, **live.where) as consumer:
            assert await consumer.receive() is not None
            await asyncio.to_thread(browser.open, "/queue?name=orders")
            await asyncio.to_thread(browser.until_shown, "sleeper", "#state")
            await asyncio.to_thread(_confirm_after_a_refresh, browser)
            await asyncio.to_thread(live.done, "Consumer sleeper was closed")

    asyncio.run(hold())


def _confirm_after_a_refresh(browser: Browser) -> None:
    """The form is gone when the answer is given: the page has put newer news in its place."""
    browser.find_and_run(
        "const form = document.querySelector('form[action=\"/console/consumer/close\"]');"
        "form.querySelector('button').click(); form.remove()"
    )
    browser.one('#confirm button[value="yes"]').click()


def _decide_transactions(browser: Browser, live: Live) -> None:
    async def leave(xid: str) -> None:
        async with (
            TwoPhase(xid, **live.where) as transaction,
            RingProducer(**live.where) as producer,
        ):
            await transaction.begin()
            await producer.send(
                "in",
                {"html": "<b>bold</b>"},
                id=f"of-{xid}",
                headers={"to": "dull"},
                xid=xid,
                owner=transaction.owner,
            )
            await transaction.prepare()

    for xid in ("left-1", "left-2"):
        asyncio.run(leave(xid))
    browser.open("/transactions")
    browser.one("summary").click()
    browser.until_shown("of-left-1 in dull")
    browser.press("/xid/commit", xid="left-1")
    live.done("Transaction left-1 was committed")
    browser.press("/xid/rollback", xid="left-2")
    live.done("Transaction left-2 was rolled back")


def _redrive(browser: Browser, live: Live) -> None:
    async def reject() -> None:
        live_consumer = RingConsumer("dull", name="picky", credit=1, **live.where)
        async with live_consumer as consumer:
            message = await consumer.receive()
            assert message is not None
            await message.reject("not today", confirm=True)

    asyncio.run(reject())
    browser.open("/dead")
    browser.until_shown("not today")
    browser.one("a[data-row]").click()
    browser.until_shown("<b>bold</b>")  # its body
    browser.until_shown("Preview a redrive")
    browser.open("/dead")
    browser.find_and_run("document.querySelector('a.button').click()")
    browser.until_shown("Send 1 message again?")
    browser.open("/dead")
    browser.one("input[name=record]").click()
    browser.run("document.querySelector('form[action=\"/console/redrive\"] button').click()")
    browser.until_shown("Send 1 message again?")
    browser.press("/redrive")
    live.done("1 message was sent")
    browser.open("/evicted")
    browser.until_shown("purge")
