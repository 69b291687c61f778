"""Faust, delivering whole fetches instead of single records.

Faust stays the frame: membership, assignment, co-partitioning, rebalance, web, CLI, stop. Records
do not pass through its streams and agents. The consumer hands each `Batch` directly to an
`AssignmentListener`, which also decides where each partition starts and commits its offsets; Faust
commits nothing. Only the first assignment is passed on to Faust, which stops everything at each
assignment it hears of (R124).

Two event loops run: that of the member of the group, in Faust's consumer thread (see `membership`),
and the app's, in which everything else runs: the fetcher and the listener.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, ClassVar, Protocol, cast

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IllegalStateError, KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.transports import ConsumerT, TransportT
from mode import ServiceT

from ringfaust.worker.faust.assignor import Assignor, Holdings
from ringfaust.worker.faust.fetcher import Fetcher
from ringfaust.worker.faust.membership import Background, Membership, connection_options
from ringfaust.worker.faust.vendor import FaustApp, FaustConsumer, decode_in_c, limit_decompression
from ringfaust.worker.interfaces import Batch, ReadPosition

#: What differs from Faust's defaults. An app's options override each of them.
DEFAULTS: Mapping[str, Any] = {
    "broker_max_poll_records": 4000,
    "broker_session_timeout": 10.0,
    "broker_heartbeat_interval": 1.0,
    "table_standby_replicas": 0,
    "topic_disable_leader": True,
    "web_enabled": False,
    "web_bind": "127.0.0.1",
}


#: How long the fetcher waits for any answer. A broker holds a fetch for some milliseconds only. And
#: while a broker that is cut off is waited for, no other is asked who leads its partitions now.
_ANSWER_TIMEOUT_MS = 10_000

#: How often a task looks whether the group has confirmed that the worker is a member.
MEMBERSHIP_POLL_S = 0.1


class AssignmentListener(Protocol):
    """Owns the offsets and the state of the assigned partitions."""

    @property
    def topics(self) -> frozenset[str]:
        """What the worker takes part in the group with."""

    async def on_assigned(self, tps: frozenset[TP], standbys: frozenset[int]) -> None:
        """Take over what is new in the assignment, and give up what is not in it any more.

        The worker is no member of the group until this returns, so it only begins that. Nothing of
        a partition is delivered until it is sought, and everything until it is given up. An
        exception stops the worker.

        Args:
            tps: what the worker serves.
            standbys: the partitions of which it is the standby (R127).
        """

    async def on_stop(self, *, is_orderly: bool) -> None:
        """Give up everything. The stop of the worker waits for it.

        Args:
            is_orderly: no error has stopped the worker.
        """

    def offer(self, batch: Batch) -> None:
        """Take a batch, which is current. An exception stops the worker."""

    def on_unreadable(self, tp: TP, error: KafkaError) -> None:
        """`tp` cannot be read, or not where it stands. Nothing comes of it until it is sought."""


class BatchConsumer(FaustConsumer):
    """Faust's consumer, reading batches and leaving the offsets to the listener.

    It holds no batch: the listener has each one as soon as it is taken from the fetcher, and pauses
    the partition if that is too much.
    """

    app: "BatchApp"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paused: set[TP] = set()
        self._paused_until_seek: set[TP] = set()
        limit_decompression()
        decode_in_c()
        conf = self.app.conf
        self._fetcher = Fetcher(
            self._new_client,
            max_records=conf.broker_max_poll_records,
            max_partition_bytes=conf.consumer_max_fetch_size,
            checks_crcs=conf.broker_check_crcs,
        )

    # -- called by the listener's tasks, in the app's loop

    def pause(self, tp: TP) -> None:
        """Stop delivering `tp` until `resume`. One batch that is already fetched may still come."""
        self._paused.add(tp)

    def resume(self, tp: TP) -> None:
        """Deliver `tp` again."""
        self._paused.discard(tp)
        self._fetcher.wake()

    def pause_until_seek(self, tp: TP) -> None:
        """Stop delivering `tp` until `seek`, whatever `resume` does."""
        self._paused_until_seek.add(tp)

    def is_current(self, batch: Batch) -> bool:
        """Whether `batch` was fetched after the last assignment and seek of its partition."""
        return batch.generation == self._fetcher.generation(batch.tp)

    async def seek(self, partition: TP, offset: int) -> None:
        """Continue to read `partition` at `offset`.

        Batches fetched before are no longer current. None of them reaches the listener any more.

        Raises:
            aiokafka.errors.IllegalStateError: the partition is no longer assigned.
        """
        if partition not in self.assignment():
            raise IllegalStateError(f"{partition} is not assigned")
        self._fetcher.seek(partition, offset)
        self._paused_until_seek.discard(partition)

    def stop_reading(self, tps: Collection[TP]) -> None:
        """Read `tps` no more, until they are sought again. Their batches are no longer current."""
        self._fetcher.stop_reading(tps)
        self._paused -= {*tps}
        self._paused_until_seek -= {*tps}

    async def end_membership(self) -> None:
        """Take part in the group no more, and read on."""
        await self._membership.end()

    def read_position(self, tp: TP) -> ReadPosition | None:
        """How far `tp` has been read; None while it is not read."""
        return self._fetcher.read_position(tp)

    def log_end(self, tp: TP) -> int | None:
        """The end of the log, as the brokers last said; None while it is not known."""
        return self._fetcher.end(tp)

    def unreadable(self, for_s: float) -> list[TP]:
        """What could not be read for longer than this: it has no leader that answers for it."""
        return self._fetcher.unreadable(for_s)

    def rejoin(self) -> None:
        """Have the group assign the partitions again."""
        self._membership.soon(self._membership.request_rejoin)

    def change_topics(self, topics: frozenset[str]) -> None:
        """Take part in the group with these topics from now on. What is read stays (R128)."""
        self._fetcher.follow(topics)
        self._membership.soon(self._membership.subscribe_to, topics)

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, as far as the client knows; 0: it does not exist."""
        return len(self._membership.kafka_consumer.partitions_for_topic(topic) or ())

    def unconfirmed_s(self) -> float:
        """For how many seconds the group has not confirmed that this is a member; 0: not yet."""
        member_s = self._membership.member_s
        return 0.0 if member_s is None else time.monotonic() - member_s

    async def prove_membership(self, *, is_fenced: bool) -> None:
        """Wait until the group cannot have given this worker's partitions to another one (R126).

        A heartbeat is valid for the session timeout. Half of it is left for what comes then.

        Args:
            is_fenced: somebody else has opened a partition, so only a new heartbeat proves it.
        """
        began_s, valid_s = time.monotonic(), self.app.conf.broker_session_timeout / 2
        while True:
            member_s = self._membership.member_s
            since_s = began_s if is_fenced else time.monotonic() - valid_s
            if member_s is not None and member_s >= since_s:
                return
            await asyncio.sleep(MEMBERSHIP_POLL_S)

    # -- called by Faust

    def new_thread(self) -> Membership:
        """Create the thread that takes part in the group."""
        self._membership = Membership(self, loop=self.loop, beacon=self.beacon)
        self._membership.background = self.app.background
        self._membership.being_read = lambda: self._fetcher.being_read
        return self._membership

    def assignment(self) -> set[TP]:
        """What the group has assigned, and what is still being read."""
        return {*self._membership.assigned, *self._fetcher.being_read}

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Take part in the group with the listener's topics: Faust knows none without streams."""
        await super().subscribe(self.app.listener.topics)

    async def fetch_loop(self, fetcher: ServiceT) -> None:
        """Fetch batches and hand them on until this consumer or `fetcher` should stop."""
        try:
            self._fetcher.follow(self.app.listener.topics)
            await self._fetcher.start()
            while not (self.should_stop or fetcher.should_stop):
                for batch in await self._next_batches():
                    if self.is_current(batch):
                        self.app.listener.offer(batch)
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise
        finally:
            await self._fetcher.stop()

    async def perform_seek(self) -> None:
        """Leave it to the listener."""

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit nothing: the listener's tasks commit, inside their transactions."""
        return False

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Log nothing: a partition may be paused for long, and Faust sees no commits."""

    # -- called by the consumer's thread and by the app

    async def on_assignment(self, tps: frozenset[TP], standbys: frozenset[int]) -> None:
        """Pass an assignment to the listener."""
        try:
            await self.app.listener.on_assigned(tps, standbys)
        except Exception as error:  # the Kafka client would only log it
            await self.app.crash(error)

    def _new_client(self) -> AIOKafkaClient:
        options = connection_options(self.app.conf, self.app.transport)
        return AIOKafkaClient(**{**options, "request_timeout_ms": _ANSWER_TIMEOUT_MS})

    async def _next_batches(self) -> list[Batch]:
        being_read = self._fetcher.being_read
        not_wanted = self._paused | self._paused_until_seek | self.app.held_back(being_read)
        batches = await self._fetcher.fetch(being_read - not_wanted)
        for tp, error in self._fetcher.take_failed():
            self.app.listener.on_unreadable(tp, error)
        return batches


class BatchTransport(driver.Transport):
    """Faust's Kafka transport with our consumer."""

    Consumer: ClassVar[type[ConsumerT]] = BatchConsumer


