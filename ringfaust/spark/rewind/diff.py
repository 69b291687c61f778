"""The changes of a ring between two moments: messages that came, left or changed their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.core.model import HELD_STATES
from ringfaust.errors import RingfaustError
from ringfaust.spark.frames import kept
from ringfaust.spark.rewind.contents import trace_messages
from ringfaust.spark.rewind.moment import AtStep, ResolvedMoment, until


class WrongOrder(RingfaustError):
    """The second moment is before the first, or belongs to another partition."""


@dataclass(frozen=True, slots=True)
class Change:
    """One message, at both moments."""

    kind: str
    """came, left, changed (its state or delivery), or passed (came and left in between)."""
    id: str
    sequence: int
    before: str
    """Its state at the first moment; empty if it had not been sent yet."""
    after: str
    """Its state at the second moment: ready, delivering, scheduled, or how it left."""
    reason: str
    """Why it was evicted or died; else empty."""
    consumer: str
    """The consumer that it is delivered to or that acked it; else empty."""
    step: int
    """Step of its last transition."""
    time_ms: int
    """Time of its last transition."""


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes of a ring from one moment to another."""

    queue: str
    partition: int
    counts: Mapping[tuple[str, str, str], int]
    """Number of messages by (kind, after, reason)."""
    unchanged: int
    """Number of messages that were held and had no transition."""
    changes: Sequence[Change]
    """The first changes, by step."""


def read_diff(
    lines: DataFrame, queue: str, before: ResolvedMoment, after: ResolvedMoment, limit: int
) -> list[Diff]:
    """The changes of a ring, one result for each partition that has a queue of the name.

    At most `limit` changes come to the driver.
    """
    _check(before, after)
    both = (F.col("queue") == queue) & until(after)
    if isinstance(before, AtStep):
        both &= F.col("partition") == before.partition
    messages = trace_messages(
        lines.filter(both).withColumn("request", F.lit(0)), before=until(before), after=F.lit(True)
    )
    was_held = F.coalesce(F.col("before.state").isin(*HELD_STATES), F.lit(False))
    is_held = F.col("after.state").isin(*HELD_STATES)
    kind = (
        F.when(F.col("before").isNull(), F.when(is_held, "came").otherwise("passed"))
        .when(was_held & ~is_held, "left")
        .when(was_held & (F.col("after.step") > F.col("before.step")), "changed")
        .when(was_held, "unchanged")
    )
    with kept(messages.withColumn("kind", kind).filter("kind is not null")) as changed:
        return _collect(changed, queue, limit)


def _check(before: ResolvedMoment, after: ResolvedMoment) -> None:
    if isinstance(before, AtStep) and isinstance(after, AtStep):
        if before.partition != after.partition:
            raise WrongOrder(
                f"{before} and {after} belong to different partitions, but a queue is in only one"
            )
        if before.step > after.step:
            raise WrongOrder(f"{after} is before {before}: swap them")
    elif not isinstance(before, AtStep) and not isinstance(after, AtStep):
        if before.time_ms > after.time_ms:
            raise WrongOrder(f"{after} is before {before}: swap them")


def _collect(changed: DataFrame, queue: str, limit: int) -> list[Diff]:
    by_kind = (
        changed.groupBy("partition", "kind", _text("after.state"), _text("after.reason"))
        .count()
        .collect()
    )
    rows = (
        changed.filter("kind <> 'unchanged'")
        .orderBy("partition", "after.step", "after.offset", "after.line")
        .limit(limit)
        .select(  # the fields of a `Change`, in their order
            "partition", "kind", _text("entry.id"), "sequence", _text("before.state"),
            _text("after.state"), _text("after.reason"), _text("after.consumer"), "after.step",
            "after.time_ms",
        )
        .collect()
    )  # fmt: skip
    found = []
    for partition in sorted({row["partition"] for row in by_kind}):
        counts = {
            (row["kind"], row["state"], row["reason"]): row["count"]
            for row in sorted(by_kind, key=lambda row: row[1:4])
            if row["partition"] == partition
        }
        unchanged = sum(counts.pop(key) for key in [*counts] if key[0] == "unchanged")
        changes = [Change(*row[1:]) for row in rows if row["partition"] == partition]
        found.append(Diff(queue, partition, counts, unchanged, changes))
    return found


def _text(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit("")).alias(name.rpartition(".")[2])
