"""Whose state a local store holds (R111).

A store is a cache of one partition of one changelog. It names the cluster, the application, the
partition and the changelog that it belongs to, so a worker never serves state from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiokafka import TopicPartition
from faust.types import TP

from ringfaust.core import limits
from ringfaust.kafka.names import topic_name
from ringfaust.kafka.reader import read_to_end
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import copied_keys, copied_to
from ringfaust.protocol.stored_rows import POSITIONS_KEY, read_json, read_positions, write_json
from ringfaust.transactional.clients import connected
from ringfaust.worker.interfaces import ChangelogConsumer, PartitionStore, StateLost, StopsWorker

IDENTITY_KEY = b"\0identity"
"""Key of the row that names what a store belongs to. It is not in the changelog."""

_LOOK_BACK = 1_000
"""How far before its offset a store without an identity is compared with the changelog."""


class ForeignState(StopsWorker):
    """The data directory belongs to another application. Nothing was changed.

    What to do: give each application its own `data_dir`.
    """


class StoreIdentity(NamedTuple):
    """What a store belongs to."""

    cluster: str
    """The id of the Kafka cluster."""
    application: str
    partition: int
    changelog: str
    """The id of the changelog topic; empty if the brokers are too old to know it."""


def read_identity(store: PartitionStore) -> StoreIdentity | None:
    """What the store says it belongs to.

    None for a new store, and for one that commit 6d179b1 or an earlier one has written.
    """
    raw = store.get(IDENTITY_KEY)
    return StoreIdentity(*read_json(raw, "identity")) if raw else None


def write_identity(store: PartitionStore, identity: StoreIdentity) -> None:
    """Store what the store belongs to."""
    store.apply([(IDENTITY_KEY, write_json(list(identity)))], *store.applied)


def why_unusable(mine: StoreIdentity, found: StoreIdentity, path: object) -> str:
    """Why a store cannot be used, for the log; empty if it can be.

    Args:
        mine: what this worker needs.
        found: what the store says.
        path: of the store.

    Raises:
        ForeignState: it belongs to another application.
    """
    if found.application != mine.application:
        raise _foreign(path, found.application, mine)
    if found.cluster != mine.cluster:
        return f"it belongs to cluster {found.cluster}, and this is cluster {mine.cluster}"
    if found.partition != mine.partition:
        return f"it is the state of partition {found.partition}"
    if found.changelog and mine.changelog and found.changelog != mine.changelog:
        return "the changelog topic was deleted and created again since then"
    return ""


async def why_not_adopted(
    mine: StoreIdentity, store: PartitionStore, changelog: TP, consumer: ChangelogConsumer
) -> str:
    """Why a store without an identity cannot be used, for the log; empty if it can be.

    It is ours if it has read our control topic, and if the last positions that it has applied are
    those that the changelog has before the store's offset.

    Args:
        mine: what this worker needs.
        store: of commit 6d179b1 or an earlier one.
        changelog: the partition of the changelog.
        consumer: reads it; started and stopped here.

    Raises:
        ForeignState: it has read the control topic of another application.
    """
    stored = store.get(POSITIONS_KEY)
    control = topic_name(mine.application, Role.CONTROL)
    suffix = control.removeprefix(mine.application)
    topics = read_positions(stored)
    if topics and control not in topics:
        other = next((name for name in topics if name.endswith(suffix)), suffix)
        raise _foreign(store.path, other.removesuffix(suffix), mine)
    if stored is not None:
        async with connected(consumer):
            if stored == await _positions_before(store.applied[0], changelog, consumer):
                return ""
    return "it does not say what it belongs to, and does not match the changelog"


async def last_positions(changelog: TP, consumer: ChangelogConsumer) -> Mapping[str, int]:
    """The positions that the changelog ends with, by topic.

    Args:
        changelog: a partition of the changelog.
        consumer: reads it; started and stopped here.
    """
    async with connected(consumer):
        return read_positions(await _positions_before(None, changelog, consumer))


async def _positions_before(
    offset: int | None, changelog: TP, consumer: ChangelogConsumer
) -> bytes | None:
    """The last positions that were written to the changelog before an offset; None: its end.

    Before an offset, only a few records are searched: each transaction ends with its positions.
    Before the end all are, if need be.
    """
    tp = TopicPartition(*changelog)
    consumer.assign([tp])
    begin = (await consumer.beginning_offsets([tp]))[tp]
    end = (await consumer.end_offsets([tp]))[tp]
    if offset is not None and offset > end:
        return None
    until = end if offset is None else offset
    look_back = _LOOK_BACK
    while True:
        start = max(begin, until - look_back)
        consumer.seek(tp, start)
        found = None
        async for records in read_to_end(consumer, {tp: until}):
            for record in records:
                if record.key == POSITIONS_KEY and record.offset < until:
                    found = record.value
        if found is not None or offset is not None or start == begin:
            return found
        look_back *= 10


async def copied_before(
    key: str, changelogs: Mapping[TP, TP], consumer: ChangelogConsumer
) -> int | None:
    """Up to where a partition was copied to the hop topic, as far as the rings know.

    Args:
        key: what `copied_key` calls the partition.
        changelogs: for each partition of the hop topic, the changelog with the state of its reader.
        consumer: reads both; started and stopped here.

    Returns:
        None: it was not copied.

    Raises:
        StateLost: one of them keeps no more positions (R120), and may have had its records.
    """
    found: list[int] = []
    async with connected(consumer):
        for hop, changelog in changelogs.items():
            stored = read_positions(await _positions_before(None, changelog, consumer))
            known = [stored[key]] if key in stored else []
            known += await _waiting_in_hop(key, hop, stored.get(hop.topic, 0), consumer)
            if not known and len(copied_keys(stored)) >= limits.COPIED_PARTITIONS:
                raise StateLost(
                    f"{key.rpartition('/')[0]}: the group has no offset, and partition "
                    f"{hop.partition} does not know up to where it was copied: it keeps the "
                    f"positions of {limits.COPIED_PARTITIONS:,} repartitioned partitions. Stop all "
                    "workers, and set the group's offset (kafka-consumer-groups.sh "
                    "--reset-offsets): to the earliest if nothing was copied from it yet"
                )
            found += known
    return max(found, default=None)


async def _waiting_in_hop(
    key: str, hop: TP, position: int, consumer: ChangelogConsumer
) -> list[int]:
    """The positions that are in the hop topic and not yet in the state of its reader."""
    tp = TopicPartition(*hop)
    consumer.assign([tp])
    begin = (await consumer.beginning_offsets([tp]))[tp]
    end = (await consumer.end_offsets([tp]))[tp]
    consumer.seek(tp, max(begin, min(position, end)))
    return [
        copied[1]
        async for records in read_to_end(consumer, {tp: end})
        for record in records
        if (copied := copied_to(record)) and copied[0] == key
    ]


def _foreign(path: object, other: str, mine: StoreIdentity) -> ForeignState:
    return ForeignState(
        f"{path} holds state of application {other!r}, but this worker runs application "
        f"{mine.application!r}. Nothing was changed. Give each application a data_dir of its own; "
        f"the state of {mine.application!r} is rebuilt there from its changelog"
    )