class BatchApp(FaustApp):
    """A Faust app whose consumer hands `Batch`es to a listener.

    Takes Faust's settings, with the defaults in `DEFAULTS`. Set `listener` before the app starts.
    The brokers admit to the group only members with the same `protocol`.
    Faust's agents, streams, tables and `exactly_once` cannot be used.
    """

    def __init__(self, id: str, *, protocol: str = "ringfaust", **options: Any) -> None:
        self.listener: AssignmentListener
        self.background: Sequence[Background] = ()
        """What runs in the thread of the group's member as long as that does."""
        self.beside: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Runs in the app's own loop from its start to its stop."""
        self.held_back: Callable[[Set[TP]], Set[TP]] = lambda _: frozenset()
        """Which of some partitions are not to be read now; asked at least once a second."""
        self.protocol = protocol
        self.holdings: Holdings | None = None
        """What this worker reports about its state to the leader of the group."""
        super().__init__(id, **{**DEFAULTS, "PartitionAssignor": Assignor, **options})

    @property
    def reader(self) -> BatchConsumer:
        """The consumer, to pause, resume and seek."""
        return cast(BatchConsumer, self.consumer)

    async def on_start(self) -> None:
        """Start what runs beside the consumer. Faust's own tasks start after recovery."""
        await super().on_start()
        if self.beside is not None:
            self.add_future(self.beside())

    def new_transport(self) -> TransportT:
        """Create the transport of the consumer."""
        return BatchTransport(self.conf.broker_consumer, self)

    async def before_consumer_stop(self) -> None:
        """Have the listener give up everything."""
        await self.listener.on_stop(is_orderly=not self.crashed)
