"""Ask the brokers about topics, and have topics made. Failures become one clear error each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import admin as kafka
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, NodeNotReadyError, TopicAlreadyExistsError, for_code

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import admin_client_id

CONNECT_SECONDS = 5.0
"""How long brokers may take to answer at all."""
REQUEST_SECONDS = 20.0
"""How long a broker that answers may take for one request; making topics takes it a while."""
_PROBE_SECONDS = 1.0
_RETRY_SECONDS = 0.1


class BrokerUnreachable(RingfaustError):
    """No broker answers where one should be. Nothing was done; mend what the text names.

    Attributes:
        servers: where brokers were looked for, as `host:port,…`.
    """

    def __init__(self, servers: str, reason: str) -> None:
        super().__init__(
            f"No Kafka broker answers at {servers}: {reason}. See bootstrap_servers of "
            "worker.yaml or --bootstrap-servers; `ringfaust broker` starts one to try things out."
        )
        self.servers = servers


class BrokerRefused(RingfaustError):
    """A broker answered, but did not do what it was asked; what it did before stays done."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"The Kafka broker was asked {what} and failed: {reason}.")


class Existing(NamedTuple):
    """What the brokers have of a topic."""

    partitions: int
    settings: Mapping[str, str]
    """Kafka's names and values, defaults too."""


class NewTopic(NamedTuple):
    """A topic to be made."""

    name: str
    partitions: int
    replication_factor: int
    """-1: what the brokers are set to."""
    settings: Mapping[str, str]


class Admin:
    """An open connection to the brokers; see `open_admin`."""

    def __init__(self, client: kafka.AIOKafkaAdminClient) -> None:
        self._client = client

    async def existing(self, names: Collection[str]) -> dict[str, Existing]:
        """Those of the named topics that there are."""
        # All topics are asked for: brokers may make a topic that is asked for by name.
        found: list[dict[str, Any]] = await self._client.describe_topics()
        counts = {
            topic["topic"]: len(topic["partitions"])
            for topic in found
            if topic["topic"] in names and topic["error_code"] == 0
        }
        settings = await self._settings(list(counts))
        return {name: Existing(count, settings[name]) for name, count in counts.items()}

    async def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        settings: dict[str, dict[str, str]] = {}
        for answer in await self._client.describe_configs(resources):
            for error_code, text, _, name, entries in answer.resources:
                if error_code:
                    raise for_code(error_code)(text)
                settings[name] = {entry[0]: entry[1] or "" for entry in entries}
        return settings

    async def create(self, topics: Sequence[NewTopic]) -> list[str]:
        """Make topics, and return the names of those once the brokers know them.

        One that is there already, perhaps not known to all brokers yet, is left as it is.

        Raises:
            BrokerRefused: the brokers refuse to make one.
        """
        if not topics:
            return []
        wishes = [
            # An empty assignment, for without it the client takes no -1.
            kafka.NewTopic(
                each.name,
                each.partitions,
                each.replication_factor,
                {} if each.replication_factor == -1 else None,
                dict(each.settings),
            )
            for each in topics
        ]
        answer = await self._client.create_topics(wishes)
        for name, code, text in answer.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                reason = text or for_code(code).description
                raise BrokerRefused(f"to make topic {name}", reason.rstrip("."))
        names = {each.name for each in topics}
        while names - (await self.existing(names)).keys():
            await asyncio.sleep(_RETRY_SECONDS)
        return [name for name, code, _ in answer.topic_errors if code == 0]


@asynccontextmanager
async def open_admin(config: WorkerConfig) -> AsyncIterator[Admin]:
    """Connect to the brokers of the configuration.

    Raises:
        BrokerUnreachable: no broker answers, or what answers is none.
        BrokerRefused: one does, but not to what it is asked later.
        ConfigError: a certificate or the password is not there.
    """
    client = kafka.AIOKafkaAdminClient(
        client_id=admin_client_id(config.application),
        request_timeout_ms=int(REQUEST_SECONDS * 1000),
        **config.client_options(),
    )
    try:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.start()
        except (KafkaError, OSError, TimeoutError, ValueError) as error:
            raise BrokerUnreachable(config.bootstrap_servers, await _reason(config)) from error
        try:
            async with asyncio.timeout(2 * REQUEST_SECONDS):
                yield Admin(client)
        except NodeNotReadyError as error:
            raise BrokerUnreachable(
                config.bootstrap_servers,
                "one did, but the address it gives of itself (its advertised.listeners) cannot be "
                "reached from here",
            ) from error
        except (KafkaError, OSError, TimeoutError) as error:
            reason = f"{type(error).__name__} {error}".rstrip(" .")
            raise BrokerRefused("about topics", reason) from error
    finally:
        await client.close()


async def _reason(config: WorkerConfig) -> str:
    """Why there was no answer, as far as a bare connection to the first server can tell."""
    host, _, port = config.bootstrap_servers.split(",")[0].rpartition(":")
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"{host} gives no sign of life"
    except OSError as error:
        # The system's own words where it has some; asyncio's have addresses in them.
        number = error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror or str(error)
    writer.close()
    security, what = config.security, ""
    if security.protocol.startswith("SASL"):
        what = " and this user and password"
    if security.protocol.endswith("SSL"):
        what += " and this certificate" if security.cert_file else " and no client certificate"
    return (
        "something listens there, but does not answer as a Kafka broker with protocol "
        f"{security.protocol}{what} (see `security`)"
    )
