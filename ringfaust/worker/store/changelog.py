"""Open a partition's store and apply the committed changelog to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP

from ringfaust.kafka.reader import read_to_end
from ringfaust.protocol.stored_rows import INPUTS_KEY, OWNER_KEY, JobOwner, read_inputs, read_owner
from ringfaust.times import time_text
from ringfaust.transactional.clients import connected
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import PartitionStore, StateLost, StopsWorker
from ringfaust.worker.store.identity import (
    StoreIdentity,
    read_identity,
    why_not_adopted,
    why_unusable,
    write_identity,
)
from ringfaust.worker.store.rocks import StoreDamaged

log = logging.getLogger(__name__)


class Pace(NamedTuple):
    """How a changelog is replayed."""

    records: int = 20_000
    """Most records that are applied at a time."""
    rests: bool = False
    """Whether it rests after some records for as long as it took to apply them."""


OWN_PACE = Pace()
"""For a partition that is going to be served."""
STANDBY_PACE = Pace(1_000, rests=True)
"""For a standby, which leaves at least half of the time to the worker's own partitions."""


_STANDBYS_FETCH_BYTES = 4 * 1024 * 1024
_STANDBY_FETCH_BYTES = 256 * 1024
"""What the Kafka client holds for each standby, at most, unless a record is larger."""


class OwnedByJob(StopsWorker):
    """A ring job on Spark has the rings (ADR 53). Nothing was changed.

    What to do: stop the job, and hand its rings over with `ringfaust spark move-to-worker`.
    """

    def __init__(self, application: str, owner: JobOwner) -> None:
        super().__init__(
            f"the rings of {application} belong to a ring job on Spark with the checkpoint "
            f"{owner.checkpoint}, since {time_text(owner.since_ms)}. Stop the job, and hand them "
            f"over with `ringfaust spark move-to-worker --checkpoint {owner.checkpoint}`; then "
            "start the worker again"
        )


def changelog_consumer(client: Mapping[str, Any]) -> AIOKafkaConsumer:
    """A consumer that replays a changelog; `client`: options of any Kafka client."""
    return AIOKafkaConsumer(
        **client,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )


def standby_consumer(client: Mapping[str, Any]) -> AIOKafkaConsumer:
    """A consumer that follows changelogs for all standbys; `client`: options of any client."""
    return AIOKafkaConsumer(
        **client,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_bytes=_STANDBYS_FETCH_BYTES,
        max_partition_fetch_bytes=_STANDBY_FETCH_BYTES,
    )


async def open_store(
    path: Path,
    changelog: TP,
    context: WorkerContext,
    pace: Pace = OWN_PACE,
    opened: PartitionStore | None = None,
) -> PartitionStore:
    """Open the store of a partition, up to date with its changelog.

    A store that is out of date or damaged is rebuilt, and so is state that belongs elsewhere
    (R111).

    Args:
        path: of the store.
        changelog: the partition of the changelog.
        context: what the tasks of the worker share.
        pace: how to replay the changelog.
        opened: the store, if it is open. It is closed if this fails.

    Raises:
        ForeignState: the directory belongs to another application.
        StateLost: the changelog lacks its beginning, or records that the store has; or it alone was
            deleted and created again.
        OwnedByJob: a ring job has the rings.
    """
    store = await _open_own(path, changelog, context, opened)
    try:
        if await _replay_or_close(store, changelog, context, pace):
            return _refuse_owned(store, context)
        log.warning("partition %d: %s is out of date; rebuilding it", changelog.partition, path)
        store.wipe()
    except StoreDamaged as error:
        store.set_aside(f"it is damaged ({error.reason})")
    store = await _open_own(path, changelog, context)
    await _replay_or_close(store, changelog, context, pace)
    return _refuse_owned(store, context)


def _refuse_owned(store: PartitionStore, context: WorkerContext) -> PartitionStore:
    """The store, unless a ring job has the rings."""
    owner = read_owner(store.get(OWNER_KEY))
    if owner is None:
        return store
    store.close()
    raise OwnedByJob(context.application, owner)


async def _open_own(
    path: Path, changelog: TP, context: WorkerContext, opened: PartitionStore | None = None
) -> PartitionStore:
    """Open the store, if it is this partition's own, or else an empty one."""
    try:
        cluster, ids = await context.topic_ids([changelog.topic])
    except BaseException:
        if opened is not None:
            opened.close()
        raise
    topic_id = ids.get(changelog.topic, "")
    mine = StoreIdentity(cluster, context.application, changelog.partition, topic_id)
    store, found = opened or context.open_store(path), None
    try:
        found = read_identity(store)
        if found is not None:
            why = why_unusable(mine, found, path)
            if found.changelog != mine.changelog:
                await _refuse_lost(changelog.topic, store, context)
        elif store.applied[0]:
            why = await why_not_adopted(mine, store, changelog, context.open_changelog())
        else:
            why = ""
    except StoreDamaged as error:
        why = f"it is damaged ({error.reason})"
    except BaseException:
        store.close()
        raise
    if why:
        store.set_aside(why)
        found, store = None, context.open_store(path)
    if found != mine:
        write_identity(store, mine)
    return store


