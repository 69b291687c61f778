"""The consumer's thread: whole fetches of one partition, and seeks that no stale fetch survives.

Kafka's client lives in Faust's consumer thread, so heartbeats go on while an agent computes.
"""

# Faust is not followed by mypy, so its classes are Any there.
# mypy: disallow-subclassing-any=False

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from traceback import walk_tb
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from ringfaust.protocol.headers import UNREADABLE

T = TypeVar("T")

#: How long the broker may hold a fetch that finds nothing. A client has one fetch in flight per
#: broker, so this is also how long a busy partition can wait behind an idle one.
FETCH_MAX_WAIT_MS = 20

#: How long a fetch waits here before the consumer looks whether it should stop.
FETCH_TIMEOUT_MS = 1000


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one fetch from one partition, in offset order, never empty.

    `generation` changes with every assignment and every seek of the partition;
    see `BatchConsumer.is_current`.
    """

    tp: TP
    records: Sequence[ConsumerRecord[bytes, bytes]]
    generation: int


class Progress(NamedTuple):
    """How far a partition has been read."""

    position: int
    """The next offset to fetch; it moves past transaction markers too."""
    taken: int
    """The offset after the last record that was taken from the client; 0 if none was."""


class BatchThread(driver.AIOKafkaConsumerThread):
    """The consumer's thread: every fetch and every seek happens here, one after the other.

    That order is what makes seeking safe: a fetch is stamped in the same step in which it takes
    the records, so its generation tells for sure whether it was before or after a seek.
    """

    def __post_init__(self) -> None:
        """Start without any partition."""
        super().__post_init__()
        self._generations: dict[TP, int] = {}
        self._taken: dict[TP, int] = {}
        self._next_generation = count(1).__next__
        self._reassigning = False
        self._changed = asyncio.Event()

    async def on_start(self) -> None:
        """Connect."""
        await super().on_start()
        # Records fetched but not asked for, those of a held partition, keep the client from
        # asking their broker for others, for 100 ms. Not at all would be too short: what is left
        # of a fetch for a few milliseconds would let its partition wait behind the idle ones.
        backoff = FETCH_MAX_WAIT_MS / 1000
        self._ensure_consumer()._fetcher._prefetch_backoff = backoff  # noqa: SLF001

    async def on_thread_stop(self) -> None:
        """Leave the group and disconnect."""
        # While the broker is away the client, stopping, lets out the cancellation of its own
        # fetch; Faust would then wait a minute for the thread.
        with suppress(asyncio.CancelledError):
            await super().on_thread_stop()

    def generation(self, tp: TP) -> int | None:
        """Tell the generation `tp` is read in, None while it is not to be read."""
        return self._generations.get(tp)

    def wake(self) -> None:
        """End the current fetch early, for other partitions are wanted now. Any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody fetches any more
            self.thread_loop.call_soon_threadsafe(self._changed.set)

    async def fetch(self, tps: frozenset[TP]) -> list[Batch]:
        """Wait for records of `tps`, for `wake`, or for a second."""
        return await self._run(self._fetch(tps))

    async def seek_to(self, positions: Mapping[TP, int]) -> None:
        """Read on at `positions`, in a new generation."""
        await self._run(self._seek_to(positions))

    async def seek_or_resume(self, tps: Iterable[TP], positions: Mapping[TP, int]) -> None:
        """Read `tps` from their positions, or else from where the group left off."""
        await self._run(self._seek_or_resume(tps, positions))

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Let no fetch through until the next assignment has been sought."""
        self._reassigning = True
        self._generations.clear()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Allow seeking again."""
        self._reassigning = False
        await super().on_partitions_assigned(assigned, generation_id)

    async def progress(self, tp: TP) -> Progress | None:
        """How far `tp` has been read; None while it is not ours to read."""
        return await self._run(self._progress(tp))

    async def _progress(self, tp: TP) -> Progress | None:
        if tp not in self._generations or self._reassigning:
            return None
        position = await self._ensure_consumer().position(driver.ensure_aiokafka_TP(tp))
        return Progress(position, self._taken.get(tp, 0))

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        # Unlike Faust's method queue this has no fixed number of workers that a fetch would
        # occupy, and cancelling it cancels the work.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.thread_loop))

    async def _fetch(self, tps: frozenset[TP]) -> list[Batch]:
        changed = asyncio.ensure_future(self._changed.wait())
        taken = asyncio.ensure_future(self._take(tps)) if tps else None
        waiting = {changed, taken} if taken else {changed}
        try:
            await asyncio.wait(
                waiting, timeout=FETCH_TIMEOUT_MS / 1000, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
            if taken:
                taken.cancel()
        self._changed.clear()
        if taken is None:
            return []
        # `_take` takes records in its very last step, so a cancelled one took none.
        await asyncio.wait({taken})
        return [] if taken.cancelled() else taken.result()

    async def _take(self, tps: frozenset[TP]) -> list[Batch]:
        try:
            fetched = await self._ensure_consumer().getmany(
                *driver.ensure_aiokafka_TPset(tps), timeout_ms=2 * FETCH_TIMEOUT_MS
            )
        except UnicodeDecodeError as error:
            fetched = self._rescue(error)
        batches = []
        for where, records in fetched.items():
            tp = TP(where.topic, where.partition)
            generation = self._generations.get(tp)
            if generation is not None:
                self._taken[tp] = records[-1].offset + 1
                batches.append(Batch(tp, records, generation))
        return batches

    def _rescue(
        self, error: UnicodeDecodeError
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        """What getmany had read when it failed, and stand-ins for what it cannot read.

        A record with a header whose name is no UTF-8 makes getmany fail for all that it was about
        to return, again and again. The client reads a batch from its beginning, so what stands
        behind such a record in its batch cannot be had either.
        """
        # Only the frames know these; there is no public way. Raised anew if they look otherwise.
        seen = {frame.f_code.co_name: frame.f_locals for frame, _ in walk_tb(error.__traceback__)}
        try:
            records, others = seen["getall"]["ret_list"], seen["fetched_records"]["drained"]
            where, batch = seen["_unpack_records"]["tp"], seen["_unpack_records"]["next_batch"]
            first = seen["_unpack_records"]["self"].next_fetch_offset
        except (KeyError, AttributeError):
            raise error from None
        self._ensure_consumer().seek(where, batch.next_offset)
        undecodable = range(first, batch.next_offset)
        return {**others, where: records + [_stand_in(where, at, error) for at in undecodable]}

    async def _seek_to(self, positions: Mapping[TP, int]) -> None:
        if self._reassigning:
            raise IllegalStateError("the partitions are being reassigned")
        consumer = self._ensure_consumer()
        for tp, offset in positions.items():
            consumer.seek(driver.ensure_aiokafka_TP(tp), offset)
            self._generations[tp] = self._next_generation()
            self._taken.pop(tp, None)

    async def _seek_or_resume(self, tps: Iterable[TP], positions: Mapping[TP, int]) -> None:
        consumer = self._ensure_consumer()
        found = {tp: positions[tp] for tp in tps if tp in positions}
        fresh = []
        for tp in tps:
            if tp not in found:
                committed = await consumer.committed(driver.ensure_aiokafka_TP(tp))
                if committed is None:
                    fresh.append(driver.ensure_aiokafka_TP(tp))
                else:
                    found[tp] = committed
        if fresh:
            latest = self.app.conf.consumer_auto_offset_reset == "latest"
            ends = consumer.end_offsets if latest else consumer.beginning_offsets
            for where, offset in (await ends(fresh)).items():
                found[TP(where.topic, where.partition)] = offset
        await self._seek_to(found)

    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        # As Faust's own, but for the assignor (Faust takes it only when there are tables), the
        # isolation level (Faust ties it to its own transactions) and the wait of a fetch.
        conf = self.app.conf
        self._assignor = self.app.assignor
        return AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            group_instance_id=conf.consumer_group_instance_id,
            bootstrap_servers=driver.server_list(transport.url, transport.default_port),
            partition_assignment_strategy=[self._assignor],
            enable_auto_commit=False,
            auto_offset_reset=conf.consumer_auto_offset_reset,
            max_poll_records=conf.broker_max_poll_records,
            max_poll_interval_ms=int(conf.broker_max_poll_interval * 1000),
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


def _stand_in(
    where: TopicPartition, offset: int, error: UnicodeDecodeError
) -> ConsumerRecord[bytes, bytes]:
    """A record without content in the place of one that the client cannot decode."""
    text = f"the client cannot decode it: {error}; is a header's name no UTF-8?"
    now_ms = time.time_ns() // 1_000_000
    headers = ((UNREADABLE, text.encode()),)
    return ConsumerRecord(
        where.topic, where.partition, offset, now_ms, 0, None, None, None, -1, -1, headers
    )
