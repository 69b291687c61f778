"""The workers' signs of life, on the status topic (R126)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from ringfaust.kafka.reader import read_to_end
from ringfaust.kafka.vendor import use_backoff
from ringfaust.protocol.status import SIGNS, read_key, read_sign_key, sign_key
from ringfaust.times import wall_ms
from ringfaust.transactional.vendor import stop_client

_PARTITION = 0
_TIMEOUT_MS = 10_000
_FETCH_WAIT_MS = 500
_LOOK_WAIT_MS = 100
_WORKER = "worker/"
_TAIL = 2_000
"""How many of the latest rows are looked through for signs."""
_ROW_S = 6.0
"""A worker writes a row about itself every 5 s, whatever its `failover_after_ms`."""


class LastSign(NamedTuple):
    """What is known of the workers of an application."""

    lives: bool
    """Whether one gives signs of life, or it cannot be known."""
    time_ms: int = 0
    """When the last sign was given, in ms since 1970; 0: there is none."""


async def last_sign(client: Mapping[str, Any], topic: str, failover_after_ms: int) -> LastSign:
    """Find out whether a worker lives.

    A sign is recent if it is younger than `failover_after_ms` by this machine's clock. As that may
    be wrong, this waits for a new sign if none is: for twice the time between two.

    Args:
        client: options of any Kafka client.
        topic: the name of the status topic.
        failover_after_ms: the workers' setting.
    """
    consumer = AIOKafkaConsumer(**client, enable_auto_commit=False, fetch_max_wait_ms=_LOOK_WAIT_MS)
    where = TopicPartition(topic, _PARTITION)
    try:
        await consumer.start()
        if topic not in await consumer.topics():
            return LastSign(True)
        consumer.assign([where])
        signs = await _read_tail(consumer, where)
        last_ms = max(signs.values(), default=0)
        if wall_ms() - last_ms < failover_after_ms:
            return LastSign(True, last_ms)
        wait_s = min(2 * failover_after_ms / SIGNS / 1000, _ROW_S)
        if signs and all(each.startswith(_WORKER) for each in signs):
            wait_s = _ROW_S  # of a version without signs
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                async for each in consumer:
                    if _take(signs, each.key, each.value):
                        return LastSign(True, max(signs.values()))
        return LastSign(False, last_ms)
    except KafkaError:
        return LastSign(True)
    finally:
        await stop_client(consumer)


async def _read_tail(consumer: AIOKafkaConsumer, where: TopicPartition) -> dict[str, int]:
    """Look through the latest rows. Returns who lived when it wrote last, and when that was."""
    end = (await consumer.end_offsets([where]))[where]
    begin = (await consumer.beginning_offsets([where]))[where]
    consumer.seek(where, max(begin, end - _TAIL))
    signs: dict[str, int] = {}
    async for records in read_to_end(consumer, {where: end}):
        for each in records:
            _take(signs, each.key, each.value)
    consumer.resume(where)
    return signs


def _take(signs: dict[str, int], key: bytes | None, value: bytes | None) -> bool:
    """Note a row. Returns whether it shows that a worker lives."""
    worker = read_sign_key(key)
    if not worker:
        row = read_key(key)
        if row is None or row[0] != "worker":
            return False
        worker = f"{_WORKER}{row[1]}"
    signs.pop(worker, None)
    if value is None:
        return False
    try:
        signs[worker] = int(json.loads(value)["time_ms"])
    except (ValueError, TypeError, KeyError):
        return False
    return True


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
        self._found: list[str] = []
        """Who gave signs of life before the start."""

    async def start(self) -> None:
        """Connect, and look who gives signs of life: one of them may have died just now."""
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
        signs = await _read_tail(self._consumer, where)
        self._found = [each for each in signs if not each.startswith(_WORKER)]

    async def write(self, worker: str, *, is_alive: bool) -> None:
        """Write a sign of life, or that the worker stops. Returns when the brokers have it."""
        assert self._producer is not None
        now = json.dumps({"time_ms": wall_ms()}).encode()
        await self._producer.send_and_wait(
            self._topic, now if is_alive else None, sign_key(worker), partition=_PARTITION
        )

    async def read(self) -> AsyncIterator[tuple[str, bool]]:
        """Yield worker, and whether it lives: who lived before the start, then each new sign."""
        assert self._consumer is not None
        for worker in self._found:
            yield worker, True
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
