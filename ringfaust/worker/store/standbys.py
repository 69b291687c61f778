"""A worker's standbys: stores that follow the changelog of partitions that others serve (R127).

One Kafka client reads for all of them. They take turns, a few records at a time, and rest as long
as that has taken, so the worker's own partitions have the rest of the time. What the client holds
is bounded for each of them. A standby decides nothing, and its troubles stop nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ringfaust.cancellation import is_cancelled, run_again
from ringfaust.errors import RingfaustError
from ringfaust.protocol.status import CAUGHT_UP_RECORDS
from ringfaust.transactional.vendor import stop_client
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import StandbyConsumer
from ringfaust.worker.store.changelog import STANDBY_PACE
from ringfaust.worker.store.follower import Follower

log = logging.getLogger(__name__)

_RETRY_S = 10.0
_POLL_MS = 200
_RECORDS = 500
"""Most records of all standbys that are applied at a time: about 2 ms."""


class Standbys:
    """Keeps the standbys of a worker up to date."""

    def __init__(self, context: WorkerContext, follower: Callable[[int], Follower]) -> None:
        """Follow nothing yet.

        Args:
            context: what the tasks of the worker share.
            follower: returns the store of a partition.
        """
        self._context = context
        self._follower = follower
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._followed: dict[int, int] = {}
        """By partition whose store is open: how many records it is behind."""
        self._late: set[int] = set()
        """Those that have not been caught up since they are followed, and had no trouble."""
        self._troubles: dict[int, str] = {}
        self._changes = 0
        """How often another partition has begun or ceased to be followed."""
        self._changed = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()

    @property
    def behind(self) -> Mapping[int, int | None]:
        """By partition: how many records are left to apply; None: that is not known yet."""
        replaying = self._context.replaying
        opening = {number: replaying.get(number) or None for number in self._opening}
        return dict(sorted({**opening, **self._followed}.items()))

    @property
    def late(self) -> Mapping[int, int | None]:
        """Of `behind`, those that have not been caught up since they are followed.

        A worker is not ready as long as there are any, so that a rolling update waits for them.
        One that had a trouble is left out: that may last, and the update must go on. So is one
        whose partition a task of this worker still serves: nobody is nearer to its state.
        """
        return {
            number: left
            for number, left in self.behind.items()
            if number in self._late and not self._follower(number).is_lent
        }

    def follow(self, numbers: Collection[int], served: Collection[int]) -> None:
        """Follow these partitions, and no others.

        Args:
            numbers: the partitions.
            served: those whose tasks are going to take over the store if it is open.
        """
        for number in self.behind.keys() - {*numbers}:
            self._give_up(number)
            if number not in served:
                self._follower(number).rest()
        for number in sorted({*numbers} - self.behind.keys()):
            self._late.add(number)
            self._open(number)

    async def stop(self) -> None:
        """Follow nothing any more, and close all stores."""
        self.follow((), ())
        if self._ending:
            await asyncio.wait({*self._ending})

    def _give_up(self, number: int) -> None:
        self._changes += 1
        self._followed.pop(number, None)
        self._late.discard(number)
        if (opening := self._opening.pop(number, None)) is not None:
            opening.cancel()
            self._ending.add(opening)
            opening.add_done_callback(self._ending.discard)

    # --- opening ---------------------------------------------------------------------------------

    def _open(self, number: int, after_s: float = 0.0) -> None:
        self._opening[number] = asyncio.ensure_future(self._try_to_open(number, after_s))

    async def _try_to_open(self, number: int, after_s: float) -> None:
        follower = self._follower(number)
        while True:
            await self._context.clock.sleep(after_s)
            try:
                await follower.catch_up(STANDBY_PACE, self._one_at_a_time)
                break
            except (Exception, asyncio.CancelledError) as error:
                if is_cancelled():
                    raise asyncio.CancelledError from error
                after_s = _RETRY_S
                self._tell(number, error)
        self._troubles.pop(number, None)
        self._changes += 1
        self._followed[number] = 0
        del self._opening[number]
        self._changed.set()

    def _reopen(self, number: int, error: Exception) -> None:
        """Open a standby again that cannot go on."""
        self._tell(number, error)
        self._give_up(number)
        self._follower(number).rest()
        self._open(number, _RETRY_S)

    def _tell(self, number: int, error: BaseException) -> None:
        text = str(error) or repr(error)
        if self._troubles.get(number) != text:
            log.warning("the standby of partition %d: %s; trying again", number, text)
        self._troubles[number] = text
        self._late.discard(number)

    # --- following -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow until cancelled."""
        await run_again(self._serve, _RETRY_S, lambda error: log.warning("the standbys: %r", error))

    async def _serve(self) -> None:
        await self._until_some_are_followed()
        consumer = self._context.open_standby_log()
        try:
            await consumer.start()
            changes = -1
            while True:
                await self._until_some_are_followed()
                if changes != self._changes:
                    changes = self._changes
                    self._position(consumer)
                try:
                    await self._take_turn(consumer)
                except OffsetOutOfRangeError as error:  # cut, or created again: opening finds out
                    for number in [*self._followed]:
                        self._reopen(number, error)
        finally:
            with suppress(KafkaError, OSError):
                await stop_client(consumer)

    async def _until_some_are_followed(self) -> None:
        while not self._followed:
            self._changed.clear()
            await self._changed.wait()

    def _position(self, consumer: StandbyConsumer) -> None:
        at = {
            TopicPartition(*follower.changelog): follower.next_offset
            for follower in map(self._follower, self._followed)
        }
        consumer.assign([*at])
        for tp, offset in at.items():
            consumer.seek(tp, offset)

    async def _take_turn(self, consumer: StandbyConsumer) -> None:
        """Apply the next records. Does nothing if other partitions are followed meanwhile."""
        changes = self._changes
        fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_RECORDS)
        followers = [self._follower(number) for number in self._followed]
        tps = [TopicPartition(*follower.changelog) for follower in followers]
        if changes != self._changes:
            return
        positions = {tp: await consumer.position(tp) for tp in tps}
        if changes != self._changes:
            return
        began_s = time.monotonic()
        for follower, tp in zip(followers, tps, strict=True):
            next_offset = positions[tp]
            end = consumer.last_stable_offset(tp)
            behind = max((end or 0) - next_offset, 0)
            end_ms = None if behind else consumer.last_poll_timestamp(tp)
            try:
                follower.follow(fetched.get(tp, ()), next_offset, end_ms)
            except RingfaustError as error:
                self._reopen(follower.number, error)
            else:
                self._followed[follower.number] = behind
                if end is not None and behind <= CAUGHT_UP_RECORDS:
                    self._late.discard(follower.number)
        await self._context.clock.sleep(time.monotonic() - began_s)
