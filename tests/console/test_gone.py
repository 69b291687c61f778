"""Dead and evicted messages in the console: search, preview with loop guard, and redrive."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from dataclasses import replace
from html import unescape
from unittest.mock import AsyncMock, Mock, call, create_autospec
from urllib.parse import parse_qsl

import pytest

from ringfaust.client.inspected import Excerpt
from ringfaust.config import QueuesConfig
from ringfaust.config.applied import InUse
from ringfaust.console import redriving
from ringfaust.console.redriving import AllBefore, GoneMessage, Preview, Redriver
from ringfaust.errors import BadSelector
from ringfaust.protocol.dead import DeadFilter
from ringfaust.redrive.plan import RedrivePlan
from ringfaust.redrive.reader import Cursor
from tests.console.harness import HOSTILE, Console, console_of, queue_row


def gone(name: str = "m-1", queue: str = "orders") -> GoneMessage:
    return GoneMessage(
        id=name, queue=queue, reason="rejected", time_ms=5_000, age_ms=4_000, text=HOSTILE,
        handovers=1, redrives=2, source="in/0/1", position=(0, 17),
        value=Excerpt(start=HOSTILE.encode(), size_bytes=len(HOSTILE)),
    )  # fmt: skip


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    async with console_of([queue_row("orders")]) as running:
        running.backend.redriver = create_autospec(Redriver, instance=True)
        running.backend.redriver.latest.return_value = [gone(), gone(HOSTILE, "")]
        running.backend.redriver.preview.return_value = Preview(
            sent=[(gone(), "in")], refused=[("m-2", "it was redriven 5 times")], already_sent=3,
            full={"orders": 4},
        )  # fmt: skip
        running.backend.redriver.send.return_value = 2
        yield running


def redriver(console: Console) -> AsyncMock:
    found: AsyncMock = console.backend.redriver  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("kind", ["dead", "evicted"])
async def test_messages_are_searched_and_escaped(console: Console, kind: str) -> None:
    path = f"/{kind}?queue=orders.%23&reason=rejected&id=m-1&selector=priority>4&hours=all"
    text = await console.text(path)
    assert HOSTILE not in text
    assert 'name="record" value="0:17"' in text
    assert text.count('name="record"') == 1  # an undecodable record cannot be sent again
    wanted = DeadFilter(
        ids=["m-1"], queue="orders.#", reason="rejected", selector="priority>4", since_ms=0
    )
    assert redriver(console).latest.call_args == call(kind, 50, wanted, None)


async def test_a_selector_that_is_none_is_a_mistake_of_the_reader(console: Console) -> None:
    redriver(console).latest.side_effect = BadSelector("a >", 3, "a value is missing")
    answer = await console.get("/dead?selector=a+%3E")
    assert answer.status == 400
    assert "a value is missing" in await answer.text()


async def test_a_preview_says_what_would_happen_and_sends_nothing(console: Console) -> None:
    text = await console.text("/redrive?kind=dead&record=0:17&record=1:4")
    for said in (
        "Send 1 message again?", "3 of them were redriven before",
        "m-2 cannot be sent: it was redriven 5 times", "The ring of orders lacks room: 4 of its",
    ):  # fmt: skip
        assert said in text
    assert redriver(console).preview.call_args.args[:2] == ("dead", [(0, 17), (1, 4)])
    redriver(console).send.assert_not_called()


async def test_pages_go_on_without_end(console: Console) -> None:
    """A page that is full leads to those before its last one."""
    assert "Older" not in await console.text("/dead?hours=all")
    full = [replace(gone(f"m-{n}"), time_ms=5_000 + n, position=(1, n)) for n in range(50)]
    redriver(console).latest.return_value = [*reversed(full)]
    text = await console.text("/dead?hours=all&reason=rejected")
    assert "/console/dead?reason=rejected&amp;hours=all&amp;before=5000.0.1" in text
    await console.text("/dead?hours=all&before=5000.0.1")
    assert redriver(console).latest.call_args.args[3] == (5_000, 0, 1)
    for wrong in ("5", "a.b.c", "1.2.3.4", "9999999999999999999.1.1"):
        assert (await console.get(f"/dead?before={wrong}")).status == 400


async def test_all_that_match_are_redriven_up_to_the_newest_of_the_page(console: Console) -> None:
    """Those that die after the page was shown are not meant."""
    text = await console.text("/dead?queue=orders&reason=rejected&hours=all")
    found = re.search(r'href="(/console/redrive\?[^"]*all=[^"]*)"', text)
    assert found is not None
    asked = unescape(found[1]).removeprefix("/console")
    preview = await console.text(asked)
    wanted = AllBefore(DeadFilter(ids=[], queue="orders", reason="rejected"), Cursor(5_000, 17, 1))
    assert redriver(console).preview.call_args.args[:2] == ("dead", wanted)
    assert 'name="all" value="5000.17.1"' in preview
    await console.log_in()
    fields = dict(parse_qsl(asked.partition("?")[2]))
    assert (await console.post("/redrive", fields)).status == 303
    assert redriver(console).send.call_args.args[:2] == ("dead", wanted)
    for wrong in ("all=5", "all=5.1.1&since=x"):
        assert (await console.get(f"/redrive?kind=dead&{wrong}")).status == 400


async def test_a_message_that_is_gone_shows_its_body_its_headers_and_a_redrive(
    console: Console,
) -> None:
    headers = {"colour": Excerpt(start=b"red", size_bytes=3)}
    redriver(console).at.return_value = replace(gone(), headers=headers)
    text = await console.text("/message/gone?queue=orders&id=m-1&kind=evicted&record=0:17")
    redriver(console).at.assert_called_once_with("evicted", (0, 17), 100_000)
    assert HOSTILE not in text
    for said in (
        "Evicted: rejected",
        "colour",
        "red",
        "&lt;script&gt;",
        'action="/console/redrive"',
    ):
        assert said in text
    text = await console.text("/message/gone?id=m-1")  # in both topics
    assert "Dead: rejected" in text
    assert "Evicted: rejected" in text
    redriver(console).latest.return_value = []
    assert "neither dead nor evicted" in await console.text("/message/gone?id=m-1")


async def test_the_page_of_a_message_that_is_in_no_queue_looks_for_it(console: Console) -> None:
    console.backend.fake.message.return_value = None
    text = await console.text("/message?queue=orders&id=m-1&kind=dead&record=0:17")
    assert "/console/message/gone?queue=orders&amp;id=m-1&amp;kind=dead&amp;record=0%3A17" in text


async def test_a_redrive_needs_permission(console: Console) -> None:
    fields = {"kind": "evicted", "record": "0:17"}
    assert (await console.post("/redrive", fields)).status == 403
    redriver(console).send.assert_not_called()
    await console.log_in()
    answer = await console.post("/redrive", fields)
    assert (answer.status, answer.headers["Location"]) == (303, "/console/evicted")
    assert redriver(console).send.call_args.args[:2] == ("evicted", [(0, 17)])
    assert "2 messages were sent" in await console.text("/evicted")


@pytest.mark.parametrize("record", ["", "record=x", "record=1", "&".join(["record=0:1"] * 51)])
async def test_a_selection_that_makes_no_sense_is_refused(console: Console, record: str) -> None:
    assert (await console.get(f"/redrive?kind=dead&{record}")).status == 400


async def test_the_age_at_eviction_is_summed_up(console: Console) -> None:
    text = await console.text("/evicted/ages")
    assert "median 4.0 s, from 4.0 s to 4.0 s (the latest 2 of the last day)" in text
    redriver(console).latest.return_value = []
    assert "No message was evicted" in await console.text("/evicted/ages")


async def test_a_redrive_looks_at_all_partitions_of_the_topic(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console that was given brokers alone has the number of partitions of the example."""
    reader, plan_for = Mock(partitions=7, at=AsyncMock(return_value=[])), AsyncMock()
    plan_for.return_value = RedrivePlan()
    monkeypatch.setattr(redriving, "dead_reader", lambda *_: nullcontext(reader))
    monkeypatch.setattr(redriving, "plan_for", plan_for)
    used = InUse(QueuesConfig(), QueuesConfig())
    asked = Redriver(console.backend.worker, AsyncMock(return_value=used))
    await asked.preview("dead", [(6, 17)], AsyncMock())
    assert plan_for.await_args is not None
    assert plan_for.await_args.args[0].partitions == 7


