"""The loop that feeds a partition: take what has arrived, decide, commit.

While a batch is in flight, which is to say being committed, the next one is decided, in slices, so
that the many small waits of a transaction cost no time; it takes off when the one before has
landed. So at most one batch is in flight, and everything in memory beyond it is lost with it if it
fails.

If a commit fails nobody knows what the broker has. Then all of it is let go and opened again, which
finds out: a new start of the producer settles the transaction, and only then is looked where to
go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from aiokafka.errors import IllegalStateError, KafkaError, ProducerFenced
from faust.types import TP

from ringfaust.kafka.names import worker_group
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.transactions import Committer
from ringfaust.protocol.records import InRecord
from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.inbox import Inbox
from ringfaust.worker.input_positions import Bounds

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.5
RETRY_MOST_S = 15.0
_STOP_MOST_S = 10.0
_SLICE_RECORDS = 100
"""Records decided before the network has its turn: some 1.5 ms."""
_LOOKS = 5
"""Turns of the event loop it gets then: a request needs several to leave and to come back."""


class Loop(ABC):
    """One partition of some topics, read by us; who derives from it says what for."""

    def __init__(
        self, number: int, topics: frozenset[str], transactional_id: str, shared: WorkerContext
    ) -> None:
        """`transactional_id`: of the producer; starting it fences an earlier owner."""
        self.number = number
        self._topics = topics
        self._transactional_id = transactional_id
        self._shared = shared
        self._inbox = Inbox(shared.batch_records, shared.reader)
        self._committer: Committer | None = None
        self._flight: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    # --- what is to be done with the records -----------------------------------------------------

    @abstractmethod
    async def open(self, bounds: Mapping[str, Bounds]) -> Mapping[str, int]:
        """Take over. Returns the position of each input topic.

        `bounds`: by topic, the log that is there now.
        """

    @abstractmethod
    async def _resume(self, committed: Mapping[str, int]) -> None:
        """Find out where to go on, with a committer that was just started.

        `committed`: the group's offsets by topic, which nobody else can move any more.
        """

    @abstractmethod
    def _positions(self) -> Mapping[str, int]:
        """By topic, where to go on."""

    @abstractmethod
    def _decide(self, records: list[InRecord], wall_ms: int) -> None:
        """Do a slice of a turn's records, in memory."""

    @abstractmethod
    async def _do_turn(self, records: list[InRecord], wall_ms: int) -> None:
        """Decide the records; when nothing is in flight any more, `_launch` what came of them."""

    def _patience_s(self) -> float | None:
        """How long at most to wait for records before the next turn; None: for ever."""
        return None

    @abstractmethod
    def _release(self) -> None:
        """Let go of what `_resume` has opened, if it has."""

    # --- opening and closing ---------------------------------------------------------------------

    @property
    def tps(self) -> frozenset[TP]:
        """What it reads."""
        return frozenset(TP(topic, self.number) for topic in self._topics)

    @property
    def name(self) -> str:
        """For the log."""
        return f"partition {self.number}"

    async def _open(self) -> Mapping[str, int]:
        """Settle what is open, then find out where to go on. Returns the group's offsets."""
        shared = self._shared
        self._committer = Committer(
            shared.application, self.number, shared.topics, shared.client, self._transactional_id
        )
        try:
            await self._committer.start()
            # Read before the changelog's end, so that they are never newer than the state.
            told = await group_offsets(shared.client, worker_group(shared.application), self.tps)
            committed = {topic: found.offset for (topic, _), found in told.items()}
            await self._resume(committed)
        except BaseException:
            await self._let_go()
            raise
        return committed

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """What the loop does not handle, a broken invariant say, stops the worker, loudly."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._shared.crash(error)

    async def close(self) -> None:
        """Finish the turn that is under way, and let go."""
        if self._task is not None:
            async with self._turn:
                self._task.cancel()
                with suppress(KafkaError, TimeoutError):
                    await self._landed()
            await asyncio.wait({self._task})
        await self._let_go()

    async def _let_go(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.cancel()
            await asyncio.wait({flight})
        committer, self._committer = self._committer, None
        if committer is not None:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_STOP_MOST_S):
                    await committer.stop()
        self._release()

    # --- turns -----------------------------------------------------------------------------------

    def offer(self, batch: Batch) -> None:
        """Records have arrived."""
        self._inbox.offer(batch)

    async def _run(self) -> None:
        while True:
            # Not by wait_for, which in Python 3.11 loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s()):
                    await self._inbox.arrived.wait()
            try:
                async with self._turn:
                    if self._flight is not None and self._flight.done():
                        await self._landed()
                    await self._do_turn(self._inbox.take(), time.time_ns() // 1_000_000)
            except (TimeoutError, KafkaError) as error:
                await self._open_again(error)

    async def _decide_all(self, records: list[InRecord], wall_ms: int) -> None:
        for start in range(0, len(records), _SLICE_RECORDS):
            self._decide(records[start : start + _SLICE_RECORDS], wall_ms)
            for _ in range(_LOOKS):
                await asyncio.sleep(0)

    def _launch(self, commit: Coroutine[Any, Any, None]) -> None:
        """Let a batch fly, and have a turn when it has landed."""
        self._flight = asyncio.ensure_future(commit)
        self._flight.add_done_callback(lambda _: self._inbox.arrived.set())

    async def _landed(self) -> None:
        """Wait until no batch is in flight; raises what the last one failed with."""
        flight, self._flight = self._flight, None
        if flight is not None:
            await flight

    async def _open_again(self, error: Exception) -> None:
        """After a failed commit: find out what the broker has, and go on from there.

        Who was fenced waits first: if another worker owns the partition now, the rebalance that
        tells so is on its way, and opening again would only fence the new owner in turn.
        """
        log.warning("%s: the commit failed (%r); opening it again", self.name, error)
        wait_s = self._shared.fenced_wait_s if isinstance(error, ProducerFenced) else RETRY_FIRST_S
        await self._let_go()
        while True:
            await asyncio.sleep(wait_s)
            try:
                await self._open()
                break
            except (TimeoutError, KafkaError, OSError) as again:
                wait_s = min(wait_s * 2, RETRY_MOST_S)
                log.warning("%s: still not (%r); next try in %.1f s", self.name, again, wait_s)
        self._inbox.clear()
        reader = self._shared.reader()
        positions = self._positions()
        with suppress(IllegalStateError):  # reassigned meanwhile: whoever comes next seeks
            for tp in self.tps:
                await reader.seek(tp, positions[tp.topic])
