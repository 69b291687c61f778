"""Bring a partition's store up to the committed end of its changelog."""

from __future__ import annotations

import time
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.errors import RingfaustError
from ringfaust.kafka.reader import read_to_end
from ringfaust.worker.store import RocksStore

_AT_ONCE = 20_000


class StateLost(RingfaustError):
    """What the rings held is not where it should be. Nothing was changed.

    What to do: the text says what is missing, and how to begin anew where that is wanted.
    """


async def replay(
    store: RocksStore, topic: str, partition: int, client: dict[str, Any], tombstone_ms: int
) -> bool:
    """Apply what was committed to the changelog since the store's offset.

    Args:
        store: to be brought up to date.
        topic: the changelog.
        partition: number of the partition.
        client: options of any Kafka client.
        tombstone_ms: how long the changelog tells that a row was removed.

    Returns:
        False if the store is so old that it may have missed that a row was removed: it has to be
        rebuilt from nothing.

    Raises:
        StateLost: the changelog lacks its beginning, or what the store has of it.
    """
    tp = TopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(
        **client,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    await consumer.start()
    try:
        consumer.assign([tp])
        now_ms = time.time_ns() // 1_000_000
        begin = (await consumer.beginning_offsets([tp]))[tp]
        end = (await consumer.end_offsets([tp]))[tp]
        start, applied_ms = store.applied
        _check_bounds(tp, store, start, begin, end)
        # Just behind what was applied stands the marker of its transaction, and is no news.
        if start and end - start > 1 and now_ms - applied_ms > tombstone_ms:
            return False
        consumer.seek(tp, start)
        async for records in read_to_end(consumer, {tp: end}, max_records=_AT_ONCE):
            writes = [(record.key, record.value) for record in records]
            store.apply(writes, records[-1].offset + 1, applied_ms)
        store.apply([], end, now_ms)
        return True
    finally:
        await consumer.stop()


def _check_bounds(tp: TopicPartition, store: RocksStore, start: int, begin: int, end: int) -> None:
    name = f"{tp.topic}, partition {tp.partition},"
    if start > end:
        raise StateLost(
            f"{name} ends at offset {end}, but {store.path} has applied it up to {start}: the "
            "topic was made anew, lost its end, or the folder is another application's or "
            "cluster's. To go on with what the topic has, delete the folder"
        )
    if start < begin:
        raise StateLost(
            f"{name} begins at offset {begin} and no longer at its first record, so rings cannot "
            "be rebuilt from it. Use the data folder of the worker that had the partition, which "
            "is newer"
        )
