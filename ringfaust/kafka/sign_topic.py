"""The workers' signs of life, on the status topic (R126)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from ringfaust.kafka.vendor import use_backoff
from ringfaust.protocol.status import read_sign_key, sign_key
from ringfaust.transactional.vendor import stop_client

_PARTITION = 0
_TIMEOUT_MS = 10_000
_FETCH_WAIT_MS = 500


class SignTopic:
    """Writes and reads signs. Everything raises `KafkaError` if the brokers fail."""

    def __init__(self, client: Mapping[str, Any], topic: str) -> None:
        """Connect to nothing yet.

        Args:
            client: options of any Kafka client.
            topic: the name of the status topic.
        """
        self._topic = topic
        self._client = client
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        """Connect, to read what is written from now on."""
        options = {**self._client, "request_timeout_ms": _TIMEOUT_MS}
        self._producer = AIOKafkaProducer(**options, acks=1)
        use_backoff(self._producer)
        await self._producer.start()
        self._consumer = AIOKafkaConsumer(
            **options, enable_auto_commit=False, fetch_max_wait_ms=_FETCH_WAIT_MS
        )
        await self._consumer.start()
        where = TopicPartition(self._topic, _PARTITION)
        self._consumer.assign([where])
        await self._consumer.seek_to_end(where)

    async def write(self, worker: str, *, is_alive: bool) -> None:
        """Write a sign of life, or that the worker stops. Returns when the brokers have it."""
        assert self._producer is not None
        now = json.dumps({"time_ms": time.time_ns() // 1_000_000}).encode()
        await self._producer.send_and_wait(
            self._topic, now if is_alive else None, sign_key(worker), partition=_PARTITION
        )

    async def read(self) -> AsyncIterator[tuple[str, bool]]:
        """Yield worker, and whether it lives, for each sign that comes, without end."""
        assert self._consumer is not None
        async for record in self._consumer:
            worker = read_sign_key(record.key)
            if worker:
                yield worker, record.value is not None

    async def stop(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        if producer is not None:
            await stop_client(producer)
        if consumer is not None:
            await stop_client(consumer)
