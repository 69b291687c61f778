"""The identity of a cluster and of its topics, as the brokers report it (R111).

Kafka gives each topic an id when it is created, so a topic that is recreated under its old name has
another one. The metadata that aiokafka 0.14 requests has no ids. This module adds the version of
the request that has them (12, which brokers know from Kafka 3.1 on).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, StaleMetadata, for_code

from ringfaust.kafka.admin import connected_admin
from ringfaust.kafka.vendor import TopicMetadata, ask_every_broker

_UNKNOWN_TOPIC = 3
_TIMEOUT_S = 20.0


class TopicIds(NamedTuple):
    """What the brokers say about themselves and some topics."""

    cluster: str
    """The id of the cluster."""
    topics: Mapping[str, str]
    """By name, the id of each topic that exists. Empty for all if the brokers are too old to know
    ids: then nothing tells a recreated topic from its predecessor."""


async def topic_ids(client: Mapping[str, Any], names: Collection[str]) -> TopicIds:
    """Ask the brokers for the ids of topics. Topics that do not exist are left out.

    A broker that lags behind still reports the topic that was deleted. So every broker that can be
    reached is asked, and all must agree.

    Args:
        client: options of any Kafka client.
        names: of the topics.

    Raises:
        StaleMetadata: the brokers do not agree; ask again.
        KafkaError: no broker answers.
    """
    async with asyncio.timeout(_TIMEOUT_S), connected_admin(client) as admin:
        return await topic_ids_again(admin, names)


async def topic_ids_again(admin: AIOKafkaAdminClient, names: Collection[str]) -> TopicIds:
    """Like `topic_ids`, with a client that is connected.

    Raises:
        StaleMetadata: the brokers do not agree; ask again.
        KafkaError: no broker answers.
    """
    async with asyncio.timeout(_TIMEOUT_S):
        return _agreed(await ask_every_broker(admin, sorted(names)))


def _agreed(answers: Sequence[TopicMetadata]) -> TopicIds:
    clusters, ids = {answer.cluster for answer in answers}, [_ids(answer) for answer in answers]
    if len(clusters) != 1 or any(found != ids[0] for found in ids):
        raise StaleMetadata("the brokers do not agree about the ids of topics")
    return TopicIds(clusters.pop(), ids[0])


def _ids(answer: TopicMetadata) -> dict[str, str]:
    found = {}
    for error_code, name, topic_id in answer.topics:
        if error_code not in (0, _UNKNOWN_TOPIC):
            error: type[KafkaError] = for_code(error_code)
            if not error.retriable:
                raise error(f"topic {name}")
            raise StaleMetadata(f"topic {name}: {error.description}")
        if error_code == 0:
            found[name] = topic_id
    return found
