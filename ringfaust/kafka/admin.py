"""Query and create topics. Every failure becomes one clear error."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from aiokafka import TopicPartition
from aiokafka import admin as kafka
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    NodeNotReadyError,
    TopicAlreadyExistsError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
    for_code,
)
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ringfaust.cancellation import cancellation_is_kept
from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import admin_client_id, worker_group
from ringfaust.kafka.vendor import COORDINATOR_NOT_READY, Authorized, authorized, remove_member

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
"""How long the brokers may take to answer the first request."""
REQUEST_TIMEOUT_S = 20.0
"""How long a broker may take for one later request; creating topics is slow."""
COORDINATOR_TIMEOUT_S = 10.0
"""How long the brokers may take to name a coordinator; the first time they create a topic."""
_PROBE_TIMEOUT_S = 0.75
_TRANSACTIONS = 1
"""Kafka's number for the kind of coordinator."""
_RETRY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """Where the brokers are, and how a client authenticates."""

    application: str
    """The application that connects; part of the client id."""
    servers: str
    """`host:port`, separated by commas."""
    security: str
    """What a broker that refuses the connection might object to, for the error message."""
    client_options: Mapping[str, Any] = field(repr=False)
    """Keyword arguments for any aiokafka client. May contain a password."""


class BrokerUnreachable(RingfaustError):
    """No broker answers. Nothing was changed. The message says which setting to check.

    Attributes:
        servers: the addresses that were tried, as `host:port,…`.
    """

    def __init__(self, servers: str, reason: str) -> None:
        super().__init__(
            f"No Kafka broker answers at {servers}: {reason}. Check bootstrap_servers in "
            "worker.yaml or --bootstrap-servers. To start a broker for trying things out, run "
            "`ringfaust broker`."
        )
        self.servers = servers


class BrokerRefused(RingfaustError):
    """A broker answered but did not do what was requested. Earlier changes remain."""

    def __init__(self, action: str, reason: str) -> None:
        super().__init__(f"The Kafka broker could not {action}: {reason}.")


class ExistingTopic(NamedTuple):
    """A topic as the brokers describe it."""

    partitions: int
    settings: Mapping[str, str]
    """Kafka's names and values, including defaults."""
    copies: int
    """Replicas of the partition that has the fewest."""
    in_sync: int
    """In-sync replicas of the partition that has the fewest now."""


class GroupMember(NamedTuple):
    """A member of a consumer group."""

    client_id: str
    host: str


class GroupDescription(NamedTuple):
    """A consumer group as the brokers describe it."""

    protocol: str
    """The name of the assignment protocol that its members share; empty during a rebalance."""
    members: Sequence[GroupMember]


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    """-1: the brokers' default."""
    settings: Mapping[str, str]


