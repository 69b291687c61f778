"""Signs of life of the workers, and the removal of one that gives none any more (R126).

A group of Kafka notices only after its session timeout that a member is gone, and brokers insist on
6 s or more. So each worker writes signs to the status topic, and reads those of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from aiokafka.errors import KafkaError

from ringfaust.cancellation import is_cancelled, run_again
from ringfaust.errors import RingfaustError
from ringfaust.protocol.status import SIGNS

log = logging.getLogger(__name__)

_RETRY_S = 10.0
_STOP_TIMEOUT_S = 2.0


class SignLog(Protocol):
    """The log of the signs."""

    async def start(self) -> None:
        """Connect, and look who gave signs of life until now."""

    async def write(self, worker: str, *, is_alive: bool) -> None:
        """Write a sign of life, or that the worker stops."""

    def read(self) -> AsyncIterator[tuple[str, bool]]:
        """Yield the signs, as arguments of `write`, without end; first, who lived at the start."""

    async def stop(self) -> None:
        """Disconnect."""


class Peers:
    """Which other workers are gone.

    Only the order of the signs counts. So nothing is wrong with anybody while the brokers are away,
    or while this worker is paused: then it gives no signs either.
    """

    def __init__(self, me: str) -> None:
        self._me = me
        self._mine_since: dict[str, int] = {}
        """By worker: how many signs of this one have come since its last."""

    def hear(self, worker: str, *, is_alive: bool) -> list[str]:
        """Note a sign. Returns the workers that are gone, each once."""
        if not is_alive:
            self._mine_since.pop(worker, None)
        elif worker != self._me:
            self._mine_since[worker] = 0
        else:
            self._mine_since = {name: count + 1 for name, count in self._mine_since.items()}
        gone = [name for name, count in self._mine_since.items() if count > SIGNS]
        for name in gone:
            del self._mine_since[name]
        return gone


class Failover:
    """Gives signs of life, and removes workers that are gone from the group."""

    def __init__(
        self,
        signs: SignLog,
        me: str,
        failover_after_ms: int,
        remove: Callable[[str], Awaitable[None]],
    ) -> None:
        """Connect to nothing yet.

        Args:
            signs: the log.
            me: this worker's identity.
            failover_after_ms: how long another worker may give no sign.
            remove: removes a worker from the group. If it fails, it is called again later.
        """
        self._signs = signs
        self._me = me
        self._every_s = failover_after_ms / SIGNS / 1000
        self._remove = remove

    async def run(self) -> None:
        """Give signs until cancelled. Without them a worker is replaced after its session."""
        await run_again(
            self._serve, _RETRY_S, lambda error: log.debug("no signs of life: %r", error)
        )

    async def _serve(self) -> None:
        try:
            await self._signs.start()
            both = [asyncio.ensure_future(each) for each in (self._give_signs(), self._watch())]
            try:
                ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in both:
                    each.cancel()
                await asyncio.wait(both)
            ended.pop().result()
        finally:
            with suppress(Exception):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    if is_cancelled():
                        await self._signs.write(self._me, is_alive=False)
            with suppress(Exception):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._signs.stop()

    async def _give_signs(self) -> None:
        """Give them at a steady pace, however long it takes to write one: others count them."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            await self._signs.write(self._me, is_alive=True)
            due_s = max(due_s + self._every_s, loop.time())
            await asyncio.sleep(due_s - loop.time())

    async def _watch(self) -> None:
        peers = Peers(self._me)
        async for worker, is_alive in self._signs.read():
            for gone in peers.hear(worker, is_alive=is_alive):
                log.warning("worker %s gives no sign of life; removing it from the group", gone)
                try:
                    await self._remove(gone)
                except (KafkaError, OSError, RingfaustError) as error:
                    # If this ended the signs, the others would remove this worker, too.
                    log.warning("cannot remove worker %s from the group (%s)", gone, error)
                    peers.hear(gone, is_alive=True)  # tries again after as many signs
                else:
                    await self._signs.write(gone, is_alive=False)
