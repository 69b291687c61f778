"""Publishes what a worker and its queues do to the status topic (ADR 31).

Outside the transactions and beside the partitions: a row that is lost, or a topic that is missing,
costs the worker nothing but a line in its log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ringfaust.cancellation import is_cancelled, run_again
from ringfaust.kafka.status_topic import StatusRow, StatusTopic
from ringfaust.protocol.status import CAUGHT_UP_RECORDS, read_key, read_time_ms, worker_key
from ringfaust.times import wall_ms
from ringfaust.worker.observe.numbers import Numbers
from ringfaust.worker.observe.queue_status import PartitionStatus
from ringfaust.worker.partition.work import PartitionWork

log = logging.getLogger(__name__)

BYTES_PER_S = 256 * 1024
"""How much a worker writes at most, before compression."""
MOST_QUEUES = 100_000
"""Most queues that a worker publishes."""
TICK_S = 1.0
"""How often rows are written; no queue has more than one row in this time."""
BEAT_S = 5.0
"""How often a worker writes its own row if nothing changes."""
_FORGET_MS = 3_600_000
"""The row of a worker that has been silent for so long is removed. The rows are looked at as often
as that."""
_WORKERS_PARTITION = 0
_SLICE = 25
"""Rows that are made before the event loop runs: about 1 ms."""
_RETRY_S = 10.0
_STOP_TIMEOUT_S = 2.0
_MOST_PROBLEMS = 5
_MOST_STOPPED = 100
_NOTHING: tuple[object, ...] = ()


class StatusPublisher:
    """Publishes the rows of one worker."""

    def __init__(
        self,
        topic: StatusTopic,
        worker: str,
        about: Mapping[str, Any],
        *,
        partitions: int,
        numbers: Numbers,
        clock_skew_ms: Callable[[], int | None],
    ) -> None:
        """Publish nothing yet.

        Args:
            topic: where to.
            worker: the name of this worker, which no other has.
            about: what never changes of its row.
            partitions: of the application.
            numbers: of the worker.
            clock_skew_ms: by how much the clock was ahead of the brokers' when that was measured.
        """
        self._topic = topic
        self._key = worker_key(worker)
        self._about = about
        self._partitions = partitions
        self._numbers = numbers
        self._works = numbers.works
        self._clock_skew_ms = clock_skew_ms
        self._parts: dict[PartitionWork, PartitionStatus] = {}
        """The partitions whose rows have been read."""
        self._beat_s = 0.0
        """When the worker's own row was written."""
        self._next_forget_s = 0.0
        """When the rows of workers are looked at again, if this one has their partition."""
        self._said = _NOTHING
        """What it said, as far as a change of it makes a new row."""
        self._trouble = ""

    async def run(self) -> None:
        """Publish until cancelled. Errors are logged, and it starts over."""
        await run_again(self._serve, _RETRY_S, self._tell_of_trouble)

    def _tell_of_trouble(self, error: BaseException) -> None:
        if str(error) != self._trouble:
            log.warning("the status is not published: %s", error or repr(error))
        self._trouble = str(error)

    async def _serve(self) -> None:
        self._parts, self._said = {}, _NOTHING
        try:
            await self._topic.start()
            while True:
                await self._take_over(time.monotonic())
                await self.tick(time.monotonic())
                self._trouble = ""
                await asyncio.sleep(TICK_S)
        finally:
            if is_cancelled() and self._said:
                with suppress(Exception):
                    async with asyncio.timeout(_STOP_TIMEOUT_S):
                        await self._topic.write(_WORKERS_PARTITION, [(self._key, None)])
            with suppress(Exception):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._topic.stop()

    async def _take_over(self, now_s: float) -> None:
        """Read the rows of partitions that this worker has just got, and forget dead workers."""
        works = {work.number: work for work in self._works()}
        self._parts = {work: part for work, part in self._parts.items() if work in works.values()}
        new = {
            number: PartitionStatus(work, self._partitions, self._has_room)
            for number, work in works.items()
            if work not in self._parts
        }
        read = {*new}
        if _WORKERS_PARTITION in works and now_s >= self._next_forget_s:
            read.add(_WORKERS_PARTITION)
        if not read:
            return
        if _WORKERS_PARTITION in read:
            self._next_forget_s = now_s + _FORGET_MS / 1000
        workers: dict[bytes, bytes | None] = {}
        async for number, rows in self._topic.read(read):
            if number in new:
                new[number].load(rows)
            if number == _WORKERS_PARTITION:
                workers.update(row for row in rows if (read_key(row[0]) or ("",))[0] == "worker")
        self._parts |= {part.work: part for part in new.values()}
        gone: list[StatusRow] = [
            (key, None) for key, value in workers.items() if value is not None and _is_gone(value)
        ]
        if gone:
            await self._topic.write(_WORKERS_PARTITION, gone)

    def _has_room(self) -> bool:
        return sum(part.published for part in self._parts.values()) < MOST_QUEUES

    def part(self, work: PartitionWork) -> PartitionStatus | None:
        """The status of a partition whose rows have been read."""
        return self._parts.get(work)

    # --- writing ---------------------------------------------------------------------------------

    async def tick(self, now_s: float) -> None:
        """Write what has changed, as far as the bound allows: each partition gets its share."""
        await self._tell_of_worker(now_s)
        for part in self._parts.values():
            part.changed(part.work.numbers.take_changed())
            part.tick(now_s)
        room = int(BYTES_PER_S * TICK_S)
        parts = sorted(self._parts.values(), key=lambda part: part.waiting)
        for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
            room -= await self._tell_of_queues(part, now_s, room // left)

    async def _tell_of_queues(self, part: PartitionStatus, now_s: float, room: int) -> int:
        """Write the rows of a partition, up to `room` bytes. Returns their size."""
        rows: list[StatusRow] = []
        size = made = 0
        while part.waiting and size < room:
            if not made % _SLICE:
                await asyncio.sleep(0)
                if part.work not in self._works():
                    return 0  # its store may be closed; the next owner publishes it
            made += 1
            if (row := part.next_row(now_s)) is not None:
                rows.append(row)
                size += len(row[0]) + len(row[1] or b"")
        if rows:
            await self._topic.write(part.work.number, rows)
        return size

    async def _tell_of_worker(self, now_s: float) -> None:
        problems, standbys = self._numbers.health.problems(), self._numbers.standbys()
        said = {
            "ready": not problems,
            "partitions": sorted(work.number for work in self._works()),
            "level": {str(work.number): work.state.level for work in self._works()},
            "clock_skew_ms": self._clock_skew_ms(),
            "stopped": [
                {
                    "partition": unit, "at": each.at, "reason": each.reason,
                    "remedy": each.remedy, "since_ms": each.since_ms,
                }
                for unit, each in self._numbers.health.stopped()[:_MOST_STOPPED]
            ],
        }  # fmt: skip
        up_to_date = {
            number: behind is not None and behind <= CAUGHT_UP_RECORDS
            for number, behind in standbys.items()
        }
        if (said, up_to_date) == self._said and now_s - self._beat_s < BEAT_S:
            return
        row = {
            "time_ms": wall_ms(), **self._about, **said, **self._backlog(),
            "standbys": {str(number): behind for number, behind in standbys.items()},
            "problems": problems[:_MOST_PROBLEMS],
            "queues": sum(part.queues for part in self._parts.values()),
            "published": sum(part.published for part in self._parts.values()),
        }  # fmt: skip
        value = json.dumps(row, separators=(",", ":")).encode()
        await self._topic.write(_WORKERS_PARTITION, [(self._key, value)])
        self._said, self._beat_s = (said, up_to_date), now_s

    def _backlog(self) -> dict[str, dict[str, int]]:
        """By partition: records not read yet, and records to read before it is ready."""
        numbers = self._numbers
        lag = {str(work.number): sum(numbers.lag(work).values()) for work in self._works()}
        tasks = numbers.health.tasks()
        behind = {task.work.number for task in tasks if task.trouble or not task.work.is_caught_up}
        return {
            "lag": {number: records for number, records in lag.items() if records},
            "recovering": {
                str(number): records
                for number, records in numbers.recovery().items()
                if number in behind
            },
        }


def _is_gone(value: bytes) -> bool:
    """Whether the row of a worker is so old that the worker is gone, or is no such row."""
    time_ms = read_time_ms(value)
    return time_ms is None or wall_ms() - time_ms > _FORGET_MS
