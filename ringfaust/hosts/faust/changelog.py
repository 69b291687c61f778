"""Bring a partition's store up to the committed end of its changelog."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.errors import RingfaustError
from ringfaust.hosts.faust.store import RocksStore

_POLL_MS = 500
_AT_ONCE = 20_000


class StateLost(RingfaustError):
    """The changelog lacks what the store needs, or the store is ahead of it.

    What to do: if the changelog topic was deleted or made anew on purpose, delete the worker's data
    folder too; else restore the topic.
    """


async def replay(store: RocksStore, topic: str, partition: int, client: dict[str, Any]) -> bool:
    """Apply what was committed to the changelog since the store's offset.

    Returns False if the store does not belong to this changelog and has to be rebuilt from nothing:
    its offset lies beyond the end, or before the beginning. `client`: options of any Kafka client.
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
        begin = (await consumer.beginning_offsets([tp]))[tp]
        end = (await consumer.end_offsets([tp]))[tp]
        start = store.applied_offset
        if start and not begin <= start <= end:
            return False
        consumer.seek(tp, max(start, begin))
        # The end is reached when the position is there, not when a record is: what stands last
        # are transaction markers, which are never handed out.
        while await consumer.position(tp) < end:
            fetched = await consumer.getmany(tp, timeout_ms=_POLL_MS, max_records=_AT_ONCE)
            records = fetched.get(tp)
            if records:
                writes = [(record.key, record.value) for record in records]
                store.apply(writes, records[-1].offset + 1)
        return True
    finally:
        await consumer.stop()
