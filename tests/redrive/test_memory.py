"""The bitmap that says which records were redriven."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, ProducerFenced

from ringfaust.protocol.records import OutgoingRecord
from ringfaust.redrive import memory, send
from ringfaust.redrive.memory import PAGE_RECORDS, Origin, RedrivenPage, UnknownRedriven

TOPIC = TopicPartition("dead", 3)


async def read_back(page: RedrivenPage, monkeypatch: pytest.MonkeyPatch) -> RedrivenPage:
    """The page as another process reads what was committed."""
    stored = {tuple(tp): committed for tp, committed in page.offsets().items()}

    async def group_offsets(*_: Any) -> Any:
        return stored

    monkeypatch.setattr(memory, "group_offsets", group_offsets)
    other = RedrivenPage("app", "dead", 2)
    await other.read({}, [3])
    return other


async def test_any_set_of_records_is_read_back_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers refuse metadata of more than 4,096 bytes."""
    first = 2 * PAGE_RECORDS
    rng = random.Random(1)
    for chosen in (
        [],
        [0],
        [PAGE_RECORDS - 1],
        range(PAGE_RECORDS),
        rng.sample(range(PAGE_RECORDS), PAGE_RECORDS // 2),
    ):
        page = RedrivenPage("app", "dead", 2)
        page.add(Origin("dead", 3, first))
        page.remove(Origin("dead", 3, first))
        for each in chosen:
            page.add(Origin("dead", 3, first + each))
        (committed,) = page.offsets().values()
        assert len(committed.metadata) < 3_000
        assert committed.offset == first + max(chosen, default=-1) + 1
        other = await read_back(page, monkeypatch)
        assert {
            each for each in range(PAGE_RECORDS) if other.has(Origin("dead", 3, first + each))
        } == set(chosen)
        assert not other.has(Origin("dead", 4, first))


async def test_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    page: Any = SimpleNamespace(offsets=lambda: {TOPIC: SimpleNamespace(metadata="2:what")})
    with pytest.raises(UnknownRedriven, match="app-redriven/2"):
        await read_back(page, monkeypatch)


async def test_what_was_just_forgotten_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers answer a commit before readers see its offsets."""
    origin, record = Origin("dead", 3, 7), OutgoingRecord("orders", b"x")
    sent: list[OutgoingRecord] = []

    class Writer:
        async def send(self, records: list[OutgoingRecord]) -> None:
            sent.extend(records)

        async def commit(self, produce: Any, *_: object) -> None:
            await produce()

    @asynccontextmanager
    async def writer(_: object) -> AsyncIterator[Writer]:
        yield Writer()

    async def stale(*_: object) -> RedrivenPage:
        page = RedrivenPage("app", "dead", 0)
        page.add(origin)
        return page

    monkeypatch.setattr(send, "_writer", writer)
    monkeypatch.setattr(send, "read_page", stale)
    context: Any = None
    redriven = [send.Redriven(origin, record)]
    assert await send.send(context, redriven) == 0
    assert await send.send(context, redriven, again=True) == 1
    assert sent == [record]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MessageSizeTooLargeError(), "raise its max.message.bytes. It stopped after 4 messages"),
        (ProducerFenced(), "another redrive of this application has taken over after 4 messages"),
        (KafkaTimeoutError(), r"the brokers failed \(KafkaTimeoutError\(\)\) after 4 messages"),
    ],
)
def test_a_redrive_that_stops_says_why(error: Exception, said: str) -> None:
    with pytest.raises(send.RedriveStopped, match=said):
        raise send.RedriveStopped(4, error)
