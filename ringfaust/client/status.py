"""See a whole application without asking a worker: read the status topic, and follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Unpack

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from ringfaust.client.brokers import stop
from ringfaust.client.connection import Connection, ConnectOptions, refuse_unknown
from ringfaust.client.errors import ClientError, Closed, StartedAlready
from ringfaust.client.resource import AsyncResource
from ringfaust.client.status_rows import (
    QueueStatus,
    WorkerStatus,
    read_queue_status,
    read_worker_status,
)
from ringfaust.protocol.records import Role
from ringfaust.protocol.status import read_key
from ringfaust.times import wall_ms

MOST_QUEUES = 100_000
"""Most queues that a reader keeps: about 130 MB."""
MOST_WORKERS = 10_000
_POLL_MS = 500
_CHECK_S = 1.0
_CHECK_TIMEOUT_S = 3.0
"""How often the brokers are asked for a sign of life, and how long one may take."""
_READ_RECORDS = 200
"""Records that are decoded before the event loop runs: about 3 ms."""


class StatusReader(AsyncResource):
    """The state of an application's queues and workers, as the workers publish it.

    ::

        async with StatusReader(bootstrap_servers="127.0.0.1:9092") as status:
            for queue in status.queues():
                print(queue.queue, queue.counts.ready, queue.rates.added)
            seen = status.revision
            await status.changed(seen)           # waits for the next change
            for queue in status.queues_since(seen):
                print(queue.queue, queue.counts.ready)

    Once it is started, it knows all that was published until then, and follows what comes. A queue
    is published about once a second while it changes; see docs/protocol.md. It keeps at most
    100,000 queues and 10,000 workers, and ignores rows that it does not understand.

    Args:
        options: see `ConnectOptions`; all have defaults.

    Raises:
        BadArgument: an option is not valid.
        TypeError: there is no such option.
    """

    def __init__(self, **options: Unpack[ConnectOptions]) -> None:
        refuse_unknown(options, ConnectOptions)
        self._connection = Connection(options)
        self._topic = self._connection.topic(Role.STATUS)
        self._rows = StatusRows()
        self._moved = asyncio.Event()
        self._consumer: AIOKafkaConsumer | None = None
        self._following: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self.partitions = 0
        """How many the application has; known once this has started."""
        self.heard_ms = 0
        """When the brokers last answered, in ms since 1970; 0: not yet. Asked every second."""
        self.note: Callable[[int, int, QueueStatus | WorkerStatus | None], None] | None = None
        """Gets each row that is read from now on, with its partition and offset."""

    async def start(self) -> None:
        """Read what was published until now, then begin to follow the topic.

        Raises:
            StartedAlready: it is started.
            ClientError: the application has no status topic.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        if self._consumer is not None:
            raise StartedAlready
        numbers = await self._partitions()
        self.partitions = len(numbers)
        consumer = self._connection.brokers.consumer(
            enable_auto_commit=False, auto_offset_reset="earliest"
        )
        try:
            await consumer.start()
            tps = [TopicPartition(self._topic, number) for number in numbers]
            consumer.assign(tps)
            left = await consumer.end_offsets(tps)
            begins = await consumer.beginning_offsets(tps)
            left = {tp: end for tp, end in left.items() if end > begins[tp]}
            for tp, begin in begins.items():
                consumer.seek(tp, begin)
            while left:
                await self._read(consumer)
                left = {tp: n for tp, n in left.items() if await consumer.position(tp) < n}
        except BaseException:
            await stop(consumer)
            raise
        self._consumer = consumer
        self.heard_ms = wall_ms()
        self._checking = asyncio.create_task(self._check(consumer, tps))
        self._following = asyncio.create_task(self._follow(consumer))
        self._following.add_done_callback(lambda _: self._moved.set())

    async def _partitions(self) -> Sequence[int]:
        try:
            await self._connection.start()
            known = await self._connection.producer.client.fetch_all_metadata()
        finally:
            await self._connection.close()
        if not (found := known.partitions_for_topic(self._topic)):
            raise ClientError(
                f"there is no topic {self._topic}: check the application name "
                f"({self._connection.application!r}), or create its topics with "
                "`ringfaust topics create`"
            )
        return sorted(found)

    async def close(self) -> None:
        """Stop following. What was read stays."""
        tasks = [each for each in (self._following, self._checking) if each is not None]
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop(consumer)

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            await self._read(consumer)

    async def _check(self, consumer: AIOKafkaConsumer, tps: list[TopicPartition]) -> None:
        # A consumer does not report silent brokers: its polls just return nothing.
        while True:
            with suppress(TimeoutError, KafkaError):
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await consumer.end_offsets(tps)
                self.heard_ms = wall_ms()
            await asyncio.sleep(_CHECK_S)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_READ_RECORDS)
        for tp, records in fetched.items():
            for record in records:
                row = self._rows.take(tp.partition, record.key, record.value)
                if self.note is not None:
                    self.note(tp.partition, record.offset, row)
        if fetched:
            self._moved.set()
            await asyncio.sleep(0)

    # --- looking ---------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """How many rows have been taken: grows with every change."""
        return self._rows.revision

    @property
    def is_truncated(self) -> bool:
        """Whether there are more queues than it keeps."""
        return self._rows.is_truncated

    async def changed(self, after: int) -> int:
        """Wait until there is a revision later than `after`, and return it.

        Raises:
            Closed: the reader is not started, or closed.
            KafkaError: the brokers refuse the client.
        """
        while self.revision <= after:
            if self._following is None or self._following.done():
                if self._following is not None and not self._following.cancelled():
                    self._following.result()
                raise Closed("not started or already closed")
            self._moved.clear()
            await self._moved.wait()
        return self.revision

    def queue(self, name: str) -> QueueStatus | None:
        """The status of a queue; None if there is none, or its worker has not published it yet."""
        return self._rows.queue(name)

    def queues(self) -> list[QueueStatus]:
        """All queues, in no particular order. Takes some 50 ms for 100,000, in any thread."""
        return [*self._rows.queues()]

    def split_queues(self) -> dict[str, list[int]]:
        """Queues that have had messages in several partitions, with these (R113)."""
        return self._rows.split_queues()

    def queues_since(self, revision: int) -> list[QueueStatus]:
        """The queues that have changed after that revision, the latest first.

        Queues that were deleted are missing: `queue` returns None for them.
        """
        return [*self._rows.queues_since(revision)]

    def workers(self) -> list[WorkerStatus]:
        """The workers, in order of their names; see `WorkerStatus.is_stale`."""
        return sorted(self._rows.workers.values(), key=lambda each: each.worker)

    def worker_of(self, partition: int, now_ms: int) -> WorkerStatus | None:
        """The worker that serves a partition; None if it is not known.

        Args:
            partition: the partition.
            now_ms: the time, in ms since 1970: workers that are stale do not count.
        """
        owners = [
            each
            for each in self._rows.workers.values()
            if partition in each.partitions and not each.is_stale(now_ms)
        ]
        return max(owners, key=lambda each: each.time_ms, default=None)


