"""The configuration topic as a worker reads it when it starts (R128)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.core.catalog import Configuration
from ringfaust.kafka.reader import read_to_end
from ringfaust.protocol.revisions import PARTITION, read_revisions
from ringfaust.transactional.vendor import stop_client


async def applied_revisions(client: Mapping[str, Any], topic: str) -> list[Configuration]:
    """Return what was applied, in order; nothing if the topic does not exist.

    Args:
        client: options of any Kafka client.
        topic: the name of the configuration topic.

    Raises:
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    consumer = AIOKafkaConsumer(
        **client,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        await consumer.start()
        if topic not in await consumer.topics():
            return []
        where = TopicPartition(topic, PARTITION)
        consumer.assign([where])
        begin = (await consumer.beginning_offsets([where]))[where]
        end = (await consumer.end_offsets([where]))[where]
        consumer.seek(where, begin)
        rows: list[tuple[bytes | None, bytes | None]] = []
        if end > begin:
            async for records in read_to_end(consumer, {where: end}):
                rows += [(each.key, each.value) for each in records]
        return read_revisions(rows)
    finally:
        await stop_client(consumer)
