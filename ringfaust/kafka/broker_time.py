"""What time the brokers have: the append time of a record that no reader ever sees (R115)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from ringfaust.transactional.vendor import stop_client

_OPEN_MS = 10_000
"""If this process dies in between, the brokers abort the transaction after this time."""


async def clock_skew_ms(
    client: Mapping[str, Any], topic: str, transactional_id: str, wall_ms: Callable[[], int]
) -> int:
    """By how much a clock is ahead of the brokers' clock at least; negative: behind; 0: neither.

    A record is written in a transaction that is aborted. The broker stamped it after it was sent
    and before it was acknowledged, so the time that the request took is no error.

    Args:
        client: options of any Kafka client.
        topic: a topic with LogAppendTime.
        transactional_id: used by nobody else.
        wall_ms: the clock, in ms since 1970.

    Raises:
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    producer = AIOKafkaProducer(
        **client, transactional_id=transactional_id, transaction_timeout_ms=_OPEN_MS
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        try:
            sent_ms = wall_ms()
            stamped_ms = int((await producer.send_and_wait(topic, b"", partition=0)).timestamp)
            received_ms = wall_ms()
        finally:
            with suppress(KafkaError):
                await producer.abort_transaction()
    finally:
        await stop_client(producer)
    return max(sent_ms - stamped_ms, 0) or min(received_ms - stamped_ms, 0)