class StatusRows:
    """The latest rows, by what they are about."""

    def __init__(self) -> None:
        self.revision = 0
        self.is_truncated = False
        self.workers: dict[str, WorkerStatus] = {}
        self._queues: dict[tuple[int, str], tuple[int, QueueStatus]] = {}
        """By partition and queue: the revision of the row, and the row. The latest come last."""
        self._partitions: dict[int, None] = {}

    def take(
        self, partition: int, key: bytes | None, value: bytes | None
    ) -> QueueStatus | WorkerStatus | None:
        """Take a record of the topic; return the row that it is."""
        what = read_key(key)
        if what is None:
            return None
        kind, name = what
        self.revision += 1
        if kind == "worker":
            worker = None if value is None else read_worker_status(name, value)
            self.workers.pop(name, None)
            if worker is not None and len(self.workers) < MOST_WORKERS:
                self.workers[name] = worker
            return worker
        row = None if value is None else read_queue_status(name, partition, value)
        self._queues.pop((partition, name), None)
        if row is None:
            return None
        if len(self._queues) >= MOST_QUEUES:
            self.is_truncated = True
            return None
        self._partitions[partition] = None
        self._queues[partition, name] = (self.revision, row)
        return row

    def queue(self, name: str) -> QueueStatus | None:
        """The row of a queue.

        A queue that is declared by name may exist in several partitions. It lives in the one in
        which it has had messages.
        """
        found = [self._queues.get((partition, name)) for partition in self._partitions]
        rows = [each[1] for each in found if each is not None]
        return max(rows, key=_rank, default=None)

    def queues(self) -> Iterator[QueueStatus]:
        """Each queue once."""
        if len(self._partitions) == 1:
            yield from (row for _, row in [*self._queues.values()])
            return
        best: dict[str, QueueStatus] = {}
        for _, row in [*self._queues.values()]:  # a copy: another thread may take rows meanwhile
            known = best.get(row.queue)
            if known is None or _rank(row) > _rank(known):
                best[row.queue] = row
        yield from best.values()

    def split_queues(self) -> dict[str, list[int]]:
        """Queues that have had messages in several partitions, with these (R113)."""
        homes: dict[str, list[int]] = {}
        if len(self._partitions) > 1:
            for partition, name in sorted(self._queues):
                if self._queues[partition, name][1].counts.added:
                    homes.setdefault(name, []).append(partition)
        return {name: found for name, found in homes.items() if len(found) > 1}

    def queues_since(self, revision: int) -> Iterator[QueueStatus]:
        """The queues that have changed after a revision, the latest first."""
        seen: set[str] = set()
        for changed, row in reversed(self._queues.values()):
            if changed <= revision:
                return
            if row.queue not in seen and (found := self.queue(row.queue)) is not None:
                seen.add(row.queue)
                yield found


def _rank(row: QueueStatus) -> tuple[int, int]:
    return row.counts.added, row.time_ms
