"""The workers' signs of life, on the status topic (R126)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from ringfaust.kafka.reader import read_to_end
from ringfaust.kafka.vendor import use_backoff
from ringfaust.protocol.status import (
    SIGNS,
    Sign,
    read_key,
    read_sign,
    read_time_ms,
    sign_key,
    write_sign,
)
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


class _Row(NamedTuple):
    time_ms: int
    interval_ms: int
    """How soon the next one comes; 0: it does not say."""


async def last_sign(client: Mapping[str, Any], topic: str, failover_after_ms: int) -> LastSign:
    """Find out whether a worker lives.

    A sign is recent if it is younger than `failover_after_ms` by this machine's clock. As that may
    be wrong, this waits for a new sign if none is: for twice the time between two, of the slowest.

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
        last_ms = max((each.time_ms for each in signs.values()), default=0)
        if wall_ms() - last_ms < failover_after_ms:
            return LastSign(True, last_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(_patience_s(signs, failover_after_ms)):
                async for each in consumer:
                    if _take(signs, each.key, each.value):
                        return LastSign(True, max(each.time_ms for each in signs.values()))
        return LastSign(False, last_ms)
    except KafkaError:
        return LastSign(True)
    finally:
        await stop_client(consumer)


def _patience_s(signs: Mapping[str, _Row], failover_after_ms: int) -> float:
    """How long to wait for a new sign."""
    if signs and all(each.startswith(_WORKER) for each in signs):
        return _ROW_S  # of a version without signs
    intervals_ms = [failover_after_ms / SIGNS, *(each.interval_ms for each in signs.values())]
    return min(2 * max(intervals_ms) / 1000, _ROW_S)


async def _read_tail(consumer: AIOKafkaConsumer, where: TopicPartition) -> dict[str, _Row]:
    """Look through the latest rows. Returns who lived when it wrote last, and when that was."""
    end = (await consumer.end_offsets([where]))[where]
    begin = (await consumer.beginning_offsets([where]))[where]
    consumer.seek(where, max(begin, end - _TAIL))
    signs: dict[str, _Row] = {}
    async for records in read_to_end(consumer, {where: end}):
        for each in records:
            _take(signs, each.key, each.value)
    consumer.resume(where)
    return signs


def _take(signs: dict[str, _Row], key: bytes | None, value: bytes | None) -> bool:
    """Note a row. Returns whether it shows that a worker lives."""
    sign = read_sign(key, value)
    if sign is not None:
        worker, interval_ms = sign.worker, sign.interval_ms
    else:
        row = read_key(key)
        if row is None or row[0] != "worker":
            return False
        worker, interval_ms = f"{_WORKER}{row[1]}", 0
    signs.pop(worker, None)
    if value is None or (time_ms := read_time_ms(value)) is None:
        return False
    signs[worker] = _Row(time_ms, interval_ms)
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
        self._found: list[Sign] = []
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
        self._found = [
            Sign(worker, row.interval_ms)
            for worker, row in signs.items()
            if not worker.startswith(_WORKER)
        ]

    async def write(self, sign: Sign) -> None:
        """Write a sign of life, or that the worker stops. Returns when the brokers have it."""
        assert self._producer is not None
        value, key = write_sign(sign, wall_ms()), sign_key(sign.worker)
        await self._producer.send_and_wait(self._topic, value, key, partition=_PARTITION)

    async def read(self) -> AsyncIterator[Sign]:
        """Yield signs: the last one of each worker that lived before the start, then each new."""
        assert self._consumer is not None
        for sign in self._found:
            yield sign
        async for record in self._consumer:
            found = read_sign(record.key, record.value)
            if found is not None:
                yield found

    async def stop(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        if producer is not None:
            await stop_client(producer)
        if consumer is not None:
            await stop_client(consumer)
