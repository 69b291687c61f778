"""The thread of the group: this worker's membership, and what the brokers say of it.

A Kafka client takes part in the group in Faust's consumer thread, so heartbeats and signs of life
(R126) continue while a batch is decided. It reads nothing: `fetcher` does, in the app's loop.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from ringfaust.worker.faust.group import refusal, twin_joined
from ringfaust.worker.faust.vendor import FaustConsumerThread

log = logging.getLogger(__name__)

#: How often the thread checks whether the group has refused the worker.
_GROUP_CHECK_S = 0.5

#: Runs until cancelled; its argument returns the partitions that are being read.
Background = Callable[[Callable[[], frozenset[TP]]], Coroutine[Any, Any, None]]


class Membership(FaustConsumerThread):
    """Runs the Kafka client that takes part in the group, and what runs beside it."""

    def __post_init__(self) -> None:
        """Begin as nobody."""
        super().__post_init__()
        self.background: Sequence[Background] = ()
        """What runs beside the Kafka client."""
        self.being_read: Callable[[], frozenset[TP]] = frozenset
        """Returns the partitions that are read. Any thread."""
        self._beside: set[asyncio.Task[None]] = set()
        self._has_twin = False
        """Whether another process has joined the group with this worker's identity."""
        self._refused_with: type[Exception] | None = None
        """The error of the group that was logged since it last confirmed this member."""
        self.member_s: float | None = None
        """When the request was sent with which the group last confirmed that this is a member
        (monotonic); None: it never has. Any thread may read it."""

    async def on_start(self) -> None:
        """Connect."""
        await super().on_start()
        self.watch_answers(self._on_member, self._on_twin)
        self.read_nothing()
        for each in self.background:
            self._run_beside(each(self.being_read))
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
        await super().on_thread_stop()

    async def pass_assignment(self) -> None:
        """Tell the consumer, in the app's loop, what the group has assigned."""
        consumer: Any = self.consumer
        telling = consumer.on_assignment(self.assigned, self.app.assignor.standbys)
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
            if refused := refusal(error, group, self.app.conf.broker_session_timeout):
                raise refused
            if error is not None:
                # The client reports this at the next fetch, and this client never fetches.
                if type(error) is not self._refused_with:
                    text = "the brokers refuse this worker in group %s (%r); asking again"
                    log.warning(text, group, error)
                    self._refused_with = type(error)
                self.try_group_again()

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call something in the thread, if that still runs. Any thread."""
        with suppress(RuntimeError):  # the loop is closed: the worker stops
            self.thread_loop.call_soon_threadsafe(call, *arguments)

    def _on_member(self, asked_s: float) -> None:
        self.member_s = asked_s
        self._refused_with = None

    def _on_twin(self) -> None:
        self._has_twin = True

    async def end(self) -> None:
        """Take part in the group no more. Any thread.

        Raises:
            aiokafka.errors.IllegalStateError: the thread has ended.
        """
        ending = self.close_coordinator()
        try:
            running = asyncio.run_coroutine_threadsafe(ending, self.thread_loop)
        except RuntimeError:  # the loop is closed: the worker stops after a crash
            ending.close()
            raise IllegalStateError("the Kafka client has stopped") from None
        await asyncio.wrap_future(running)

    def new_kafka_consumer(self, transport: driver.Transport, assignor: object) -> AIOKafkaConsumer:
        """Create the Kafka client, not started.

        Its options are Faust's, except for the assignor (Faust uses its own only with tables) and
        those that concern reading.
        """
        conf = self.app.conf
        return AIOKafkaConsumer(
            **connection_options(conf, transport),
            group_id=conf.id,
            group_instance_id=conf.consumer_group_instance_id,
            partition_assignment_strategy=[assignor],
            enable_auto_commit=False,
            max_poll_interval_ms=sys.maxsize,  # who reads nothing stays a member
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
        )


def connection_options(conf: Any, transport: driver.Transport) -> dict[str, Any]:
    """How any Kafka client connects, by Faust's settings."""
    return {
        "bootstrap_servers": driver.server_list(transport.url, transport.default_port),
        "client_id": conf.broker_client_id,
        "request_timeout_ms": int(conf.broker_request_timeout * 1000),
        "metadata_max_age_ms": conf.consumer_metadata_max_age_ms,
        "connections_max_idle_ms": conf.consumer_connections_max_idle_ms,
        **driver.credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
    }
