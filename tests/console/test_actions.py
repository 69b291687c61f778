"""Every action asks `Admin` for the right thing, says what was done, and returns to its page."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock, call, create_autospec

import pytest
from aiokafka.errors import TopicAuthorizationFailedError

from ringfaust.client import RingProducer
from ringfaust.client.errors import NoAnswer, Refused
from ringfaust.client.inspected import Excerpt, MessagePage, XidDetails
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.console import backend, sending
from ringfaust.console.rendering import ASSETS, body_of, one_line
from ringfaust.core.catalog import Configuration
from ringfaust.testing import MemoryBroker
from tests.console.harness import (
    HOSTILE,
    Console,
    console_of,
    message_row,
    queue_details,
    queue_row,
)

Q = {"queue": "orders"}
M = Q | {"message": "m 1"}
ACTIONS = [
    ("/queue/pause", Q | {"what": "dispatch"}, call.pause(queue="orders", what="dispatch")),
    ("/queue/pause", Q | {"what": "pulling"}, call.pause(queue="orders", what="pulling")),
    ("/queue/resume", Q | {"what": "dispatch"}, call.resume(queue="orders", what="dispatch")),
    ("/queue/resume", Q | {"what": "pulling"}, call.resume(queue="orders", what="pulling")),
    ("/queue/purge", Q, call.purge(**Q)),
    ("/queue/delete", Q, call.delete_queue(**Q)),
    ("/queue/set", Q | {"set-ring_size": "25"}, call.configure(**Q, settings={"ring_size": 25})),
    (  # what another browser has changed since stays
        "/queue/set",
        Q
        | {
            "was-ring_size": "5",
            "set-ring_size": "5",
            "was-durable": "true",
            "set-durable": "false",
        },
        call.configure(**Q, settings={"durable": False}),
    ),
    ("/queue/set", Q | {"set-durable": "false"}, call.configure(**Q, settings={"durable": False})),
    (
        "/queue/set",
        Q | {"set-ring_size": "10", "set-redelivery_multiplier": "1.5", "set-evict": "oldest"},
        call.configure(**Q, settings={"redelivery_multiplier": 1.5, "evict": "oldest"}),
    ),
    ("/queue/move", Q | {"to": "parked", "most": "7"}, call.move_oldest(**Q, to="parked", most=7)),
    ("/message/remove", M, call.remove(**M)),
    ("/message/move", M | {"to": " parked "}, call.move(**M, to="parked")),
    ("/message/deliver-now", M, call.deliver_now(**M)),
    (  # a name may have blanks around it: without them, it is another one
        "/message/remove",
        {"queue": "orders ", "message": " m\t"},
        call.remove(queue="orders ", message=" m\t"),
    ),
    ("/message/cancel", M, call.cancel_scheduled(**M)),
    ("/consumer/close", Q | {"consumer": "c"}, call.close_consumer(**Q, consumer="c")),
    ("/xid/commit", {"xid": "x-1"}, call.commit_xid(xid="x-1")),
    ("/xid/rollback", {"xid": "x-1"}, call.rollback_xid(xid="x-1")),
    ("/partition/retry", {"partition": "2"}, call.retry_partition(partition="2", by="console")),
    (
        "/partition/skip",
        {"partition": "2", "at": "orders/2/7"},
        call.skip_record(partition="2", at="orders/2/7", by="console"),
    ),
]


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    async with console_of([queue_row("orders")]) as running:

        async def move_oldest(queue: str, to: str, most: int) -> AsyncIterator[int]:
            yield 0
            yield most

        running.backend.fake.move_oldest.side_effect = move_oldest
        yield running


def changes(console: Console) -> list[object]:
    """What `Admin` was asked to change."""
    return [each for each in console.backend.fake.mock_calls if each[0] != "queue"]


@pytest.mark.parametrize(("path", "fields", "asked"), ACTIONS, ids=lambda value: str(value)[:40])
async def test_an_action_asks_for_the_right_thing(
    console: Console, path: str, fields: dict[str, str], asked: object
) -> None:
    assert (await console.post(path, fields)).status == 403
    assert changes(console) == []
    await console.log_in()
    answer = await console.post(path, fields | {"back": "/console/queue?name=orders"})
    assert answer.status == 303
    assert answer.headers["Location"] == "/console/queue?name=orders"
    assert changes(console) == [asked]
    assert 'class="notice done"' in await console.text("/")
    assert 'class="notice done"' not in await console.text("/")


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a = 1 OR b = 2", {"ring_size": 5}),
        ("a = 1 OR b = 3", {"ring_size": 5, "selector": "a = 1 OR b = 3"}),
    ],
)
async def test_a_selector_of_several_lines_changes_when_somebody_changes_it(
    console: Console, text: str, changed: dict[str, object]
) -> None:
    """A field has no line breaks, and a form has those of Windows."""
    found = queue_details("orders")
    found.settings["selector"] = "a = 1\nOR b = 2\n"  # type: ignore[index]
    console.backend.fake.queue.side_effect = lambda _: found
    await console.log_in()
    assert 'value="a = 1 OR b = 2 "' in await console.text("/queue?name=orders")
    form = {"was-selector": "a = 1\r\nOR b = 2\r\n", "set-selector": text, "set-ring_size": "5"}
    await console.post("/queue/set", Q | form)
    assert call.configure(**Q, settings=changed) in changes(console)


async def test_a_refusal_is_said_in_a_sentence(console: Console) -> None:
    await console.log_in()
    console.backend.fake.purge.side_effect = Refused("unknown_queue", HOSTILE, "it is gone")
    await console.post("/queue/purge", Q)
    text = await console.text("/")
    assert "it is gone" in text
    assert 'class="notice failed"' in text
    assert HOSTILE not in text


@pytest.mark.parametrize(
    ("path", "fields", "says"),
    [
        ("/queue/set", Q | {"set-ring_size": "many"}, "a whole number is needed"),
        ("/queue/set", Q | {"set-durable": "maybe"}, "true or false"),
        (
            "/queue/set",
            Q | {"was-ring_size": "5", "set-ring_size": "7"},
            "it was changed to 10 meanwhile: look at the page again",
        ),
        ("/queue/set", Q | {"set-redelivery_multiplier": "x"}, "a number is needed"),
        ("/queue/move", Q | {"to": "parked", "most": "x"}, "it must be a valid integer"),
        ("/queue/pause", Q | {"what": "everything"}, "what = "),
        ("/queue/purge", {"queue": "q" * 2_000}, "queue = "),
        ("/queue/set", Q | {"set-ring_size": "10"}, "No setting of orders was changed"),
        ("/queue/move", Q | {"to": "parked", "most": "0"}, "greater than or equal to 1"),
        (
            "/queue/move",
            Q | {"to": "parked", "most": "99999"},
            "less than or equal to 10000",
        ),
    ],
)
async def test_a_mistake_changes_nothing(
    console: Console, path: str, fields: dict[str, str], says: str
) -> None:
    await console.log_in()
    await console.post(path, fields)
    assert changes(console) == []
    assert says in await console.text("/")


async def test_a_form_without_a_field_is_refused(console: Console) -> None:
    await console.log_in()
    answer = await console.post("/message/remove", Q)
    assert answer.status == 400
    assert "message is empty" in await answer.text()


async def test_failures_have_a_page_of_their_own(console: Console) -> None:
    console.backend.fake.queue.side_effect = Refused("unknown_queue", "nobody", "no such queue")
    answer = await console.get("/queue?name=nobody")
    assert answer.status == 404
    assert "no such queue" in await answer.text()
    console.backend.fake.queue.side_effect = NoAnswer("no worker answered")
    answer = await console.get("/queue/state?name=nobody", **{"HX-Request": "true"})
    assert (answer.status, await answer.text()) == (504, "no worker answered")


# --- messages -------------------------------------------------------------------------------------


async def test_messages_are_shown_page_by_page_and_escaped(console: Console) -> None:
    rows = (message_row(HOSTILE, HOSTILE.encode()), message_row("m-2", b'{"a": [1]}'))
    console.backend.fake.browse_page.return_value = MessagePage(messages=rows, after="next-one")
    text = await console.text("/queue?name=orders")
    assert HOSTILE not in text
    assert "after=next-one" in text
    assert "disabled" in text
    await console.text("/queue/messages?name=orders&state=scheduled&selector=priority>4&after=x")
    console.backend.fake.browse_page.assert_called_with(
        "orders", state="scheduled", selector="priority>4", after="x", limit=25, body_bytes=2_000
    )
    assert (await console.get("/queue/messages?name=orders&state=lost")).status == 400


async def test_a_message_is_shown_with_its_body(console: Console) -> None:
    console.backend.fake.message.return_value = message_row("m-1", b'{"a":["<b>"]}')
    text = await console.text("/message?queue=orders&id=m-1")
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "/console/message/trace?id=m-1" in text


async def test_transactions_are_listed(console: Console) -> None:
    xid = XidDetails(xid=HOSTILE, prepared=True, operations=3, began_ms=0, partitions=(0, 1))
    console.backend.fake.xids.return_value = [xid]
    text = await console.text("/transactions")
    assert "prepared" in text
    assert HOSTILE not in text


async def test_the_revisions_are_listed_with_who_has_applied_them(console: Console) -> None:
    before, now = Configuration(0, {}), Configuration(4, {}, HOSTILE, "a smaller ring", 1_000)
    console.backend.fake.configuration.return_value = {0: now, 1: before}
    console.backend.fake.history.return_value = [before, now]
    text = await console.text("/configuration")
    assert "Revision 4 is in effect" in text
    assert "Partition 1 uses revision 0." in text
    assert "a smaller ring" in text
    assert "&lt;script&gt;" in text
    assert HOSTILE not in text
    console.backend.fake.configuration.return_value = {0: before, 1: before}
    console.backend.fake.history.return_value = []
    assert "Nothing was applied yet" in await console.text("/configuration")


async def test_the_form_of_a_trace_asks_for_what_its_page_reads(console: Console) -> None:
    form = (await console.text("/message")).partition('<form class="search')[2]
    (field,) = re.findall(r'name="(\w+)"', form.partition("</form>")[0])
    assert "/console/message/trace?id=order-17" in await console.text(f"/message?{field}=order-17")


async def test_a_trace_ends(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that had much to read, or brokers that hang, held up all others."""

    async def long(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("ringfaust.console.message_pages.trace", long)
    monkeypatch.setattr("ringfaust.console.context._SEARCH_S", 0.01)
    answer = await console.get("/message/trace?id=m-1")
    assert (answer.status, "search a shorter time" in await answer.text()) == (504, True)


async def test_a_transaction_is_searched_from_a_time_that_exists(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = AsyncMock(return_value=[])
    monkeypatch.setattr("ringfaust.console.pages.pending_in", search)
    await console.text("/transactions/contents?xid=x&began=1")
    assert search.call_args.kwargs["since_ms"] == 0


def test_a_body_is_shown_as_what_it_is() -> None:
    def shown(raw: bytes, size: int | None = None) -> tuple[str, str, str]:
        body = body_of(Excerpt(start=raw, size_bytes=len(raw) if size is None else size))
        return body.kind, body.text, body.note

    assert shown(b'{"a":1}') == ("json", '{\n  "a": 1\n}', "")
    assert shown(b'{"a":') == ("text", '{"a":', "")
    assert shown(b"plain") == ("text", "plain", "")
    assert shown(b"\xff\x00") == ("binary", "ff 00", "2 bytes that are not text")
    assert shown(b"cut here", 1_000) == ("text", "cut here", "the first 8 of 1,000 bytes")
    assert shown("caf\N{LATIN SMALL LETTER E WITH ACUTE}".encode()[:-1], 99)[:2] == ("text", "caf")
    assert len(shown(b"\xff" * 10_000)[1]) == 4_096 * 3 - 1
    assert shown(b"[" * 50_000)[0] == "text"
    deep = b"[" * 900 + b"1," * 1_000 + b"1" + b"]" * 900
    assert shown(deep)[1] == deep.decode()  # indented, it would be 100 times as large
    empty = b'[ {} ,\t[], {"a":{"b":[1 ,true]}}]'
    assert shown(empty)[1] == json.dumps(json.loads(empty), indent=2)
    exact = rb'["\ud800", {"a": 1.10, "a": 1e400}, 123456789.01234567891, "\u00b5\/\"\n,"]'
    lines = '  "\\ud800",\n  {\n    "a": 1.10,\n    "a": 1e400\n  },\n  123456789.01234567891'
    assert shown(exact)[1] == f'[\n{lines},\n  "\N{MICRO SIGN}/\\"\\n,"\n]'
    assert body_of(None).kind == "none"
    assert one_line(Excerpt(start=b"a\nb" * 100, size_bytes=300)).endswith("…")


def test_vendored_files_are_the_ones_that_the_readme_names() -> None:
    listed = dict(
        re.findall(r"^\| (\S+) \|.*`(\w{64})` \|$", (ASSETS / "README.md").read_text(), re.M)
    )
    ours = {"console.css", "console.js", "icon.svg"}
    files = {path.name: path for path in ASSETS.iterdir() if path.suffix in (".js", ".css", ".svg")}
    assert set(listed) == set(files) - ours
    for name, sum_ in listed.items():
        assert hashlib.sha256(files[name].read_bytes()).hexdigest() == sum_
    assert Path(ASSETS / "LICENSE-uplot").exists()


# --- what was applied -----------------------------------------------------------------------------


def led_by(topic: str) -> QueuesConfig:
    route = {"topic": topic, "queue": "orders", "hop": "always"}
    return QueuesConfig.model_validate({"routes": [route], "queues": {"orders": {}}})


async def test_a_message_is_sent_by_the_routes_in_use(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R128: the console runs for longer than they count."""
    producer = create_autospec(RingProducer, instance=True)
    producer.__aenter__.return_value.send.return_value = "m"
    monkeypatch.setattr(sending, "RingProducer", lambda **_: producer)
    console.backend.applied = led_by("new")
    await console.log_in()
    assert (await console.post("/queue/send", Q | {"value": "x"})).status == 303
    assert producer.__aenter__.return_value.send.call_args == call("new", "x", headers={})


async def test_the_routes_in_use_are_those_that_were_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def configuration_in_use(_: WorkerConfig, file: QueuesConfig) -> InUse:
        assert file == led_by("old")
        return InUse(led_by("new"), file)

    monkeypatch.setattr(backend, "configuration_in_use", configuration_in_use)
    used = await backend.Backend(WorkerConfig(), led_by("old")).in_use()
    assert used.queues == led_by("new")


async def test_a_connection_that_cannot_read_answers_any_more_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with MemoryBroker() as broker:
        where = {"bootstrap_servers": broker.bootstrap_servers}
        monkeypatch.setattr(backend.Backend, "options", where)
        pages = backend.Backend(WorkerConfig(), QueuesConfig())
        admin = await pages.admin()
        assert await pages.admin() is admin
        with monkeypatch.context() as once:
            fails = Mock(side_effect=TopicAuthorizationFailedError())
            once.setattr("ringfaust.client.connection.Connection._take_reply", fails)
            with pytest.raises(TopicAuthorizationFailedError):
                await admin.queues()
        assert [each.queue for each in await (await pages.admin()).queues()] == ["orders"]
        await pages.close()
