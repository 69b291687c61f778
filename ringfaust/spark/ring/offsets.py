"""Where topics end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.kafka.reader import read_to_end

_FIRST_STEP_BACK = 32
"""In offsets. Any number of transaction markers may follow the last record."""


async def record_ends(
    client: Mapping[str, Any], topics: Collection[str]
) -> dict[str, dict[int, int]]:
    """By topic and partition, one past the last committed record. Empty partitions are left out."""
    consumer = AIOKafkaConsumer(*topics, **client, isolation_level="read_committed")
    await consumer.start()
    try:
        tps = list(consumer.assignment())
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        found: dict[str, dict[int, int]] = {}
        for tp in tps:
            if (end := await _record_end(consumer, tp, begins[tp], ends[tp])) is not None:
                found.setdefault(tp.topic, {})[tp.partition] = end
        return found
    finally:
        await consumer.stop()


async def log_ends(client: Mapping[str, Any], topics: Collection[str]) -> dict[str, dict[int, int]]:
    """By topic and partition, the end of the committed log, transaction markers included."""
    consumer = AIOKafkaConsumer(*topics, **client, isolation_level="read_committed")
    await consumer.start()
    try:
        ends = await consumer.end_offsets(list(consumer.assignment()))
    finally:
        await consumer.stop()
    found: dict[str, dict[int, int]] = {}
    for tp, end in ends.items():
        found.setdefault(tp.topic, {})[tp.partition] = end
    return found


async def _record_end(
    consumer: AIOKafkaConsumer, tp: TopicPartition, begin: int, end: int
) -> int | None:
    """One past the last record before `end`. The last offsets are often markers, not records."""
    back = _FIRST_STEP_BACK
    upper = end
    while upper > begin:
        at = max(begin, upper - back)
        consumer.seek(tp, at)
        last = None
        async for records in read_to_end(consumer, {tp: upper}):
            before = [record.offset for record in records if record.offset < upper]
            last = before[-1] if before else last
        if last is not None:
            return int(last) + 1
        upper, back = at, back * 8
    return None
