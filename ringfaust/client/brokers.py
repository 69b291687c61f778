"""Where a client's records are: on Kafka's brokers, or in this process (`MemoryBroker`).

The client reaches Kafka through here and nowhere else. What is in this process behaves like
aiokafka's clients, as far as the client uses them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import CoordinationType
from aiokafka.conn import collect_hosts
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.structs import RecordMetadata

from ringfaust.client.errors import BadArgument
from ringfaust.protocol.records import OutgoingRecord
from ringfaust.transactional.vendor import Stoppable, keep_going, stop_client
from ringfaust.transactional.writer import Sent, TransactionalWriter

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""How long closing may take, in seconds, while the brokers cannot be reached."""
MEMORY = "memory://"
"""How the `bootstrap_servers` of a `MemoryBroker` begin."""


class Writer(Protocol):
    """Writes records in transactions; see `TransactionalWriter`."""

    may_be_committed: bool

    async def start(self) -> None:
        """Connect, and stop an earlier writer with the same id."""

    async def stop(self) -> None:
        """Disconnect."""

    async def commit(self, produce: Callable[[], Awaitable[Sent]]) -> list[RecordMetadata]:
        """Commit what `produce` sends, and return its positions."""

    async def abort(self) -> None:
        """Abort the transaction; raises TimeoutError if the brokers do not answer soon."""

    async def send(self, records: Iterable[OutgoingRecord]) -> Sent:
        """Produce records."""


class Brokers(Protocol):
    """Creates the clients of some brokers. None of them is started."""

    def producer(self, **options: Any) -> AIOKafkaProducer:
        """An idempotent producer."""

    def consumer(self, **options: Any) -> AIOKafkaConsumer:
        """A consumer without a group."""

    def writer(self, transactional_id: str) -> Writer:
        """A producer with a transactional id."""

    async def subscribed_topics(self, producer: AIOKafkaProducer, group: str) -> frozenset[str]:
        """What the members of a group read, asked by a started producer; empty: nobody knows."""


class KafkaBrokers:
    """Kafka, through aiokafka."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: of every client. They may contain a password: never log or show them."""
        self._options = options

    def producer(self, **options: Any) -> AIOKafkaProducer:
        """An idempotent producer.

        Raises:
            BadArgument: the Kafka client does not accept `client_options`.
        """
        producer = self._new(AIOKafkaProducer, enable_idempotence=True, **options)
        keep_going(producer)
        return producer

    def consumer(self, **options: Any) -> AIOKafkaConsumer:
        """A consumer without a group; see `producer`."""
        return self._new(AIOKafkaConsumer, **options)

    def _new(self, kind: type, **options: Any) -> Any:
        try:
            return kind(**self._options, **options)
        except (TypeError, ValueError) as error:
            raise BadArgument(f"client_options: {error}") from None

    def writer(self, transactional_id: str) -> Writer:
        """A producer with a transactional id."""
        return TransactionalWriter(self._options, transactional_id)

    async def subscribed_topics(self, producer: AIOKafkaProducer, group: str) -> frozenset[str]:
        """Ask the group's coordinator: it may rebalance, or be hidden from this client."""
        client: Any = producer.client
        try:
            coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
            answer = await client.send(coordinator, DescribeGroupsRequest([group]))
        except KafkaError:
            return frozenset()
        ((code, *_, members),) = (each[:6] for each in answer.groups)
        if code:
            return frozenset()
        return frozenset(topic for each in members for topic in _subscription(each[3]))


def _subscription(metadata: bytes) -> list[str]:
    """The topics of a member. During a rebalance the brokers hand out no metadata."""
    return list(ConsumerProtocolMemberMetadata.decode(metadata).subscription) if metadata else []


_in_memory: dict[str, Brokers] = {}
"""By `bootstrap_servers`."""


def serve_in_memory(servers: str, brokers: Brokers) -> None:
    """Let the clients of this process find brokers that are in it."""
    _in_memory[servers] = brokers


def end_in_memory(servers: str) -> None:
    """Undo `serve_in_memory`."""
    del _in_memory[servers]


def brokers_of(servers: str, client_options: Mapping[str, Any]) -> Brokers:
    """Return the brokers at `servers`; `client_options` are for Kafka.

    Raises:
        BadArgument: it is no list of addresses, or they would be in this process, and are not.
    """
    if not isinstance(servers, str) or not servers.startswith(MEMORY):
        _check_servers(servers)
        return KafkaBrokers({"bootstrap_servers": servers, **client_options})
    if servers not in _in_memory:
        raise BadArgument(
            f"bootstrap_servers: {servers} names no open MemoryBroker of this process; use its "
            "`bootstrap_servers` within its `with` block"
        )
    return _in_memory[servers]


def _check_servers(servers: object) -> None:
    try:
        if isinstance(servers, str) and collect_hosts(servers):
            return
    except ValueError:
        pass
    raise BadArgument(
        "bootstrap_servers must be host:port of one or more brokers, separated by commas, "
        f"not {servers!r}"
    )


async def stop(client: Stoppable) -> None:
    """Stop a client. If the brokers stay away, a producer drops what it has not sent."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await stop_client(client)
    except TimeoutError:
        log.warning("cannot reach the brokers while closing: unsent records are dropped")
