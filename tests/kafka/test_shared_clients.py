"""Clients that stay connected: a partition that is opened asks much, and opens nothing for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from ringfaust.kafka.shared_clients import Clients, SharedClients


class Opened:
    """Opens clients that reach nothing, and notes which were closed."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.closed: list[Any] = []

    async def open(self) -> Clients:
        clients = Clients({"bootstrap_servers": "localhost:1"})

        really_close = clients.close

        async def close() -> None:
            self.closed.append(clients)
            await really_close()

        await asyncio.sleep(0)
        clients.close = close  # type: ignore[method-assign]
        self.all.append(clients)
        return clients


async def which(clients: Clients) -> Clients:
    await asyncio.sleep(0)
    return clients


async def test_questions_of_one_block_share_clients() -> None:
    opened = Opened()
    async with SharedClients(opened.open) as shared:
        asked = [await shared.ask(which)]
        asked += await asyncio.gather(shared.ask(which), shared.ask(which))
        assert (len(opened.all), opened.closed) == (1, [])
    assert asked == [opened.all[0]] * 3
    assert opened.closed == opened.all


async def test_outside_a_block_each_question_has_its_own() -> None:
    """A worker that stops asks, too, and nobody would close what it has opened."""
    opened = Opened()
    shared = SharedClients(opened.open)
    async with shared:
        await shared.ask(which)
    assert await shared.ask(which) == opened.all[1]
    assert opened.closed == opened.all


async def test_a_question_is_asked_again_if_its_clients_were_older() -> None:
    """Brokers close what was idle, or were started elsewhere: nobody waits because of that."""
    opened = Opened()

    async def fails_once(clients: Clients) -> Clients:
        if clients is opened.all[0]:
            raise KafkaConnectionError
        return clients

    async with SharedClients(opened.open) as shared:
        with pytest.raises(KafkaConnectionError):
            await shared.ask(fails_once)  # they were new
        assert opened.closed == opened.all
        opened.all.clear()
        await shared.ask(which)
        assert await shared.ask(fails_once) == opened.all[1]
        assert opened.closed[1:] == opened.all[:1]


async def test_clients_are_closed_after_their_last_question() -> None:
    opened = Opened()
    may_end = asyncio.Event()

    async def waits(clients: Clients) -> Clients:
        await may_end.wait()
        return clients

    async def fails(_: Clients) -> None:
        raise KafkaConnectionError

    async with SharedClients(opened.open) as shared:
        waiting = asyncio.ensure_future(shared.ask(waits))
        await asyncio.sleep(0)
        with pytest.raises(KafkaConnectionError):
            await shared.ask(fails)
        assert opened.all[0] not in opened.closed
        may_end.set()
        assert await waiting == opened.all[0]
        assert opened.all[0] in opened.closed
