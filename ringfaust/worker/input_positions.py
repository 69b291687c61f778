"""Where a partition's input topics stand: what there is to read, and where to go on.

Positions travel with the state, in the changelog. The group's offsets, committed in the same
transactions, are for monitors, and here a witness: they tell when state has gone missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP

from ringfaust.worker.changelog import StateLost

log = logging.getLogger(__name__)


class Bounds(NamedTuple):
    """The committed log of a topic's partition as it is now."""

    begin: int
    end: int


async def read_bounds(client: Mapping[str, Any], tps: Iterable[TP]) -> dict[TP, Bounds]:
    """The bounds of each."""
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
    known: Mapping[str, int],
    bounds: Mapping[str, Bounds],
    committed: Mapping[str, int],
) -> dict[str, int]:
    """Where to read on each input topic of a partition.

    Args:
        number: of the partition.
        known: positions that came with the state; none in a new one.
        bounds: what there is of each topic.
        committed: the group's offsets.

    Raises:
        StateLost: state or input that must be there is not.
    """
    positions = {}
    for topic, (begin, end) in bounds.items():
        at = known.get(topic)
        group = committed.get(topic)
        if group is not None and (group > at if at is not None else not known):
            raise StateLost(
                f"{topic}, partition {number}, was read up to offset {group} by the group's "
                f"offsets, but the state in the changelog only knows of {at or 0}: the changelog "
                "was deleted or lost its end, and with it what the rings held, or somebody moved "
                "the group's offsets. Restore the changelog; or delete the group's offsets "
                "(kafka-consumer-groups.sh --delete --group NAME) to go on from what is left"
            )
        if at is None:
            at = begin if group is None else group
        if at > end:
            raise StateLost(
                f"{topic}, partition {number}, ends at offset {end}, but was read up to {at}: it "
                "was made anew or lost its end. Give a topic that is made anew another name"
            )
        if at < begin:
            log.warning(
                "%s, partition %d: records %d to %d were deleted before they were read; its "
                "retention is too short for the time that no worker ran",
                topic, number, at, begin - 1,
            )  # fmt: skip
        positions[topic] = max(at, begin)
    return positions