async def _refuse_lost(changelog: str, store: PartitionStore, context: WorkerContext) -> None:
    """Refuse a new changelog if the store has read input topics that are still the same.

    Only the changelog was deleted then. A worker that ran meanwhile may have written to the new
    one, but it does not have everything, so the store is the only copy of what the rings hold.

    Raises:
        StateLost: that is so.
    """
    read = read_inputs(store.get(INPUTS_KEY))
    ids = (await context.topic_ids(read.keys())).topics
    for topic, (topic_id, _) in read.items():
        if topic_id and ids.get(topic) == topic_id:
            raise StateLost(
                f"{changelog} was deleted and created again, but not {topic}, which "
                f"{store.path} has read: the directory may have the only copy of the rings. "
                "Nothing was changed. Restore the changelog; or, to continue with what the new "
                "one has, move the directory away on all workers and delete the group's offsets "
                "(kafka-consumer-groups.sh --delete --group NAME)"
            )


async def _replay_or_close(
    store: PartitionStore, changelog: TP, context: WorkerContext, pace: Pace
) -> bool:
    """Replay; close the store if that fails. False: it must be rebuilt."""
    try:
        return await replay(store, changelog, context, pace)
    except BaseException:
        store.close()
        raise


async def replay(store: PartitionStore, changelog: TP, context: WorkerContext, pace: Pace) -> bool:
    """Apply what was committed to the changelog after the store's offset.

    Args:
        store: to be brought up to date.
        changelog: the partition of the changelog.
        context: what the tasks of the worker share.
        pace: how many records are applied at a time, and whether it rests.

    Returns:
        False if the store is so old that it may have missed a tombstone: it must be rebuilt from
        nothing.

    Raises:
        StateLost: the changelog lacks its beginning, or records that the store has.
    """
    tp, now_ms, replaying = TopicPartition(*changelog), context.clock.wall_ms(), context.replaying
    async with connected(context.open_changelog()) as consumer:
        consumer.assign([tp])
        begin = (await consumer.beginning_offsets([tp]))[tp]
        end = (await consumer.end_offsets([tp]))[tp]
        start, applied_ms = store.applied
        _check_bounds(changelog, store, start, begin, end)
        # The marker of the last applied transaction follows it, and is no change.
        if start and end - start > 1 and now_ms - applied_ms > context.tombstone_ms:
            return False
        replaying[changelog.partition] = end - start
        consumer.seek(tp, start)
        applied = 0
        try:
            async for records in read_to_end(consumer, {tp: end}, max_records=pace.records):
                began_s = time.monotonic()
                apply_records(store, records, applied_ms)
                applied += len(records)
                replaying[changelog.partition] = max(end - records[-1].offset - 1, 0)
                if pace.rests:
                    await asyncio.sleep(time.monotonic() - began_s)
        finally:
            replaying.pop(changelog.partition, None)
        store.apply([], max(end, store.applied[0]), now_ms)
        log.info("partition %d: %d records of its changelog applied", changelog.partition, applied)
        return True


def apply_records(store: PartitionStore, records: Sequence[Any], now_ms: int) -> None:
    """Apply records of the changelog.

    Args:
        store: has everything before them.
        records: at least one.
        now_ms: when the changelog ended where the store did.
    """
    writes = [(cast(bytes, record.key), record.value) for record in records]
    store.apply(writes, records[-1].offset + 1, now_ms)


def check_end(name: str, store: PartitionStore, begin: int) -> None:
    """Check that the changelog still has what the store has.

    Args:
        name: of the partition.
        store: not yet with the rows of the last commit.
        begin: the changelog offset of the first of them.

    Raises:
        StateLost: the changelog has lost its end, or was created again.
    """
    applied, _ = store.applied
    if begin < applied:
        raise StateLost(
            f"{name}: the changelog had its rows up to offset {applied}, and has "
            f"just got new ones at {begin}: it has lost its end, or was deleted and created "
            f"again. {store.path} may have the only copy of the rings, so it is left as it is. "
            "Restore the changelog"
        )


def _check_bounds(changelog: TP, store: PartitionStore, start: int, begin: int, end: int) -> None:
    name = f"{changelog.topic}, partition {changelog.partition},"
    if start > end:
        raise StateLost(
            f"{name} ends at offset {end}, but {store.path} has applied it up to {start}: the "
            "topic has lost its end. To continue with what the topic has, delete the directory"
        )
    if start < begin:
        raise StateLost(
            f"{name} begins at offset {begin} and no longer at its first record, so the rings "
            "cannot be rebuilt from it. Use the data directory of the worker that last had the "
            "partition: it is newer"
        )
