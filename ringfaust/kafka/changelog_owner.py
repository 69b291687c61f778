"""Who has the rings of an application: its workers or a ring job (ADR 53).

The changelog says so. While a ring job has the rings of a partition, the last row of the
partition's changelog is `OWNER_KEY`. It is written with the worker's own transactional id, so a
worker that still has the partition is shut out, and one that opens it later finds the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from ringfaust.kafka.reader import committed_reader, last_record
from ringfaust.kafka.transactions import commit_changelog
from ringfaust.protocol.stored_rows import OWNER_KEY, JobOwner, read_owner, write_owner

_AT_ONCE = 16
_SEEN_S = 60.0
"""How long to wait until readers see what was written."""
_POLL_S = 0.02


class ChangelogEnd(NamedTuple):
    """What the end of a partition's changelog says about the partition's rings."""

    job: JobOwner | None
    """The job that has them; None: no job does."""
    has_rows: bool
    """Whether a worker has written rows, and was the last to write."""


async def changelog_ends(
    client: Mapping[str, Any], changelog: str, partitions: int
) -> list[ChangelogEnd]:
    """By partition, what the changelog says. Only its last records are read.

    Args:
        client: options of any Kafka client.
        changelog: name of the topic.
        partitions: their number.

    Raises:
        KafkaError: a request failed.
    """
    async with committed_reader(client) as consumer:
        tps = [TopicPartition(changelog, number) for number in range(partitions)]
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        found = []
        for tp in tps:
            consumer.assign([tp])
            last = await last_record(consumer, tp, begins[tp], ends[tp])
            job = read_owner(last.value) if last is not None and last.key == OWNER_KEY else None
            while job is None and last is not None and last.key == OWNER_KEY:
                # A job has given the rings back: what a worker wrote before it is there again.
                last = await last_record(consumer, tp, begins[tp], last.offset)
            found.append(ChangelogEnd(job, job is None and last is not None))
        return found


async def write_owners(
    client: Mapping[str, Any],
    application: str,
    changelog: str,
    partitions: Collection[int],
    owner: JobOwner | None,
) -> None:
    """Write who has the rings of partitions, and shut out a worker that still has them.

    From then on `changelog_ends` says so, too.

    Args:
        client: options of any Kafka client.
        application: names the transactional ids.
        changelog: name of the topic.
        partitions: which ones.
        owner: the job; None: workers may have them again.

    Raises:
        KafkaError: a worker has opened the partition meanwhile, or the brokers failed, or they do
            not show the rows to readers within a minute.
    """
    row = (OWNER_KEY, None if owner is None else write_owner(owner))
    numbers = sorted(partitions)
    for first in range(0, len(numbers), _AT_ONCE):
        some = numbers[first : first + _AT_ONCE]
        ends = await asyncio.gather(
            *(commit_changelog(client, application, changelog, each, [row]) for each in some)
        )
        tps = [TopicPartition(changelog, each) for each in some]
        await _until_seen(client, dict(zip(tps, ends, strict=True)))


async def _until_seen(client: Mapping[str, Any], left: Mapping[TopicPartition, int]) -> None:
    """Wait for the markers of transactions, which the brokers write after their answer."""
    until_s = time.monotonic() + _SEEN_S
    async with committed_reader(client) as consumer:
        while True:
            seen = await consumer.end_offsets([*left])
            if not (left := {tp: end for tp, end in left.items() if seen[tp] < end}):
                return
            if time.monotonic() > until_s:
                raise KafkaTimeoutError(f"a transaction is open for too long in {[*left]}")
            await asyncio.sleep(_POLL_S)
