"""Faust, handing on whole fetches instead of single records.

Faust stays the frame: membership, assignment, co-partitioning, rebalance, agents, web, CLI, stop.
Only its road from the consumer to the agent is replaced, for it costs some tasks per record.
An agent of a `BatchApp` iterates over `Batch`es, and the offsets, the positions to start from and
the pace of each partition are its `Host`'s affair; Faust commits nothing.

Two loops run: Kafka's client lives in Faust's consumer thread (see `thread`); everything else, the
host's hooks too, lives in the app's loop.
"""

# Faust is not followed by mypy, so its classes are Any there.
# mypy: disallow-subclassing-any=False

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, cast

import faust
from aiokafka.errors import ConsumerStoppedError
from faust.exceptions import Skip
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, AppT, EventT, Message, StreamT, TopicT
from faust.types.transports import ConsumerT, TransportT
from mode import CrashingSupervisor, ServiceT

from ringfaust.worker.consumer_thread import Batch, BatchThread, Progress

#: What differs from Faust's defaults; each can be overridden in the app's options.
DEFAULTS: Mapping[str, Any] = {
    "agent_supervisor": CrashingSupervisor,  # a restarted agent would not see its batch again
    "broker_max_poll_records": 4000,
    "broker_session_timeout": 10.0,
    "broker_heartbeat_interval": 1.0,
    "consumer_auto_offset_reset": "earliest",
    "stream_wait_empty": False,  # nothing is ever waiting for an ack
    "table_standby_replicas": 0,
    "topic_disable_leader": True,
    "web_enabled": False,
    "web_bind": "127.0.0.1",
}


class Host(Protocol):
    """Who owns the offsets and the state behind the partitions."""

    async def on_assigned(self, tps: frozenset[TP]) -> Mapping[TP, int]:
        """Take over `tps`, all we have from now on, and tell the offsets to read them from.

        No record is handed on before this returns. Partitions left out start at the group's
        committed offset, read after this returned, or at the earliest one. Cancelled if the
        partitions are revoked before it is done. An exception stops the worker.
        """

    async def on_revoked(self, tps: frozenset[TP]) -> None:
        """Let go of `tps`: the rebalance, or the stop of the worker, waits for it.

        Their batches are no longer current by then, and none follow.
        """


class NoHost:
    """The host of an app that has none: everything starts at the committed offsets."""

    async def on_assigned(self, tps: frozenset[TP]) -> Mapping[TP, int]:
        """Give no positions."""
        return {}

    async def on_revoked(self, tps: frozenset[TP]) -> None:
        """Have nothing to let go."""


