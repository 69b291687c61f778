"""How far a job has come: a consumer group's offsets, committed with the records they tell of."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ringfaust.config import WorkerConfig
from ringfaust.kafka.names import slice_transactional_id
from ringfaust.kafka.offsets import group_offsets
from ringfaust.spark.backfill.errors import CannotBackfill, OtherJob

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOLD_CHARS = 1_000


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
        return slice_transactional_id(self.group, part)


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
    wanted = [(job.marks_topic, part) for part in slices]
    begun = await group_offsets(worker.client_options(), job.group, wanted)
    if verify:
        for mark in begun.values():
            _verify(job, mark.metadata)
    return {part: mark.offset for (_, part), mark in begun.items()}


def _verify(job: Job, metadata: str) -> None:
    try:
        begun: Mapping[str, str] = json.loads(metadata)
        same = begun["fingerprint"] == job.fingerprint
        about = begun["about"]
    except (ValueError, KeyError, TypeError):
        same, about = False, f"something that is no job of ours ({metadata[:80]!r})"
    if not same:
        raise OtherJob(job.name, about, job.about)
