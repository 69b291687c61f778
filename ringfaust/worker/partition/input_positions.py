"""Where a task starts to read its input topics, and what is missing there (R111, R112).

Positions are stored with the state, in the changelog. The group's offsets, committed in the same
transactions, serve monitoring. Here they also reveal that state has been lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import StaleMetadata, UnknownTopicOrPartitionError
from faust.types import TP

from ringfaust.kafka.offsets import CommittedOffset
from ringfaust.protocol.gaps import Gap, GapCause
from ringfaust.worker.interfaces import Bounds, ReadTopicIds, StateLost, StopsWorker

log = logging.getLogger(__name__)


class GapFound(StopsWorker):
    """Records are missing, and the worker was told to stop then (`on_gap: stop`, R112).

    What to do: restore the records; or set `on_gap: continue` to continue without them.
    """


class Starts(NamedTuple):
    """Where to start to read each input topic."""

    positions: Mapping[str, int]
    gaps: list[Gap]


async def read_bounds(
    consumer: AIOKafkaConsumer, ids_of: ReadTopicIds, tps: Iterable[TP]
) -> dict[TP, Bounds]:
    """The bounds of each partition, and the id of its topic.

    Args:
        consumer: a client that is connected and reads what is committed.
        ids_of: asks for the ids of topics.
        tps: the partitions.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        StaleMetadata: a topic was created again meanwhile; ask again.
    """
    wanted = [TopicPartition(*tp) for tp in tps]
    names = {tp.topic for tp in wanted}
    ids = (await ids_of(names)).topics
    if missing := sorted(names - ids.keys()):
        raise UnknownTopicOrPartitionError(f"topic {missing[0]} does not exist")
    begins, ends = await asyncio.gather(
        consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    )
    if (await ids_of(names)).topics != ids:
        raise StaleMetadata("a topic was created again a moment ago")
    return {
        TP(tp.topic, tp.partition): Bounds(begins[tp], ends[tp], ids[tp.topic]) for tp in wanted
    }


def log_gaps(gaps: Iterable[Gap], *, stop: bool) -> None:
    """Log what is missing (R112).

    Raises:
        GapFound: something is missing, and `stop` is set.
    """
    for gap in gaps:
        if stop:
            raise GapFound(
                f"{gap}, and were not processed. Nothing was changed (on_gap: stop). Restore the "
                "records; or set on_gap: continue in worker.yaml to continue without them"
            )
        log.warning("%s, and were not processed", gap)


def start_positions(
    number: int,
    stored: Mapping[str, int],
    ids: Mapping[str, str],
    bounds: Mapping[str, Bounds],
    committed: Mapping[str, CommittedOffset],
) -> Starts:
    """Where to start to read each input topic of a partition.

    Args:
        number: of the partition.
        stored: positions that came with the state; empty for a new partition.
        ids: ids of the topics in which they are positions, as far as they are known.
        bounds: by topic, the log that exists.
        committed: the group's offsets by topic.

    Raises:
        StateLost: state or input is missing.
    """
    positions: dict[str, int] = {}
    gaps: list[Gap] = []
    for topic, (begin, end, topic_id) in sorted(bounds.items()):
        group = committed.get(topic)
        position, known_id = stored.get(topic), ids.get(topic, "")
        if group is not None and group.is_repartitioned:
            # Since then the topic was repartitioned, which moved only the group's offset.
            position, known_id = group.offset, group.topic_id
        if known_id and topic_id and known_id != topic_id:
            # Its offsets start at 0 again, and the group's offset also belongs to the old topic.
            first = position or 0
            gaps.append(Gap(topic, number, first, None, GapCause.RECREATED))
            position = 0
        else:
            _check_group(number, topic, position, not stored, group)
            if position is None:
                position = begin if group is None else group.offset
        if position > end:
            if not (known_id and topic_id):
                raise StateLost(
                    f"{topic}, partition {number}, ends at offset {end}, but was read up to "
                    f"{position}: it was recreated or lost its end, and its id is not known. Give "
                    "a recreated topic another name"
                )
            gaps.append(Gap(topic, number, end, position - 1, GapCause.TRUNCATED))
            position = end
        elif position < begin:
            gaps.append(Gap(topic, number, position, begin - 1, GapCause.DELETED))
            position = begin
        positions[topic] = position
    return Starts(positions, gaps)


def check_changelog(number: int, topic_id: str, committed: Mapping[str, CommittedOffset]) -> None:
    """Check that the group's offsets were committed with this changelog, not an earlier one (R111).

    A worker may have written to the new one before it noticed; without a store, only this tells.

    Args:
        number: of the partition.
        topic_id: of the changelog; empty if the brokers are too old to know it.
        committed: the group's offsets by topic.

    Raises:
        StateLost: they were not.
    """
    for topic, group in committed.items():
        if topic_id and group.changelog_id not in ("", topic_id):
            raise StateLost(
                f"partition {number}: the changelog was deleted and created again since the group "
                f"committed offset {group.offset} of {topic}, so it may lack what the rings held. "
                "Nothing was changed. Restore the changelog; then, or to go on with what is there, "
                "delete the group's offsets (kafka-consumer-groups.sh --delete --group NAME)"
            )


def _check_group(
    number: int, topic: str, position: int | None, is_new: bool, group: CommittedOffset | None
) -> None:
    """Check that the group has not read further than the state (a lost changelog).

    Raises:
        StateLost: it has.
    """
    if group is None or (position is None and not is_new):
        return
    if group.offset > (position or 0) or position is None:
        raise StateLost(
            f"{topic}, partition {number}: the group has committed offset {group.offset}, but the "
            f"state in the changelog ends at {position or 0}. Either the changelog was deleted "
            "or lost its end, and with it the contents of the rings, or somebody moved the "
            "group's offsets. Restore the changelog; or delete the group's offsets "
            "(kafka-consumer-groups.sh --delete --group NAME) to continue with what is left"
        )
