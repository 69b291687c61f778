"""How far a reader is behind its topics, and how long they keep what it has not read."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.kafka.admin import Brokers, open_admin
from ringfaust.kafka.reader import subscribed_reader

_SHORT = 0.25
_FETCH_MS = 2_000
"""How long to wait for a record. There is none where only transaction markers are unread."""

Read = Mapping[str, Mapping[str, int]]
"""By topic and partition, the next offset to read."""


class TimeLeft(NamedTuple):
    """Until a topic may lose the first record that was not read. Of all partitions, the least."""

    left_s: float
    retention_s: float
    """The topic's `retention.ms`."""

    @property
    def is_short(self) -> bool:
        """Whether that is worth a warning: less than a quarter of the retention."""
        return self.left_s < self.retention_s * _SHORT

    def __str__(self) -> str:
        when = f"in {self.left_s / 3600:.1f} h" if self.left_s > 0 else "at any moment"
        return (
            f"keeps records for {self.retention_s / 3600:.1f} h, and may delete the first one that "
            f"was not read {when}"
        )


async def unread(brokers: Brokers, topics: Collection[str], read: Read) -> dict[str, int]:
    """By topic, how many offsets are not read yet, with transaction markers.

    Raises:
        KafkaError: a request failed.
    """
    async with subscribed_reader(brokers.client_options, topics) as consumer:
        found = dict.fromkeys(topics, 0)
        for tp, (first, end) in (await _unread(consumer, read)).items():
            found[tp.topic] += end - first
        return found


async def time_left(brokers: Brokers, topics: Collection[str], read: Read) -> dict[str, TimeLeft]:
    """By topic, how long it keeps what is not read, by `retention.ms`.

    Topics that are read completely, or that keep records forever, are left out.

    Raises:
        KafkaError: a request failed.
        BrokerUnreachable: no broker answers.
    """
    async with open_admin(brokers) as admin:
        existing = await admin.existing(topics)
    retention = {
        name: int(kept) / 1000
        for name, about in existing.items()
        if (kept := about.settings.get("retention.ms", "-1")) != "-1"
    }
    found: dict[str, TimeLeft] = {}
    async with subscribed_reader(brokers.client_options, topics) as consumer:
        for tp, (first, _) in (await _unread(consumer, read)).items():
            if tp.topic not in retention:
                continue
            consumer.seek(tp, first)
            fetched = await consumer.getmany(tp, timeout_ms=_FETCH_MS, max_records=1)
            for record in fetched.get(tp, ()):
                kept_s = retention[tp.topic]
                left = TimeLeft(record.timestamp / 1000 + kept_s - time.time(), kept_s)
                found[tp.topic] = min(left, found.get(tp.topic, left))
    return found


async def _unread(consumer: AIOKafkaConsumer, read: Read) -> dict[TopicPartition, tuple[int, int]]:
    """By partition with unread offsets, the first one and the end of the committed log."""
    tps = list(consumer.assignment())
    begins = await consumer.beginning_offsets(tps)
    ends = await consumer.end_offsets(tps)
    found = {}
    for tp in tps:
        first = max(begins[tp], read.get(tp.topic, {}).get(str(tp.partition), 0))
        if first < ends[tp]:
            found[tp] = (first, ends[tp])
    return found
