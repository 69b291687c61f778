"""The fetcher: reads partitions in whole fetches, and seeks that no stale fetch survives.

It runs in the app's loop, with a Kafka client of its own. Taking part in the group is the job of
another client, in another thread (see `membership`), so a rebalance does not interrupt it (R124).
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import READ_COMMITTED
from aiokafka.errors import (
    CorruptRecordException,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from faust.types import TP

from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker.faust.decompression import placeholder
from ringfaust.worker.faust.vendor import FETCH_ERRORS, DecodedRecords, decoded, take
from ringfaust.worker.interfaces import Batch, InputChanged, ReadPosition

log = logging.getLogger(__name__)

#: How long the broker may hold a fetch that finds nothing. One fetch is in flight per broker, so
#: this is also how long a busy partition can wait behind an idle one.
FETCH_MAX_WAIT_MS = 20

#: How long a fetch waits here before the consumer checks whether it should stop.
_FETCH_TIMEOUT_S = 1.0

#: Most bytes of an answer. A broker exceeds it for one batch of records.
_ANSWER_BYTES = 50 * 1024 * 1024

#: How long a broker that has failed is left alone, or a partition that it has refused.
_RETRY_S = 0.1

#: Most records of an undecodable batch that one fetch returns (R121).
_PLACEHOLDERS = 4000

_STOP_TIMEOUT_S = 2.0

_NOT_THERE = frozenset({1, 3, 100})
"""Error codes: the offset is out of range; the topic or partition, or the topic id, is unknown."""
_MOVED = frozenset({5, 6, 9, 74, 75, 76, 78})
"""Error codes: another broker leads the partition, or will, or the new leader is not ready."""


@dataclass(slots=True)
class _Partition:
    """A partition that is being read."""

    generation: int
    position: int
    """The next offset to fetch, or to take from `unread`."""
    offered: int
    """Up to where it has been sought or offered."""
    fetched: int = 0
    """The offset after the last record that was offered."""
    unread: DecodedRecords | None = None
    """What was fetched, and nobody has taken yet."""
    last_fetched_s: float = 0.0
    """When records of it were last fetched."""
    error_code: int = 0
    """Why it could not be read last; 0: it could."""
    not_before_s: float = 0.0
    """When it may be asked for again, after an error."""
    unreadable_since_s: float = inf
    """Since when it has no leader, or none that answers for it."""
    last_turn: int = 0
    """When something of it was taken, in calls of `fetch`."""

    def note_failure(self, now_s: float) -> None:
        """Note that it could not be read."""
        self.unreadable_since_s = min(self.unreadable_since_s, now_s)

    def note_success(self) -> None:
        """Note that it could be read."""
        self.error_code, self.unreadable_since_s = 0, inf


class Fetcher:
    """Fetches from the leaders of the partitions, one fetch from each broker at a time.

    A broker is asked once nothing of it that is wanted waits to be taken.
    """

    def __init__(
        self,
        connect: Callable[[], AIOKafkaClient],
        *,
        max_records: int,
        max_partition_bytes: int,
        checks_crcs: bool,
    ) -> None:
        """Read nothing yet.

        Args:
            connect: creates the Kafka client, which is not started. Called in the loop, once.
            max_records: most records that one call of `fetch` returns, besides undecodable ones.
            max_partition_bytes: most bytes of a partition in one answer of a broker, which exceeds
                it for one batch of records.
            checks_crcs: refuse records whose checksum is wrong.
        """
        self._connect = connect
        self._max_records = max_records
        self._max_partition_bytes = max_partition_bytes
        self._checks_crcs = checks_crcs
        self._client: AIOKafkaClient | None = None
        self._topics: frozenset[str] = frozenset()
        self._partitions: dict[TP, _Partition] = {}
        self._ends: dict[TP, int] = {}
        self._next_generation = count(1).__next__
        self._turn = 0
        self._requests: dict[int, asyncio.Task[None]] = {}
        """What is in flight, by broker."""
        self._failing: set[int] = set()
        """Brokers whose last request failed."""
        self._refreshing: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._failed: list[tuple[TP, KafkaError]] = []
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Connect, as soon as a broker can be reached."""
        client = self._client = self._connect()
        while True:
            try:
                await client.bootstrap()
            except KafkaConnectionError:
                await asyncio.sleep(_RETRY_S)
            else:
                break
        self._ask_for_topics()

    async def stop(self) -> None:
        """Disconnect, and fetch nothing more."""
        tasks = [*self._requests.values(), *filter(None, [self._refreshing])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        client, self._client = self._client, None
        if client is not None:
            with suppress(TimeoutError):  # with TLS, a broker that hangs would hold it for long
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await client.close()

    def follow(self, topics: Collection[str]) -> None:
        """Know the leaders of these topics, besides those of what is read."""
        self._topics = frozenset(topics)
        self._ask_for_topics()

    @property
    def being_read(self) -> frozenset[TP]:
        """The partitions that are read. Any thread."""
        return frozenset(self._partitions)

    def generation(self, tp: TP) -> int | None:
        """The generation in which `tp` is read; None while it is not read."""
        found = self._partitions.get(tp)
        return None if found is None else found.generation

    def read_position(self, tp: TP) -> ReadPosition | None:
        """How far `tp` has been read; None while it is not read."""
        found = self._partitions.get(tp)
        return None if found is None else ReadPosition(found.position, found.fetched)

    def end(self, tp: TP) -> int | None:
        """The end of the log, by the last answer; None while there is none, or it is not read."""
        return self._ends.get(tp)

    def unreadable(self, for_s: float) -> list[TP]:
        """What could not be read for longer than this: it has no leader that answers for it."""
        before_s = asyncio.get_running_loop().time() - for_s
        return [tp for tp, each in self._partitions.items() if each.unreadable_since_s < before_s]

    def seek(self, tp: TP, offset: int) -> None:
        """Continue at `offset`, in a new generation: what was fetched before is never returned."""
        self._partitions[tp] = _Partition(self._next_generation(), offset, offset)
        self.wake()

    def stop_reading(self, tps: Iterable[TP]) -> None:
        """Read them no more, until they are sought again."""
        for tp in tps:
            self._partitions.pop(tp, None)
            self._ends.pop(tp, None)

    def take_failed(self) -> list[tuple[TP, KafkaError]]:
        """The partitions that cannot be read where they stand, or at all, since the last call.

        They are read no more until they are sought.
        """
        failed, self._failed = self._failed, []
        return failed

    def wake(self) -> None:
        """End the current fetch early because other partitions are wanted now."""
        self._is_woken = True
        self._note_news()

    async def fetch(self, wanted: Collection[TP]) -> list[Batch]:
        """Wait for records of `wanted`, for `wake`, or for a second.

        A batch without records says that the position has passed some that nobody may read. There
        is one only if there is nothing else.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _FETCH_TIMEOUT_S
        if batches := self._take(wanted):
            await asyncio.sleep(0)  # others may act between the parts of a backlog
        while not (batches or self._is_woken or (now_s := loop.time()) >= deadline_s):
            if self._error is not None:
                raise self._error
            await self._wait(min(deadline_s, self._request(now_s)))
            batches = self._take(wanted)
        self._is_woken = False
        return batches or self._passed(wanted)

    async def _wait(self, until_s: float) -> None:
        """Wait for news, at most until a time of the loop's clock."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(until_s, self._note_news)
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _note_news(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- what was fetched

    def _take(self, wanted: Collection[TP]) -> list[Batch]:
        self._turn += 1
        left, batches = self._max_records, []
        unread = [(tp, each) for tp, each in self._partitions.items() if each.unread is not None]
        for tp, partition in sorted(unread, key=lambda item: item[1].last_turn):
            if left > 0 and tp in wanted and (records := self._records_of(tp, left)):
                partition.last_turn = self._turn
                left -= len(records)
                batches.append(self._batch(tp, records))
        return batches

    def _batch(self, tp: TP, records: list[FetchedRecord]) -> Batch:
        partition = self._partitions[tp]
        if records:
            partition.fetched = records[-1].offset + 1
        partition.offered = partition.position
        return Batch(tp, records, partition.generation, partition.position)

    def _records_of(self, tp: TP, most: int) -> list[FetchedRecord]:
        """Records from what was fetched of a partition, with placeholders for undecodable ones.

        The Kafka client cannot decode a record with a header name that is not UTF-8, nor a batch
        that it cannot expand (R116). It reads a batch from its beginning, so the records behind
        such a record in its batch are lost too.
        """
        partition, records = self._partitions[tp], list[FetchedRecord]()
        assert partition.unread is not None
        unread = partition.unread
        try:
            has_more = take(records, unread, most)
            partition.position = unread.next_fetch_offset
            if partition.error_code == CorruptRecordException.errno:
                partition.note_success()
        except CorruptRecordException:  # as if its broker had found it
            partition.position, has_more = unread.next_fetch_offset, False
            self._note_error(tp, CorruptRecordException.errno)
        except FETCH_ERRORS as error:
            # A batch may have millions of records. Those that are left fail again when they are
            # fetched again.
            first, has_more = unread.next_fetch_offset, False
            partition.position = min(unread.batch_end, first + _PLACEHOLDERS)
            records += [placeholder(tp, at, error) for at in range(first, partition.position)]
        if not has_more:
            partition.unread = None
        return records

    def _passed(self, wanted: Collection[TP]) -> list[Batch]:
        """An empty batch for each partition whose position has moved without a record."""
        return [
            self._batch(tp, [])
            for tp, each in self._partitions.items()
            if tp in wanted and each.position > each.offered
        ]

    # -- requests

    def _ask_for_topics(self) -> None:
        topics = {*self._topics, *(tp.topic for tp in self._partitions)}
        if self._client is not None and topics:  # of no topic would be of all
            self._client.set_topics(topics)

    def _request(self, now_s: float) -> float:
        """Fetch what is read and has nothing unread, from each broker that is not asked yet.

        Not from a broker of which something was fetched a moment ago that is still unread: once it
        is taken, its partition would wait behind the idle ones.

        Returns:
            when to try again, in seconds of the loop's clock.
        """
        assert self._client is not None
        leaders, again_s = self._client.cluster.leader_for_partition, inf
        asked = defaultdict[int, dict[TP, _Partition]](dict)
        waiting = {*self._requests}
        for tp, partition in self._partitions.items():
            node = leaders(tp)
            if node is None or node < 0:
                if partition.unread is None:
                    partition.note_failure(now_s)
                self._refresh()
            elif partition.unread is not None:
                since_s = now_s - partition.last_fetched_s
                if since_s < FETCH_MAX_WAIT_MS / 1000:
                    waiting.add(node)
                    again_s = min(again_s, now_s + FETCH_MAX_WAIT_MS / 1000 - since_s)
            elif partition.not_before_s > now_s:
                again_s = min(again_s, partition.not_before_s)
            else:
                asked[node][tp] = partition
        for node, partitions in asked.items():
            if node not in waiting:
                fetching = self._fetch_from(node, self._request_for(partitions), partitions)
                self._requests[node] = asyncio.create_task(fetching)
                self._requests[node].add_done_callback(self._on_end)
        return again_s

    def _request_for(self, partitions: Mapping[TP, _Partition]) -> FetchRequest:
        # A broker exceeds the limits only for the first partition that has records.
        by_topic = defaultdict[str, list[tuple[int, int, int]]](list)
        for tp, partition in sorted(partitions.items(), key=lambda item: item[1].last_fetched_s):
            where = (tp.partition, partition.position, self._max_partition_bytes)
            by_topic[tp.topic].append(where)
        return FetchRequest(
            FETCH_MAX_WAIT_MS, 1, _ANSWER_BYTES, READ_COMMITTED, list(by_topic.items())
        )

    def _refresh(self) -> None:
        """Ask for the leaders again, at most ten times a second."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._ask_for_leaders())
            self._refreshing.add_done_callback(self._on_end)

    async def _ask_for_leaders(self) -> None:
        try:
            assert self._client is not None
            await self._client.force_metadata_update()
            self._note_news()
            await asyncio.sleep(_RETRY_S)
        finally:
            self._refreshing = None
            self._note_news()

    def _on_end(self, ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            self._error = error
            self._note_news()

    async def _fetch_from(
        self, node: int, request: FetchRequest, asked: Mapping[TP, _Partition]
    ) -> None:
        assert self._client is not None
        asked_at = {tp: (partition, partition.position) for tp, partition in asked.items()}
        try:
            answer = await self._client.send(node, request)
            self._note(answer.topics, asked_at)
            if node in self._failing:
                self._failing.discard(node)
                log.info("broker %d answers again", node)
        except KafkaError as error:
            now_s = asyncio.get_running_loop().time()
            for partition in asked.values():
                partition.note_failure(now_s)
            if node not in self._failing:
                self._failing.add(node)
                log.warning("cannot fetch from broker %d: %r; trying again", node, error)
            await asyncio.sleep(_RETRY_S)
        finally:
            del self._requests[node]
            self._note_news()

    def _note(self, topics: Any, asked_at: Mapping[TP, tuple[_Partition, int]]) -> None:
        """Keep what a broker has returned, of what was asked at these positions."""
        now_s = asyncio.get_running_loop().time()
        for topic, partitions in topics:
            for number, error_code, end, _stable, _begin, aborted, _replica, raw in partitions:
                tp = TP(topic, number)
                partition, position = asked_at[tp]
                is_current = self._partitions.get(tp) is partition  # else it was sought or given up
                if not is_current or partition.position != position or partition.unread is not None:
                    continue  # or its next leader was faster
                if error_code:
                    self._note_error(tp, error_code)
                    continue
                self._ends[tp] = end
                if not raw or partition.error_code != CorruptRecordException.errno:
                    partition.note_success()  # else once the records turn out to be intact
                if raw:
                    partition.last_fetched_s = now_s
                    partition.unread = decoded(
                        tp, raw, aborted, position, checks_crcs=self._checks_crcs
                    )

    def _note_error(self, tp: TP, error_code: int) -> None:
        partition, now_s = self._partitions[tp], asyncio.get_running_loop().time()
        is_new, partition.error_code = error_code != partition.error_code, error_code
        partition.not_before_s = now_s + _RETRY_S
        partition.note_failure(now_s)
        if error_code in _NOT_THERE:  # it may be another topic now (R112)
            self._fail(tp, InputChanged(f"{tp.topic} cannot be read at its position"))
        elif error_code == TopicAuthorizationFailedError.errno:
            self._fail(tp, TopicAuthorizationFailedError(f"{tp.topic} may not be read"))
        else:
            level = logging.DEBUG if error_code in _MOVED or not is_new else logging.WARNING
            name = for_code(error_code).__name__
            log.log(level, "cannot read %s, partition %d: %s; trying again", *tp, name)
            self._refresh()

    def _fail(self, tp: TP, error: KafkaError) -> None:
        self.stop_reading([tp])
        self._failed.append((tp, error))
        self.wake()
