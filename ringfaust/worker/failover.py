"""Signs of life of the workers, and the removal of one that gives none any more (R126).

A group of Kafka notices only after its session timeout that a member is gone, and brokers insist on
6 s or more. So each worker writes signs to the status topic, and reads those of the others. All of
this runs in the thread of the group's member, as heartbeats do: a long step of a partition does not
block it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiokafka.errors import KafkaError

from ringfaust.cancellation import is_cancelled, run_again
from ringfaust.errors import RingfaustError
from ringfaust.kafka.sign_topic import SignTopic
from ringfaust.protocol.status import SIGNS, Sign

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_STOP_TIMEOUT_S = 2.0
HUNG_AFTER_S = 30.0
"""A worker whose event loop has not turned for so long is hung. The longest step of a partition
took 12 s when it was measured."""
_TURN_S = 1.0


class LoopWatch:
    """Tells another thread whether the event loop of the app still turns."""

    def __init__(self) -> None:
        self._turned_s = math.inf
        """When it turned last; before it runs, nobody waits for it."""

    async def run(self) -> None:
        """Note in that loop that it turns, until cancelled."""
        while True:
            self._turned_s = time.monotonic()
            await asyncio.sleep(_TURN_S)

    def is_hung(self) -> bool:
        """Whether it has not turned for `HUNG_AFTER_S`. Any thread may call this."""
        return time.monotonic() - self._turned_s > HUNG_AFTER_S


class Peers:
    """Which other workers are gone.

    Only the order of the signs counts. So nothing is wrong with anybody while the brokers are away,
    or while this worker is paused: then it gives no signs either.
    """

    def __init__(self, me: str, interval_ms: int) -> None:
        """Know nobody yet; `interval_ms`: how often this worker gives a sign."""
        self._me = me
        self._interval_ms = interval_ms
        self._silent: dict[str, tuple[Sign, int]] = {}
        """By worker: its last sign, and how many signs of this one have come since."""

    def hear(self, sign: Sign) -> list[Sign]:
        """Note a sign. Returns the last signs of the workers that are gone, each once."""
        if not sign.is_alive:
            self._silent.pop(sign.worker, None)
        elif sign.worker != self._me:
            self._silent[sign.worker] = sign, 0
        else:
            self._silent = {name: (last, n + 1) for name, (last, n) in self._silent.items()}
        gone = [last for last, n in self._silent.values() if self._is_gone(last, n)]
        for last in gone:
            del self._silent[last.worker]
        return gone

    def _is_gone(self, last: Sign, mine_since: int) -> bool:
        """Whether this worker has given too many signs since. The longer interval counts."""
        longer_ms = max(self._interval_ms, last.interval_ms)
        return mine_since * self._interval_ms > SIGNS * longer_ms


class Failover:
    """Gives signs of life, and removes workers that are gone from the group."""

    def __init__(
        self,
        signs: SignTopic,
        me: str,
        failover_after_ms: int,
        remove: Callable[[str], Awaitable[None]],
        is_hung: Callable[[], bool],
    ) -> None:
        """Connect to nothing yet.

        Args:
            signs: the log.
            me: this worker's identity.
            failover_after_ms: how long another worker may give no sign.
            remove: removes a worker from the group. If it fails, it is called again later.
            is_hung: whether the worker does nothing any more. Then it gives no signs, and so
                removes nobody.
        """
        self._signs = signs
        self._me = me
        self._interval_ms = failover_after_ms // SIGNS
        self._remove = remove
        self._is_hung = is_hung
        self._was_hung = False

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
                        await self._signs.write(Sign(self._me, is_alive=False))
            with suppress(Exception):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._signs.stop()

    async def _give_signs(self) -> None:
        """Give them at a steady pace, however long it takes to write one: others count them."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            if not self._notice_hung():
                await self._signs.write(Sign(self._me, self._interval_ms))
            due_s = max(due_s + self._interval_ms / 1000, loop.time())
            await asyncio.sleep(due_s - loop.time())

    def _notice_hung(self) -> bool:
        was_hung, self._was_hung = self._was_hung, self._is_hung()
        if self._was_hung and not was_hung:
            log.error(
                "the event loop of this worker has not turned for %.0f s; it gives no more signs "
                "of life, so that others replace it",
                HUNG_AFTER_S,
            )
        elif was_hung and not self._was_hung:
            log.warning("the event loop of this worker turns again")
        return self._was_hung

    async def _watch(self) -> None:
        peers = Peers(self._me, self._interval_ms)
        async for sign in self._signs.read():
            for last in peers.hear(sign):
                gone = last.worker
                log.warning("worker %s gives no sign of life; removing it from the group", gone)
                try:
                    await self._remove(gone)
                except (KafkaError, OSError, RingfaustError) as error:
                    # If this ended the signs, the others would remove this worker, too.
                    log.warning("cannot remove worker %s from the group (%s)", gone, error)
                    peers.hear(last)  # tries again after as many signs
                else:
                    await self._signs.write(Sign(gone, is_alive=False))
