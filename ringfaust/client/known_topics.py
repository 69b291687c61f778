"""Which topics exist, and which of them a program may send to."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError

from ringfaust.client.errors import BadArgument, NoTopic, Unrouted
from ringfaust.protocol.names import worker_group
from ringfaust.protocol.records import Role

if TYPE_CHECKING:
    from ringfaust.client.connection import Connection

log = logging.getLogger(__name__)

_NEW_TOPIC_S = 2.0
"""How long a broker may take to hear of a topic that was just created."""
_ASK_AGAIN_S = 0.2


class KnownTopics:
    """The topics of the brokers, as far as a connection has asked for them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: set[str] = set()

    async def all(self) -> set[str]:
        """The topics that exist. Waits while the brokers are away.

        Raises:
            Closed: the connection is not started or already closed.
        """
        while True:
            try:
                metadata = await self._connection.producer.client.fetch_all_metadata()
                return set(metadata.topics())
            except KafkaError as error:
                log.warning("still waiting for the brokers: %r", error)
                await asyncio.sleep(_ASK_AGAIN_S)

    def is_missing(self, topic: str) -> bool:
        """Whether the last metadata from a broker lacks the topic. Asks nobody.

        Raises:
            Closed: the connection is not started or already closed.
        """
        return self._connection.producer.client.cluster.partitions_for_topic(topic) is None

    async def find(self, topic: str) -> None:
        """Ask for a topic until a broker knows it, or has had the time to hear of it.

        Raises:
            NoTopic: it does not exist, or this client may not see it.
            Closed: the connection is not started or already closed.
        """
        self._known.discard(topic)
        deadline_s = time.monotonic() + _NEW_TOPIC_S
        while topic not in await self.all():
            if time.monotonic() > deadline_s:
                raise NoTopic(topic)
            await asyncio.sleep(_ASK_AGAIN_S)
        self._known.add(topic)

    async def check(
        self, topic: str, partition: int | None = None, *, is_routed: bool = False
    ) -> None:
        """Check a topic before the first record is written to it. Later calls ask nobody.

        It must exist: aiokafka would ask for it for 40 s and log hundreds of lines.

        Args:
            topic: its name.
            partition: one that it must have; None: any.
            is_routed: if workers run, they must have a route for it.

        Raises:
            Unrouted: it is one of our own topics, or no route reads it.
            NoTopic: it does not exist, or this client may not see it.
            BadArgument: it has no such partition.
            Closed: the connection is not started or already closed.
        """
        producer = self._connection.producer
        if topic not in self._known:
            await self._check_route(topic, is_routed=is_routed)
            await self.find(topic)
        if partition is not None and partition not in await producer.partitions_for(topic):
            raise BadArgument(f"partition: topic {topic} has no partition {partition}")

    async def _check_route(self, topic: str, *, is_routed: bool) -> None:
        connection = self._connection
        own = {connection.topic(role) for role in Role if role is not Role.PRODUCER}
        if not is_routed and topic not in own:
            return
        group = worker_group(connection.application)
        routed = await connection.brokers.subscribed_topics(connection.producer, group) - own
        if topic in own:
            why = (
                f"belongs to the application {connection.application!r}: programs do not send to it"
            )
            raise Unrouted(topic, why, routed)
        if routed and topic not in routed:
            why = f"is read by no route of the application {connection.application!r}"
            raise Unrouted(topic, why, routed)
