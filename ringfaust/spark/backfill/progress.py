"""How far a job has come: a consumer group's offsets, committed with the records they tell of."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NoError,
    NotCoordinatorError,
    NotCoordinatorForGroupError,
)
from aiokafka.structs import OffsetAndMetadata

from ringfaust.app.config import WorkerConfig
from ringfaust.spark.backfill.errors import CannotBackfill, OtherJob

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOLD_CHARS = 1_000
_COORDINATOR_SECONDS = 60.0
_RETRY_SECONDS = 0.1
# NoError is how this client tells of an error that one partition alone has.
_NOT_READY = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NoError,
    NotCoordinatorError,
    NotCoordinatorForGroupError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is written under one name, once."""

    name: str
    group: str
    """The consumer group whose offsets are the progress."""
    marks_topic: str
    """The topic of those offsets; the partition is the slice, the offset the last position done."""
    fingerprint: str
    """Of all that decides which rows there are and in which order."""
    about: str
    """The same for people."""

    @property
    def metadata(self) -> str:
        """What is kept with each offset."""
        return json.dumps({"fingerprint": self.fingerprint, "about": self.about[:_TOLD_CHARS]})

    def transactional_id(self, part: int) -> str:
        """Of a slice: whoever starts a producer with it fences an earlier one."""
        return f"{self.group}/{part}"


def job_name(given: str | None, default: str) -> str:
    """The name of a job.

    Raises:
        CannotBackfill: Kafka would not take it as part of a group's name.
    """
    if given is not None and not _NAME.fullmatch(given):
        raise CannotBackfill(
            "--name", f"{given[:100]!r}: letters, digits and . _ - would be right, 1 to 100 of them"
        )
    return given or default


async def read_marks(
    worker: WorkerConfig, job: Job, slices: Collection[int], *, verify: bool = False
) -> dict[int, int]:
    """The last position done of each slice that has begun.

    Raises:
        OtherJob: `verify`, and the job was begun with other rows.
    """
    wanted = [TopicPartition(job.marks_topic, part) for part in slices]
    admin = AIOKafkaAdminClient(**worker.client_options())
    await admin.start()
    try:
        async with asyncio.timeout(_COORDINATOR_SECONDS):
            found = await _offsets(admin, job.group, wanted)
    finally:
        await admin.close()
    begun = {tp.partition: mark for tp, mark in found.items() if mark.offset >= 0}
    if verify:
        for mark in begun.values():
            _verify(job, mark.metadata)
    return {part: mark.offset for part, mark in begun.items()}


async def _offsets(
    admin: AIOKafkaAdminClient, group: str, wanted: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The group's offsets, all of those wanted; -1 where there is none.

    A coordinator that is not ready gives fewer, and this client passes that on as an answer. To
    take it for "nothing is written yet" would write all of it twice.
    """
    while True:
        with suppress(*_NOT_READY):
            found: dict[
                TopicPartition, OffsetAndMetadata
            ] = await admin.list_consumer_group_offsets(group, partitions=list(wanted))
            if found.keys() >= set(wanted):
                return found
        await asyncio.sleep(_RETRY_SECONDS)


def _verify(job: Job, metadata: str) -> None:
    try:
        begun: Mapping[str, str] = json.loads(metadata)
        same = begun["fingerprint"] == job.fingerprint
        about = begun["about"]
    except (ValueError, KeyError, TypeError):
        same, about = False, f"something that is no job of ours ({metadata[:80]!r})"
    if not same:
        raise OtherJob(job.name, about, job.about)
