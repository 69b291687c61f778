"""Where a task starts to read its input topics.

Positions are stored with the state, in the changelog. The group's offsets, committed in the same
transactions, serve monitoring. Here they also reveal that state has been lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP

from ringfaust.worker.changelog import StateLost
from ringfaust.worker.interfaces import Bounds

log = logging.getLogger(__name__)


async def read_bounds(client: Mapping[str, Any], tps: Iterable[TP]) -> dict[TP, Bounds]:
    """The bounds of each partition; `client`: options of any Kafka client."""
    wanted = [TopicPartition(*tp) for tp in tps]
    consumer = AIOKafkaConsumer(**client, isolation_level="read_committed")
    await consumer.start()
    try:
        begins = await consumer.beginning_offsets(wanted)
        ends = await consumer.end_offsets(wanted)
    finally:
        await consumer.stop()
    return {TP(tp.topic, tp.partition): Bounds(begins[tp], ends[tp]) for tp in wanted}


def start_positions(
    number: int,
    stored: Mapping[str, int],
    bounds: Mapping[str, Bounds],
    committed: Mapping[str, int],
) -> dict[str, int]:
    """Where to start to read each input topic of a partition.

    Args:
        number: of the partition.
        stored: positions that came with the state; empty for a new partition.
        bounds: by topic, the log that exists.
        committed: the group's offsets by topic.

    Raises:
        StateLost: state or input is missing.
    """
    positions = {}
    for topic, (begin, end) in bounds.items():
        position = stored.get(topic)
        group = committed.get(topic)
        is_behind_group = not stored if position is None else group is not None and group > position
        if group is not None and is_behind_group:
            raise StateLost(
                f"{topic}, partition {number}: the group has committed offset {group}, but the "
                f"state in the changelog ends at {position or 0}. Either the changelog was deleted "
                "or lost its end, and with it the contents of the rings, or somebody moved the "
                "group's offsets. Restore the changelog; or delete the group's offsets "
                "(kafka-consumer-groups.sh --delete --group NAME) to continue with what is left"
            )
        if position is None:
            position = begin if group is None else group
        if position > end:
            raise StateLost(
                f"{topic}, partition {number}, ends at offset {end}, but was read up to {position}:"
                " it was recreated or lost its end. Give a recreated topic another name"
            )
        if position < begin:
            log.warning(
                "%s, partition %d: records %d to %d were deleted before they were read; the "
                "topic's retention is shorter than the time that no worker ran",
                topic, number, position, begin - 1,
            )  # fmt: skip
        positions[topic] = max(position, begin)
    return positions
