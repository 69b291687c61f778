"""The consumer's thread: whole fetches of one partition, and seeks that no stale fetch survives.

The Kafka client runs in Faust's consumer thread, so heartbeats and signs of life (R126) continue
while an agent computes.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from ringfaust.protocol.headers import UNDECODABLE_CONTENT
from ringfaust.protocol.records import FetchedRecord
from ringfaust.times import wall_ms
from ringfaust.worker.faust.decompression import CannotExpand
from ringfaust.worker.faust.group import (
    may_not_join,
    other_settings_joined,
    twin_joined,
    wrong_session,
)
from ringfaust.worker.faust.vendor import (
    FETCH_ERRORS,
    FaustConsumerThread,
    decode_in_c,
    failed_fetch,
    limit_decompression,
)
from ringfaust.worker.interfaces import Batch, ReadPosition

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How long the broker may hold a fetch that finds nothing. A client has one fetch in flight per
#: broker, so this is also how long a busy partition can wait behind an idle one.
FETCH_MAX_WAIT_MS = 20

#: How often the thread checks whether the group has refused the worker.
_GROUP_CHECK_S = 0.5

#: How long a fetch waits here before the consumer checks whether it should stop.
FETCH_TIMEOUT_MS = 1000

#: Most records of an undecodable batch that one fetch returns.
_PLACEHOLDERS = 4000


#: Runs until cancelled; its argument returns the partitions that are being read.
Background = Callable[[Callable[[], frozenset[TP]]], Coroutine[Any, Any, None]]


class BatchThread(FaustConsumerThread):
    """Runs the Kafka client: every fetch and every seek happens here, one after the other.

    This order is what makes seeking safe: a fetch takes its records and its generation in the same
    step, so the generation tells reliably whether the fetch came before or after a seek.
    """

    def __post_init__(self) -> None:
        """Start without partitions."""
        super().__post_init__()
        self._generations: dict[TP, int] = {}
        """By partition that is being read: it is sought, and its task has not stopped that."""
        self._fetched: dict[TP, int] = {}
        self._offered: dict[TP, int] = {}
        """Up to where each partition has been sought or offered."""
        self._next_generation = count(1).__next__
        self._assigned: frozenset[TP] = frozenset()
        """What the group has assigned."""
        self._wanted_changed = asyncio.Event()
        self._failed: deque[TP] = deque()
        self.background: Sequence[Background] = ()
        """What runs beside the Kafka client."""
        self._beside: set[asyncio.Task[None]] = set()
        self._has_twin = False
        """Whether another process has joined the group with this worker's identity."""
        self.member_s: float | None = None
        """When the request was sent with which the group last confirmed that this is a member
        (monotonic); None: it never has. Any thread may read it."""

    async def on_start(self) -> None:
        """Connect."""
        await super().on_start()
        self.watch_answers(self._on_fetch_error, self._on_member, self._on_twin)
        self.keep_reading(
            lambda: driver.ensure_aiokafka_TPset(self._generations), self._on_assigned
        )
        # Records that were fetched but not requested, such as those of a paused partition, keep
        # the client from fetching others from their broker for 100 ms. Zero would be too short:
        # the rest of a fetch that stays a few milliseconds would let its partition wait behind
        # the idle ones.
        self.set_prefetch_backoff(FETCH_MAX_WAIT_MS / 1000)
        for each in self.background:
            self._run_beside(each(lambda: self.being_read))
        self._run_beside(self._watch_group())

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._on_background_end)
        self._beside.add(task)

    async def on_thread_stop(self) -> None:
        """Leave the group and disconnect."""
        for task in self._beside:
            task.cancel()
        if self._beside:
            await asyncio.wait(self._beside)
        # If the broker is away, the stopping client raises the cancellation of its own fetch, and
        # Faust would wait a minute for the thread.
        with suppress(asyncio.CancelledError):
            await super().on_thread_stop()

    @property
    def being_read(self) -> frozenset[TP]:
        """The partitions that are read. Any thread."""
        return frozenset(self._generations)

    def _on_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self._assigned = frozenset(TP(*tp) for tp in assigned)

    async def pass_assignment(self) -> None:
        """Tell the consumer, in the app's loop, what the group has assigned."""
        consumer: Any = self.consumer
        telling = consumer.on_assignment(self._assigned, self.app.assignor.standbys)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(telling, self.parent_loop))

    def _on_background_end(self, ended: asyncio.Task[None]) -> None:
        """Stop the worker on an error that nobody expects."""
        if not ended.cancelled() and (error := ended.exception()) is not None:
            asyncio.run_coroutine_threadsafe(self.app.crash(error), self.parent_loop)

    async def _watch_group(self) -> None:
        """Raise an error if the brokers do not let the worker join the group."""
        while True:
            await asyncio.sleep(_GROUP_CHECK_S)
            error, group = self.group_error, self.app.conf.id
            if self._has_twin:
                raise twin_joined(group, self.app.conf.consumer_group_instance_id or "")
            if isinstance(error, InvalidSessionTimeoutError):
                raise wrong_session(group, self.app.conf.broker_session_timeout)
            if isinstance(error, InconsistentGroupProtocolError):
                raise other_settings_joined(group)
            if isinstance(error, GroupAuthorizationFailedError):
                raise may_not_join(group)
            if error is not None and not self._generations:
                # Nobody fetches, so the client would wait for ever.
                log.warning(
                    "the brokers refuse this worker in group %s (%r); asking again", group, error
                )
                with suppress(type(error)):
                    self.try_group_again()

    def generation(self, tp: TP) -> int | None:
        """The generation in which `tp` is read; None while it is not read. Any thread."""
        return self._generations.get(tp)

    def wake(self) -> None:
        """End the current fetch early because other partitions are wanted now. Any thread."""
        self.soon(self._wanted_changed.set)

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call something in the thread, if that still runs. Any thread."""
        with suppress(RuntimeError):  # the loop is closed: the worker stops
            self.thread_loop.call_soon_threadsafe(call, *arguments)

    def take_failed(self) -> list[TP]:
        """The partitions that cannot be read where they stand, since the last call. Any thread.

        None of their records is delivered until they are sought.
        """
        return [self._failed.popleft() for _ in range(len(self._failed))]

    async def fetch(self, tps: frozenset[TP]) -> list[Batch]:
        """Wait for records of `tps`, for `wake`, or for a second."""
        return await self.in_thread(self._fetch(tps))

    async def seek_to(self, tp: TP, offset: int) -> None:
        """Continue at `offset`, in a new generation.

        Raises:
            aiokafka.errors.IllegalStateError: the partition is not assigned, or the client has
                stopped.
        """
        await self.in_thread(self._seek_to(tp, offset))

    def stop_reading(self, tps: Collection[TP]) -> None:
        """Read them no more, until they are sought again. Any thread."""
        self.soon(self._stop_reading, tps)

    async def read_position(self, tp: TP) -> ReadPosition | None:
        """How far `tp` has been read; None while it is not assigned."""
        return await self.in_thread(self._read_position(tp))

    async def _read_position(self, tp: TP) -> ReadPosition | None:
        if tp not in self._generations:
            return None
        position = await self.kafka_consumer.position(driver.ensure_aiokafka_TP(tp))
        return ReadPosition(position, self._fetched.get(tp, 0))

    def _on_fetch_error(self, where: TopicPartition) -> None:
        """A broker does not have the position, or not the topic: it may be another topic now."""
        tp = TP(where.topic, where.partition)
        if self._generations.pop(tp, None) is not None:
            self._failed.append(tp)
            self._wanted_changed.set()

    def _on_member(self, asked_s: float) -> None:
        self.member_s = asked_s

    def _on_twin(self) -> None:
        self._has_twin = True

    async def in_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the thread, and return its result. Any thread.

        Faust's method queue has a fixed number of workers, which fetches would occupy. This has
        not, and cancelling it cancels the work.

        Raises:
            aiokafka.errors.IllegalStateError: the thread has ended.
        """
        try:
            running = asyncio.run_coroutine_threadsafe(work, self.thread_loop)
        except RuntimeError:  # the loop is closed: the worker stops after a crash
            work.close()
            raise IllegalStateError("the Kafka client has stopped") from None
        return await asyncio.wrap_future(running)

    async def _fetch(self, tps: frozenset[TP]) -> list[Batch]:
        changed = asyncio.ensure_future(self._wanted_changed.wait())
        fetching = asyncio.ensure_future(self._getmany(tps)) if tps else None
        waiting: set[asyncio.Future[Any]] = {changed, fetching} if fetching else {changed}
        try:
            await asyncio.wait(
                waiting, timeout=FETCH_TIMEOUT_MS / 1000, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
            if fetching:
                fetching.cancel()
        self._wanted_changed.clear()
        if fetching is None:
            return []
        if not fetching.done():
            await asyncio.wait({fetching})
        # `_getmany` takes records in its very last step, so a cancelled one took none.
        return self._passed(tps) if fetching.cancelled() else fetching.result()

    def _passed(self, tps: frozenset[TP]) -> list[Batch]:
        """An empty batch for each partition whose position has moved without a record."""
        batches = []
        for tp in tps:
            generation, offered = self._generations.get(tp), self._offered.get(tp)
            if generation is None or offered is None:
                continue
            position = self.known_position(driver.ensure_aiokafka_TP(tp))
            if position is not None and position > offered:
                self._offered[tp] = position
                batches.append(Batch(tp, (), generation, position))
        return batches

    async def _getmany(self, tps: frozenset[TP]) -> list[Batch]:
        try:
            fetched = await self.kafka_consumer.getmany(
                *driver.ensure_aiokafka_TPset(tps), timeout_ms=2 * FETCH_TIMEOUT_MS
            )
        except FETCH_ERRORS as error:
            fetched = self._skip_undecodable(error)
        except (OffsetOutOfRangeError, NoOffsetForPartitionError):
            return []  # `_on_fetch_error` has noticed, or the partition is sought in a moment
        batches = []
        for where, records in fetched.items():
            tp = TP(where.topic, where.partition)
            generation = self._generations.get(tp)
            if generation is not None:
                next_offset = records[-1].offset + 1
                self._fetched[tp] = next_offset
                position = self.known_position(where) or next_offset
                self._offered[tp] = position
                batches.append(Batch(tp, records, generation, position))
        return batches

    def _skip_undecodable(self, error: Exception) -> dict[TopicPartition, list[FetchedRecord]]:
        """What getmany had read when it failed, with placeholders for what it cannot decode.

        A record with a header name that is not UTF-8 makes getmany fail for everything that it was
        about to return, again and again. So does a batch that the client cannot expand (R116). The
        client reads a batch from its beginning, so the records behind it in its batch are lost too.
        """
        failed = failed_fetch(error)
        # A batch may have millions of records. Those that are left fail again at the next call.
        next_offset = min(failed.next_offset, failed.first_offset + _PLACEHOLDERS)
        self.kafka_consumer.seek(failed.tp, next_offset)
        failed.fetched[failed.tp] += [
            _placeholder(failed.tp, offset, error)
            for offset in range(failed.first_offset, next_offset)
        ]
        return failed.fetched

    async def _seek_to(self, tp: TP, offset: int) -> None:
        where = driver.ensure_aiokafka_TP(tp)
        self.kafka_consumer.seek(where, offset)
        self.kafka_consumer.resume(where)
        self._generations[tp] = self._next_generation()
        self._offered[tp] = offset
        self._fetched.pop(tp, None)

    def _stop_reading(self, tps: Collection[TP]) -> None:
        for tp in tps:
            self._generations.pop(tp, None)
            with suppress(IllegalStateError):  # no longer assigned
                self.kafka_consumer.pause(driver.ensure_aiokafka_TP(tp))

    def new_kafka_consumer(self, transport: driver.Transport, assignor: object) -> AIOKafkaConsumer:
        """Create the Kafka client, not started.

        Its options are Faust's, except for the assignor (Faust uses its own only with tables), the
        isolation level (Faust ties it to its own transactions) and the wait of a fetch.
        """
        limit_decompression()
        decode_in_c()
        conf = self.app.conf
        return AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            group_instance_id=conf.consumer_group_instance_id,
            bootstrap_servers=driver.server_list(transport.url, transport.default_port),
            partition_assignment_strategy=[assignor],
            enable_auto_commit=False,
            auto_offset_reset="none",  # a position that does not exist must not go unnoticed (R112)
            max_poll_records=conf.broker_max_poll_records,
            max_poll_interval_ms=sys.maxsize,  # who has nothing to read stays a member
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
            request_timeout_ms=int(conf.broker_request_timeout * 1000),
            check_crcs=conf.broker_check_crcs,
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
            isolation_level="read_committed",
            metadata_max_age_ms=conf.consumer_metadata_max_age_ms,
            connections_max_idle_ms=conf.consumer_connections_max_idle_ms,
            **driver.credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
        )


def _placeholder(where: TopicPartition, offset: int, error: Exception) -> FetchedRecord:
    """An empty record in place of one that the client cannot decode."""
    if isinstance(error, CannotExpand):
        text = f"its compressed batch of records cannot be read: {error}; send smaller batches"
    else:
        text = f"the Kafka client cannot decode it ({error}); is the name of a header not UTF-8?"
    now_ms = wall_ms()
    headers = ((UNDECODABLE_CONTENT, text.encode()),)
    return FetchedRecord(where.topic, where.partition, offset, now_ms, headers=headers)
