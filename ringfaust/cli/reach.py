"""Reach brokers and workers, or say within seconds which of them does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from ringfaust.cli.parts import where
from ringfaust.client.resource import AsyncResource
from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import spark_group
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.probe import answering, silent
from ringfaust.kafka.sign_topic import LastSign, last_sign
from ringfaust.protocol.records import Role
from ringfaust.times import age_text, wall_ms

PATIENCE_S = 1.5
"""How long connecting may take before it is asked which brokers do not answer."""

R = TypeVar("R", bound=AsyncResource)


class BrokerHangs(RingfaustError):
    """A broker of the cluster does not answer. The text has its address."""


class NoWorker(RingfaustError):
    """No worker lives that could answer. The command was not sent, so nothing changes later."""


async def reached(worker: WorkerConfig) -> WorkerConfig:
    """Return the configuration with a bootstrap server that answers.

    Raises:
        BrokerUnreachable: none does. It names each, and why.
    """
    return worker.model_copy(update={"bootstrap_servers": await answering(worker.brokers())})


@asynccontextmanager
async def started(client: R, worker: WorkerConfig) -> AsyncIterator[R]:
    """Start a client, and close it at the end.

    Raises:
        BrokerHangs: it takes long, and brokers do not answer.
    """
    stack = AsyncExitStack()
    starting = asyncio.ensure_future(stack.enter_async_context(client))
    try:
        while not (await asyncio.wait([starting], timeout=PATIENCE_S))[0]:
            if trouble := await silent(worker.brokers()):
                raise BrokerHangs(f"{'; '.join(trouble)}. Nothing was changed")
        await starting
    finally:
        starting.cancel()
    async with stack:
        yield client


async def lives(worker: WorkerConfig) -> LastSign:
    """Whether a worker lives. A Spark job gives no signs: one that ever ran counts as alive."""
    client, control = worker.client_options(), (worker.topic(Role.CONTROL), 0)
    sign = await last_sign(client, worker.topic(Role.STATUS), worker.failover_after_ms)
    if sign.lives or not await group_offsets(client, spark_group(worker.application), [control]):
        return sign
    return LastSign(True)


async def check_worker(worker: WorkerConfig) -> None:
    """Check that a worker lives, before something is asked of it.

    Raises:
        NoWorker: none does.
    """
    sign = await lives(worker)
    if sign.lives:
        return
    last = "none was started, or the last one was stopped"
    if sign.time_ms:
        last = f"the last sign of life is {age_text(wall_ms() - sign.time_ms)} old"
    raise NoWorker(
        f"no worker of the {where(worker)} lives: {last}. Nothing was sent, so nothing changes "
        "later, either. Start a worker: ringfaust worker --config DIR"
    )