async def until_ready(ask: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """Ask a coordinator, again and again while it is not ready.

    Raises:
        KafkaError: it is not ready in time, or answers with another error.
    """

    async def ask_once() -> T:  # tenacity awaits the result of an async function only
        return await ask()

    while_not_ready = AsyncRetrying(
        retry=retry_if_exception_type(COORDINATOR_NOT_READY),
        stop=stop_after_delay(timeout_s),
        wait=wait_fixed(_RETRY_S),
        reraise=True,
    )
    return await while_not_ready(ask_once)


class KafkaAdmin:
    """An open connection to the brokers. Use `open_admin` to get one.

    Everything raises `KafkaError` if a request fails; `open_admin` translates it.
    """

    def __init__(self, client: kafka.AIOKafkaAdminClient) -> None:
        self._client = client

    async def names(self) -> list[str]:
        """Return the names of all topics that are not internal to Kafka, in order."""
        found: list[dict[str, Any]] = await self._client.describe_topics()
        return sorted(topic["topic"] for topic in found if not topic["is_internal"])

    async def existing(self, names: Collection[str]) -> dict[str, ExistingTopic]:
        """Return those of the named topics that exist."""
        # Ask for all topics: brokers may create a topic that a client asks for by name.
        found: list[dict[str, Any]] = await self._client.describe_topics()
        partitions = {
            topic["topic"]: topic["partitions"]
            for topic in found
            if topic["topic"] in names and topic["error_code"] == 0
        }
        settings = await self._settings(list(partitions))
        return {
            name: ExistingTopic(
                len(those),
                settings[name],
                min(len(each["replicas"]) for each in those),
                min(len(each["isr"]) for each in those),
            )
            for name, those in partitions.items()
            if name in settings
        }

    async def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Of each topic. One that the broker asked does not know yet, or no longer, is left out."""
        if not names:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        settings: dict[str, dict[str, str]] = {}
        for answer in await self._client.describe_configs(resources):
            for error_code, text, _, name, entries in answer.resources:
                if error_code == UnknownTopicOrPartitionError.errno:
                    continue
                if error_code:
                    raise for_code(error_code)(text)
                settings[name] = {entry[0]: entry[1] or "" for entry in entries}
        return settings

    async def coordinator_error(self, transactional_id: str) -> KafkaError | None:
        """Why the brokers have no coordinator for these transactions; None if they have one.

        Waits for up to `COORDINATOR_TIMEOUT_S`: a cluster creates its transaction log only when it
        is first asked for a coordinator.
        """
        try:
            await until_ready(
                lambda: self._client.find_coordinator(transactional_id, _TRANSACTIONS),
                COORDINATOR_TIMEOUT_S,
            )
        except (TransactionalIdAuthorizationFailed, *COORDINATOR_NOT_READY) as error:
            return error
        return None

    async def group(self, name: str) -> GroupDescription:
        """Describe a consumer group. One that does not exist has no members."""
        return await until_ready(lambda: self._describe(name), COORDINATOR_TIMEOUT_S)

    async def _describe(self, group: str) -> GroupDescription:
        (answer,) = await self._client.describe_consumer_groups([group])
        ((code, _, _, _, protocol, members, *_),) = answer.groups
        if code:
            raise for_code(code)(f"group {group}")
        found = [GroupMember(client, host.lstrip("/")) for _, client, host, *_ in members]
        return GroupDescription(protocol, found)

    async def remove_member(self, group: str, instance: str) -> None:
        """Remove a static member from a group; one that is not in it stays out."""
        await until_ready(
            lambda: remove_member(self._client, group, instance), COORDINATOR_TIMEOUT_S
        )

    async def authorized(self, names: Sequence[str], group: str) -> Authorized | None:
        """What the brokers let this client do with topics and a group; None if they do not say."""
        return await until_ready(
            lambda: authorized(self._client, names, group), COORDINATOR_TIMEOUT_S
        )

    async def create(self, topics: Sequence[NewTopic]) -> list[str]:
        """Create topics and wait until the brokers list them all.

        Topics that already exist stay as they are, even if not every broker knows them yet.

        Returns:
            The names of the topics that this call created.

        Raises:
            BrokerRefused: the brokers refuse to create one.
        """
        if not topics:
            return []
        requests = [
            # The client accepts -1 only together with an assignment, so pass an empty one.
            kafka.NewTopic(
                each.name,
                each.partitions,
                each.replication_factor,
                {} if each.replication_factor == -1 else None,
                dict(each.settings),
            )
            for each in topics
        ]
        answer = await self._client.create_topics(requests)
        for name, code, text in answer.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                reason = text or for_code(code).description
                raise BrokerRefused(f"create topic {name}", reason.rstrip("."))
        names = {each.name for each in topics}
        while names - (await self.existing(names)).keys():
            await asyncio.sleep(_RETRY_S)
        return [name for name, code, _ in answer.topic_errors if code == 0]


@asynccontextmanager
async def open_admin(brokers: Brokers) -> AsyncIterator[KafkaAdmin]:
    """Connect to the brokers.

    Raises:
        BrokerUnreachable: nothing answers, or what answers is not a Kafka broker.
        BrokerRefused: a broker answers, but a later request fails.
    """
    client = kafka.AIOKafkaAdminClient(
        client_id=admin_client_id(brokers.application),
        request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
        **brokers.client_options,
    )
    try:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await client.start()
        except (KafkaError, OSError, TimeoutError, ValueError) as error:
            first = brokers.servers.split(",")[0]
            reason = await why_silent(first, brokers.security)
            raise BrokerUnreachable(brokers.servers, reason) from error
        try:
            async with asyncio.timeout(2 * REQUEST_TIMEOUT_S):
                yield KafkaAdmin(client)
        except NodeNotReadyError as error:
            raise BrokerUnreachable(
                brokers.servers,
                "one did, but the address it advertises (advertised.listeners) cannot be reached "
                "from here",
            ) from error
        except (KafkaError, OSError, TimeoutError) as error:
            reason = f"{type(error).__name__} {error}".rstrip(" .")
            raise BrokerRefused("answer a request about topics", reason) from error
    finally:
        with cancellation_is_kept():
            await client.close()


@asynccontextmanager
async def connected_admin(client: Mapping[str, Any]) -> AsyncIterator[kafka.AIOKafkaAdminClient]:
    """The client that asks the brokers; `client`: options of any Kafka client.

    Raises:
        KafkaError: no broker answers.
    """
    admin = kafka.AIOKafkaAdminClient(**client)
    try:
        await admin.start()
        yield admin
    finally:
        with cancellation_is_kept():
            await admin.close()


async def existing_partitions(brokers: Brokers, topics: Collection[str]) -> list[TopicPartition]:
    """The partitions of those of the topics that exist.

    Raises:
        BrokerUnreachable: see `open_admin`.
        BrokerRefused: see `open_admin`.
    """
    async with open_admin(brokers) as admin:
        found = await admin.existing(topics)
    return [
        TopicPartition(name, number)
        for name, topic in sorted(found.items())
        for number in range(topic.partitions)
    ]


async def running_workers(brokers: Brokers) -> Sequence[GroupMember]:
    """The members of the workers' group. A killed worker counts until its session has expired.

    Raises:
        BrokerUnreachable: see `open_admin`.
        BrokerRefused: see `open_admin`.
    """
    async with open_admin(brokers) as admin:
        return (await admin.group(worker_group(brokers.application))).members


async def why_silent(server: str, security: str) -> str:
    """Return why a server does not answer, judging by a plain TCP connection."""
    host, _, port = server.rpartition(":")
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"{server} does not respond"
    except OSError as error:
        # Prefer the system's message: asyncio's contains addresses.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        return f"{server} cannot be reached ({reason})"
    writer.close()
    return (
        f"{server} accepts connections, but does not answer as a Kafka broker with {security}: it "
        "hangs, or `security` is wrong"
    )
