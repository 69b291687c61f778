"""Count the rows of a job, once, before anything is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_EXAMPLES = 3
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProfile:
    """The counts of a job's rows."""

    slices: Mapping[int, tuple[int, str]]
    """Per slice: the number of good rows, and the sum of their hashes, independent of order."""
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
        checked.groupBy("slice")
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
