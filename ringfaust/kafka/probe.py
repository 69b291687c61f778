"""Whether brokers answer, within seconds: aiokafka's own clients wait 40 s for one that hangs."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from ringfaust.cancellation import cancellation_is_kept
from ringfaust.kafka.admin import Brokers, BrokerUnreachable, why_silent

ANSWER_S = 1.5
"""How long a broker may take to accept a client and to say which brokers there are."""


class _Answer(NamedTuple):
    server: str
    brokers: tuple[str, ...]
    """The addresses of all brokers, as this one knows them."""
    trouble: str
    """Why it does not answer; empty: it does."""


async def answering(brokers: Brokers) -> str:
    """Return the first bootstrap server that answers. All are asked at once.

    Raises:
        BrokerUnreachable: none answers. It says of each why.
    """
    return (await _first(brokers)).server


async def silent(brokers: Brokers) -> list[str]:
    """Return why brokers of the cluster do not answer, each with its address.

    Raises:
        BrokerUnreachable: no bootstrap server answers.
    """
    known = (await _first(brokers)).brokers
    asked = await asyncio.gather(*(_ask(server, brokers) for server in known))
    return [each.trouble for each in asked if each.trouble]


async def _first(brokers: Brokers) -> _Answer:
    asked = [asyncio.ensure_future(_ask(each, brokers)) for each in brokers.servers.split(",")]
    waiting = set(asked)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                if not each.result().trouble:
                    return each.result()
    finally:
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
    raise BrokerUnreachable(brokers.servers, "; ".join(each.result().trouble for each in asked))


async def _ask(server: str, brokers: Brokers) -> _Answer:
    options = {**brokers.client_options, "bootstrap_servers": server}
    client = AIOKafkaClient(**options, request_timeout_ms=int(ANSWER_S * 1000))
    try:
        async with asyncio.timeout(ANSWER_S):
            await client.bootstrap()
        known = tuple(f"{each.host}:{each.port}" for each in client.cluster.brokers())
        return _Answer(server, known, "")
    except (KafkaError, OSError, TimeoutError, ValueError):
        return _Answer(server, (), await why_silent(server, brokers.security))
    finally:
        with cancellation_is_kept():
            await client.close()
