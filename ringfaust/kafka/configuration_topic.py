"""The configuration topic as a worker reads it when it starts (R128, R129)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer

from ringfaust.protocol.revisions import ConfigurationLog, read_log
from ringfaust.transactional.configuration_topic import OPTIONS, read_configurations
from ringfaust.transactional.vendor import stop_client


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
