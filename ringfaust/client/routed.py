"""Which topics the workers of an application read, by what the brokers know of their group."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest


async def subscribed_topics(producer: AIOKafkaProducer, group: str) -> frozenset[str]:
    """Return the topics to which the members of a consumer group are subscribed.

    Empty if that is not known: the group has no members or rebalances, or the brokers do not let
    this client see it.

    Args:
        producer: one that is started, whose connection is used.
        group: the group.
    """
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