async def test_of_the_records_with_one_id_the_last_counts_alone(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if so many matching messages are between them that they are read apart."""

    def dead(name: str, offset: int) -> Mock:
        return Mock(queue="q", id=name, time_ms=1, record=Mock(partition=0, offset=offset))

    planned: list[list[str]] = []

    async def plan_for(_: object, __: object, found: Iterable[Mock]) -> RedrivePlan:
        planned.append([each.id for each in found])
        return RedrivePlan(already_sent=len(planned[-1]))

    parts = [[dead("a", 5), dead("b", 6)], [dead("a", 3), dead("c", 4)], [dead("b", 2)]]
    reader = Mock(partitions=1, latest=AsyncMock(side_effect=parts))
    monkeypatch.setattr(redriving, "dead_reader", lambda *_: nullcontext(reader))
    monkeypatch.setattr(redriving, "plan_for", plan_for)
    monkeypatch.setattr(redriving, "MOST_REDRIVEN", 2)
    used = InUse(QueuesConfig(), QueuesConfig())
    asked = Redriver(console.backend.worker, AsyncMock(return_value=used))
    wanted = AllBefore(DeadFilter(), Cursor(9, 9, 0))
    await asked.preview("dead", wanted, AsyncMock())
    assert planned == [["a", "b"], ["c"], []]
