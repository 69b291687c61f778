"""How far a partition has heard its consumers: until when all their commands are decided (R110).

A consumer that reads committed records does not see what is behind an open transaction, and its end
of the log is the last stable offset. So a client of its own asks for the ends of the logs, in the
consumer's thread, which a long step of a partition does not block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.core.model import Heard
from ringfaust.transactional.vendor import stop_client
from ringfaust.worker.interfaces import LogEnd, WorkerClock

log = logging.getLogger(__name__)

ASK_INTERVAL_S = 0.5
"""How often the brokers are asked."""
MAX_PAUSE_MS = 2_000
"""Of answers that are further apart, nobody knows whether clients could reach the brokers between
them."""
NOTHING = Heard(0, 0)
_REQUEST_TIMEOUT_MS = 5_000
_STOP_TIMEOUT_S = 2.0


def continue_from(before: LogEnd | None, asked_ms: int, offset: int) -> LogEnd:
    """The next answer about a log. After a pause, or a jump of the clock, a new stretch begins."""
    is_continued = before is not None and 0 <= asked_ms - before.asked_ms <= MAX_PAUSE_MS
    return LogEnd(asked_ms, before.since_ms if before and is_continued else asked_ms, offset)


class LogEnds:
    """Asks the brokers for the ends of one topic's partitions, and keeps the last answers."""

    def __init__(self, topic: str, client: Mapping[str, Any], clock: WorkerClock) -> None:
        """`client`: options of any Kafka client."""
        self._topic = topic
        self._options = client
        self._clock = clock
        self._ends: dict[TP, LogEnd] = {}
        self._answered_s: float | None = None
        """When the brokers last answered, or when they were first asked. None: nobody asks them."""

    def silent_s(self) -> float:
        """For how many seconds the brokers have not answered. Any thread may call this."""
        answered_s = self._answered_s
        return 0.0 if answered_s is None else self._clock.monotonic_s() - answered_s

    def end(self, tp: TP) -> LogEnd | None:
        """The last answer about a partition that is read, or None. Any thread may call this."""
        return self._ends.get(tp)

    async def run(self, assigned: Callable[[], Collection[TP]]) -> None:
        """Ask until cancelled. `assigned`: returns the partitions that are being read."""
        client: AIOKafkaConsumer | None = None
        self._answered_s = self._clock.monotonic_s()
        try:
            while True:
                tps = [tp for tp in assigned() if tp.topic == self._topic]
                try:
                    client = client or await self._connect()
                    await self._ask(client, tps)
                    self._answered_s = self._clock.monotonic_s()
                except (KafkaError, OSError, TimeoutError) as error:
                    log.debug("cannot ask for the ends of %s: %r", self._topic, error)
                await asyncio.sleep(ASK_INTERVAL_S)
        finally:
            self._answered_s = None  # nobody asks any more
            if client is not None:
                with suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(_STOP_TIMEOUT_S):
                        await stop_client(client)

    async def _connect(self) -> AIOKafkaConsumer:
        client = AIOKafkaConsumer(
            **self._options,
            isolation_level="read_uncommitted",
            enable_auto_commit=False,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        try:
            await client.start()
        except BaseException:
            await stop_client(client)
            raise
        return client

    async def _ask(self, client: AIOKafkaConsumer, tps: Collection[TP]) -> None:
        """Ask once. The time is taken first: what is accepted later may be behind the answer."""
        asked_ms = self._clock.wall_ms()
        found = await client.end_offsets([TopicPartition(*tp) for tp in tps]) if tps else {}
        ends = {TP(where.topic, where.partition): offset for where, offset in found.items()}
        # A partition that was revoked starts over: nobody has asked about it since.
        self._ends = {
            tp: continue_from(self._ends.get(tp), asked_ms, offset) for tp, offset in ends.items()
        }


class Hearing:
    """Turns the ends of a control log, once they are reached, into the time that was heard.

    The end to reach stays the same until it is reached. So a log that grows without a pause is
    heard too, a little late.
    """

    def __init__(self) -> None:
        self.heard = NOTHING
        """Between these times every command that the brokers had accepted has been decided."""
        self._target: LogEnd | None = None

    def target(self, newest: LogEnd | None) -> LogEnd | None:
        """The end that the partition must reach next; `newest`: the brokers' last answer."""
        if self._target is None and newest is not None and newest.asked_ms != self.heard.until_ms:
            self._target = newest
        return self._target

    def reach(self) -> None:
        """Note that everything up to the target has been decided."""
        assert self._target is not None
        self.heard = Heard(self._target.since_ms, self._target.asked_ms)
        self._target = None