class BatchConsumer(driver.Consumer):
    """Faust's consumer, reading batches and leaving the offsets to the host.

    Of each partition at most one batch waits to be taken by its agent; the next is fetched
    meanwhile, but handed on only then.
    """

    _thread: BatchThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.host = cast(BatchApp, self.app).host
        self._held: set[TP] = set()
        self._halted: set[TP] = set()
        self._waiting: set[TP] = set()
        self._given: frozenset[TP] = frozenset()
        self._positions: Mapping[TP, int] = {}
        self._assigning: asyncio.Task[Mapping[TP, int]] | None = None

    # -- what the host calls, in the app's loop

    def hold(self, tp: TP) -> None:
        """Ask for no more of `tp`; at most one batch, fetched already, still comes."""
        self._held.add(tp)

    def go_on(self, tp: TP) -> None:
        """Ask for `tp` again."""
        self._held.discard(tp)
        self._thread.wake()

    def halt(self, tp: TP) -> None:
        """Ask for no more of `tp` before it has been sought, whoever lets it go on."""
        self._halted.add(tp)

    def is_current(self, batch: Batch) -> bool:
        """Tell whether `batch` was fetched after the last assignment and seek of its partition."""
        return batch.generation == self._thread.generation(batch.tp)

    async def seek(self, partition: TP, offset: int) -> None:
        """Read `partition` on at `offset`; batches fetched before are no longer current.

        No such batch reaches an agent any more once this has returned. Raises
        `aiokafka.errors.IllegalStateError` if the partition is not ours any more.
        """
        try:
            await self._thread.seek_to({partition: offset})
        finally:  # also if cancelled, for the thread may have sought
            self._halted.discard(partition)
            self._waiting.discard(partition)
            self._thread.wake()

    async def progress(self, tp: TP) -> Progress | None:
        """How far `tp` has been read; None while it is not ours to read."""
        return await self._thread.progress(tp)

    # -- what Faust calls

    def _new_consumer_thread(self) -> BatchThread:
        return BatchThread(self, loop=self.loop, beacon=self.beacon)

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        try:
            while not (self.should_stop or fetcher.should_stop):
                for batch in await self._next_batches():
                    await self._hand_on(batch)
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def perform_seek(self) -> None:
        """Start reading all partitions at the positions the host gave."""
        # Faust takes a timeout of its own here for a stop and would hang, so ours is shorter.
        async with asyncio.timeout(0.9 * self.app.conf.broker_request_timeout):
            await self._thread.seek_or_resume(self._given, self._positions)
        self._waiting.clear()
        self._halted.clear()
        self._thread.wake()

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Fetch from `tps` again."""
        super().resume_partitions(tps)
        self._thread.wake()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Stop the flow, then let the host finish."""
        await super().on_partitions_revoked(revoked)
        await self.give_back()

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit nothing: the host does, inside its transactions."""
        return False

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Complain about nothing: a partition may be held for long, and Faust sees no commits."""

    # -- what the app and its recovery call

    async def take_over(self) -> bool:
        """Give the assignment to the host; False if it was revoked meanwhile."""
        self._given = frozenset(self.assignment())
        if not self._given:
            return True
        self._assigning = asyncio.ensure_future(self.host.on_assigned(self._given))
        await asyncio.wait({self._assigning})
        if self._assigning.cancelled():
            return False
        self._positions = self._assigning.result()
        return True

    async def stop_taking_over(self) -> None:
        """Break off a `take_over` that is still going on."""
        if self._assigning is not None:
            self._assigning.cancel()
            await asyncio.wait({self._assigning})

    async def give_back(self) -> None:
        """Take the partitions, if there are any, from the host."""
        await self.stop_taking_over()
        given, self._given = self._given, frozenset()
        self._held.clear()
        if given:
            try:
                await self.host.on_revoked(given)
            except Exception as exc:  # would only be logged by the Kafka client
                await self.app.crash(exc)

    def taken(self, batch: Batch) -> bool:
        """Note that an agent takes `batch`; False if it should not."""
        current = self.is_current(batch)
        if current:
            self._waiting.discard(batch.tp)
            self._thread.wake()
        return current

    async def _next_batches(self) -> list[Batch]:
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        wanted = self._active_partitions - self._held - self._halted - self._waiting
        return await self._thread.fetch(frozenset(wanted))

    async def _hand_on(self, batch: Batch) -> None:
        if not self.is_current(batch):
            return
        self._waiting.add(batch.tp)
        self.app.monitor.track_tp_end_offset(batch.tp, self.highwater(batch.tp))
        first = batch.records[0]
        await self.callback(
            Message(
                first.topic,
                first.partition,
                first.offset,
                first.timestamp / 1000,
                first.timestamp_type,
                None,
                None,
                cast(Any, batch),
                None,
                tp=batch.tp,
                generation_id=self.app.consumer_generation_id,
            )
        )


class BatchTransport(driver.Transport):
    """Faust's Kafka transport with our consumer."""

    Consumer: ClassVar[type[ConsumerT]] = BatchConsumer


class _Recovery(Recovery):
    """What Faust runs between an assignment and the first record: here, the host's hook."""

    async def _resume_streams(self, generation_id: int = 0) -> None:
        current = generation_id == self.app.consumer_generation_id
        if current and await cast(BatchApp, self.app).reader.take_over():
            await super()._resume_streams(generation_id)


class _NoTables(TableManager):
    """Faust's table manager, for an app without tables."""

    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        # Without Faust's second of waiting for tables to be declared.
        await self._update_channels()
        await self.recovery.start()


class _Undecoded(faust.Schema[Any, Any]):
    """Passes batches as they are."""

    def compile(self, app: AppT, **_: Any) -> Any:
        async def decode(message: Message, *, propagate: bool = False) -> EventT[Any]:
            return app.create_event(message.key, message.value, message.headers, message)

        return decode


class BatchApp(faust.App):
    """A Faust app whose agents iterate over `Batch`es.

    Takes Faust's settings, of which `DEFAULTS` differ from Faust's own. Set `host` before the
    app starts. Faust's tables, acks and `exactly_once` have no place here.
    """

    def __init__(self, id: str, *, host: Host | None = None, **options: Any) -> None:
        self.host: Host = host or NoHost()
        super().__init__(id, **{**DEFAULTS, "TableManager": _NoTables, **options})

    @property
    def reader(self) -> BatchConsumer:
        """The consumer, to hold, go on and seek."""
        return cast(BatchConsumer, self.consumer)

    def topic(self, *topics: str, **options: Any) -> TopicT:
        """Declare a topic whose agents get batches."""
        return super().topic(*topics, **{**options, "schema": _Undecoded(), "acks": False})

    def stream(self, channel: Any, beacon: Any = None, **options: Any) -> StreamT[Any]:
        """Stream batches, without those that a seek or a rebalance has made stale."""
        stream = super().stream(channel, beacon, **options)
        stream.add_processor(self._take)
        return stream

    def _take(self, value: Any) -> Any:
        if isinstance(value, Batch) and not self.reader.taken(value):
            raise Skip
        return value

    def _new_transport(self) -> TransportT:
        return BatchTransport(self.conf.broker_consumer, self)

    async def _stop_consumer(self) -> None:
        if self._consumer is None:
            return
        await self.reader.stop_taking_over()
        await super()._stop_consumer()
        await self.reader.give_back()
