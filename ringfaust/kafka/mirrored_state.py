"""State that was mirrored from another cluster: how it is recognized, and taken into use (ADR 57).

A mirror copies records, but not their offsets, and creates topics with ids of their own. So the
positions in a mirrored changelog mean nothing where it is now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.kafka.reader import committed_reader, read_to_end
from ringfaust.kafka.topic_ids import topic_ids
from ringfaust.kafka.transactions import commit_changelog
from ringfaust.protocol.stored_rows import (
    FEEDS_KEY,
    INPUTS_KEY,
    OWNER_KEY,
    POSITIONS_KEY,
    InputState,
    read_inputs,
    read_positions,
    write_inputs,
    write_positions,
)

_BESIDE = frozenset({FEEDS_KEY, INPUTS_KEY, OWNER_KEY})
"""Rows that may follow the positions with which a transaction ends, or come without any."""


class StateEnd(NamedTuple):
    """What the changelog of a partition ends with."""

    positions: Mapping[str, int]
    """By topic, up to where the state has read it; empty: there is no state."""
    inputs: Mapping[str, InputState]
    torn: Mapping[bytes, bytes | None]
    """Rows of a transaction whose end was not mirrored, with their values before it."""
    is_of_job: bool
    """Whether a ring job has written last: then nothing tells a torn transaction."""

    def is_moved(self, ids: Mapping[str, str]) -> bool:
        """Whether none of the topics that it has read is here; `ids`: of topics, as they are here.

        In the cluster of its own, no more than some of its topics were created again.
        """
        known = {topic: each.topic_id for topic, each in self.inputs.items() if each.topic_id}
        return bool(known) and all(ids.get(name) not in ("", was) for name, was in known.items())


async def state_ends(
    client: Mapping[str, Any], changelog: str, partitions: Collection[int]
) -> dict[int, StateEnd]:
    """What the changelogs of partitions end with. Reads all of them.

    Args:
        client: options of any Kafka client.
        changelog: name of the topic.
        partitions: which ones.

    Raises:
        KafkaError: a request failed.
    """
    async with committed_reader(client) as consumer:
        return {
            number: await _state_end(consumer, TopicPartition(changelog, number))
            for number in partitions
        }


class MovedStates(NamedTuple):
    """The state of all partitions, and which of it was written in another cluster."""

    ends: Mapping[int, StateEnd]
    moved: Mapping[int, StateEnd]
    topics: Collection[str]
    """What they have read."""


async def moved_states(
    client: Mapping[str, Any], changelog: str, partitions: Collection[int]
) -> MovedStates:
    """Which states were written in another cluster. See `state_ends` for arguments and errors."""
    ends = await state_ends(client, changelog, partitions)
    read = {topic for end in ends.values() for topic in end.inputs}
    ids = (await topic_ids(client, read)).topics if read else {}
    moved = {number: end for number, end in ends.items() if end.is_moved(ids)}
    return MovedStates(ends, moved, read)


async def _state_end(consumer: AIOKafkaConsumer, tp: TopicPartition) -> StateEnd:
    last: dict[bytes, bytes | None] = {}
    behind: set[bytes] = set()
    ended = -1
    has_owner = is_of_job = False
    async for record in _records(consumer, tp):
        if record.key == POSITIONS_KEY:
            behind.clear()
            ended, is_of_job, has_owner = record.offset, has_owner, False
        elif record.key == OWNER_KEY:
            has_owner = True
        elif record.key not in _BESIDE:
            behind.add(record.key)
        if record.key in (POSITIONS_KEY, INPUTS_KEY):
            last[record.key] = record.value
    torn: dict[bytes, bytes | None] = dict.fromkeys(behind)
    if torn:
        async for record in _records(consumer, tp):
            if record.offset < ended and record.key in torn:
                torn[record.key] = record.value
    positions = read_positions(last.get(POSITIONS_KEY))
    return StateEnd(positions, read_inputs(last.get(INPUTS_KEY)), torn, is_of_job or has_owner)


async def _records(consumer: AIOKafkaConsumer, tp: TopicPartition) -> Any:
    consumer.assign([tp])
    begin = (await consumer.beginning_offsets([tp]))[tp]
    end = (await consumer.end_offsets([tp]))[tp]
    consumer.seek(tp, begin)
    async for records in read_to_end(consumer, {tp: end}):
        for record in records:
            if record.offset < end:
                yield record


async def begin_at(
    client: Mapping[str, Any],
    application: str,
    changelog: str,
    number: int,
    *,
    end: StateEnd,
    positions: Mapping[str, int],
    ids: Mapping[str, str],
) -> None:
    """Write where a partition with mirrored state begins to read, in one transaction.

    Args:
        client: options of any Kafka client.
        application: names the transactional ids; a worker that has the partition is shut out.
        changelog: name of the topic.
        number: of the partition.
        end: what its changelog ends with.
        positions: where to begin, by topic. No other position is kept: those mean nothing here.
        ids: by topic, its id here, of those that are read directly.

    Raises:
        KafkaError: the brokers failed, or a worker has opened the partition meanwhile.
    """
    gaps = {topic: found.gaps for topic, found in end.inputs.items()}
    inputs = {topic: InputState(each, gaps.get(topic, 0)) for topic, each in ids.items()}
    rows = [
        *end.torn.items(),
        (INPUTS_KEY, write_inputs(inputs)),
        (POSITIONS_KEY, write_positions(positions)),
    ]
    await commit_changelog(client, application, changelog, number, rows)
