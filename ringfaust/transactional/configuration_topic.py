"""The configuration topic, as workers and clients read it (R128, R129)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.protocol.revisions import PARTITION, ConfigurationLog, read_log
from ringfaust.transactional.vendor import stop_client

_POLL_MS = 100


OPTIONS: dict[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
}
"""Of the consumer that reads the topic."""


async def read_configurations(consumer: AIOKafkaConsumer, topic: str) -> ConfigurationLog | None:
    """Start a consumer, and return what the topic has; None: there is no such topic.

    Raises:
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    await consumer.start()
    if topic not in await consumer.topics():
        return None
    where = TopicPartition(topic, PARTITION)
    consumer.assign([where])
    begin = (await consumer.beginning_offsets([where]))[where]
    end = (await consumer.end_offsets([where]))[where]
    consumer.seek(where, begin)
    rows: list[tuple[bytes | None, bytes | None]] = []
    while begin < end and await consumer.position(where) < end:
        for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
            rows += [(each.key, each.value) for each in records]
    return read_log(rows)


async def configuration_log(client: Mapping[str, Any], topic: str) -> ConfigurationLog:
    """Return what was applied, and the feature level; nothing if the topic does not exist.

    Args:
        client: options of any Kafka client.
        topic: the name of the configuration topic.

    Raises:
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    consumer = AIOKafkaConsumer(**client, **OPTIONS)
    try:
        return await read_configurations(consumer, topic) or read_log(())
    finally:
        await stop_client(consumer)
