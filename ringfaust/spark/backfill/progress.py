"""The progress of a job: offsets of a consumer group, committed together with the records."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ringfaust.config import WorkerConfig
from ringfaust.kafka.offsets import group_offsets
from ringfaust.spark.backfill.errors import CannotBackfill, OtherJob

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ABOUT_CHARS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A set of rows that is written once, under one name."""

    name: str
    group: str
    """The consumer group whose offsets are the progress."""
    progress_topic: str
    """The topic of those offsets: the partition is the slice, the offset its last position done."""
    fingerprint: str
    """Of everything that decides which rows there are and in which order."""
    about: str
    """A description of the rows."""

    @property
    def metadata(self) -> str:
        """The text that is committed with each offset."""
        return json.dumps({"fingerprint": self.fingerprint, "about": self.about[:_ABOUT_CHARS]})


def job_name(given: str | None, default: str) -> str:
    """Check the name of a job.

    Raises:
        CannotBackfill: it cannot be part of a consumer group's name.
    """
    if given is not None and not _NAME.fullmatch(given):
        raise CannotBackfill("--name", f"{given[:100]!r}: use 1 to 100 letters, digits, and . _ -")
    return given or default


async def read_progress(
    worker: WorkerConfig, job: Job, slices: Collection[int], *, verify: bool = False
) -> dict[int, int]:
    """The last position done, of each slice with progress.

    Raises:
        OtherJob: `verify` is set and the job was started with other rows.
    """
    wanted = [(job.progress_topic, part) for part in slices]
    begun = await group_offsets(worker.client_options(), job.group, wanted)
    if verify:
        for committed in begun.values():
            _check_fingerprint(job, committed.metadata)
    return {part: committed.offset for (_, part), committed in begun.items()}


def _check_fingerprint(job: Job, metadata: str) -> None:
    try:
        begun: Mapping[str, str] = json.loads(metadata)
        same = begun["fingerprint"] == job.fingerprint
        about = begun["about"]
    except (ValueError, KeyError, TypeError):
        same, about = False, f"something that is not a ringfaust job ({metadata[:80]!r})"
    if not same:
        raise OtherJob(job.name, about, job.about)
