"""What time the brokers have: the append time of a record that no reader ever sees (R115)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from ringfaust.kafka.names import clock_transactional_id, topic_name
from ringfaust.protocol.records import Role
from ringfaust.times import wall_ms
from ringfaust.transactional.clients import connected
from ringfaust.transactional.vendor import FAILED_BETWEEN_CALLS

_OPEN_MS = 10_000
"""If this process dies in between, the brokers abort the transaction after this time."""


async def clock_skew_ms(client: Mapping[str, Any], application: str, process: str) -> int:
    """By how much our clock is ahead of the brokers' clock at least; negative: behind; 0: neither.

    A record is written in a transaction that is aborted. The broker stamped it after it was sent
    and before it was acknowledged, so the time that the request took is no error.

    Args:
        client: options of any Kafka client.
        application: its hop topic is used, which has LogAppendTime.
        process: who asks; nobody else has this name.

    Raises:
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    topic, name = topic_name(application, Role.HOP), clock_transactional_id(application, process)
    producer = AIOKafkaProducer(**client, transactional_id=name, transaction_timeout_ms=_OPEN_MS)
    async with connected(producer):
        await producer.begin_transaction()
        try:
            sent_ms = wall_ms()
            stamped_ms = int((await producer.send_and_wait(topic, b"", partition=0)).timestamp)
            received_ms = wall_ms()
        finally:
            with suppress(*FAILED_BETWEEN_CALLS, KafkaError):
                await producer.abort_transaction()
    return max(sent_ms - stamped_ms, 0) or min(received_ms - stamped_ms, 0)
