"""A job: its progress, and the counts of its rows.

The progress is offsets of a consumer group, which are committed together with the records. The rows
are counted once, before anything is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.kafka.offsets import group_offsets
from ringfaust.spark.backfill.errors import CannotBackfill, OtherJob

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ABOUT_CHARS = 1_000
_EXAMPLES = 3
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A set of rows that is written once, under one name."""

    name: str
    group: str
    """The consumer group whose offsets are the progress."""
    topic: str
    """The topic that is written. The offset of a partition, or slice, is its last position done."""
    fingerprint: str
    """Of everything that decides which rows there are and in which order."""
    about: str
    """A description of the rows."""

    @property
    def metadata(self) -> str:
        """The text that is committed with each offset."""
        return json.dumps({"fingerprint": self.fingerprint, "about": self.about[:_ABOUT_CHARS]})


def job_name(given: str | None, default: str) -> str:
    """The name of a job, which becomes a part of a consumer group's. Raises CannotBackfill."""
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
    wanted = [(job.topic, part) for part in slices]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProfile:
    """The counts of a job's rows."""

    slices: Mapping[int, tuple[int, str]]
    """By partition: the number of good rows, and the sum of their hashes in any order."""
    bytes: int
    """Size of the keys and values."""
    earliest_ms: int | None
    """The oldest time; None if no row has one."""
    bad: int
    """Number of rows with a fault."""
    examples: tuple[str, ...]
    """Lines of text: each kind of fault with its number, and the first few."""

    @property
    def records(self) -> int:
        """Number of good rows."""
        return sum(count for count, _ in self.slices.values())

    def fingerprint(self, *more: object) -> str:
        """Equal for the same records in the same slices and equal `more`."""
        text = json.dumps([sorted(self.slices.items()), more])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def profile_rows(checked: DataFrame) -> JobProfile:
    """Count checked rows."""
    good = F.col("fault").isNull()
    parts = ("topic", "partition", "key", "value", "headers", "timestamp_ms")
    # As decimals, because the sum of many hashes would overflow a long, which is an error.
    digest = F.xxhash64(*parts).cast("decimal(20,0)")
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(
        F.octet_length("value"), F.lit(0)
    )
    found = (
        checked.groupBy("partition")
        .agg(
            F.count_if(good),
            F.coalesce(F.sum(F.when(good, digest)), F.lit(0)).cast("string"),
            F.sum(F.when(good, size.cast("long"))),
            F.min(F.when(good, F.col("timestamp_ms"))),
            F.count_if(~good),
        )
        .collect()
    )
    bad = sum(row[5] for row in found)
    used = [row for row in found if row[1]]
    return JobProfile(
        slices={row[0]: (row[1], row[2]) for row in used},
        bytes=sum(row[3] for row in used),
        earliest_ms=min((row[4] for row in used if row[4] is not None), default=None),
        bad=bad,
        examples=tuple(_examples(checked.where(~good))) if bad else (),
    )


def _examples(bad: DataFrame) -> list[str]:
    """Each kind of fault with its number and the first few rows, in a stable order."""
    counts = sorted(tuple(row) for row in bad.groupBy("what").count().collect())
    lines = []
    for what, count in counts:
        alike = bad.where(F.col("what") == what)
        first = alike.orderBy("timestamp_ms", "key", "fault").limit(_EXAMPLES)
        lines.append(f"{what}: {count:,} rows, such as")
        for row in first.select("fault", "key").collect():
            key = "none" if row[1] is None else repr(bytes(row[1]).decode("utf-8", "replace"))
            lines.append(f"  {row[0]} (record's key: {key[:_SHOWN_CHARS]})")
    return lines
