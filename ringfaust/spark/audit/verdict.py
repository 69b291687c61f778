"""One look at everything: what is read, judged and counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.audit import accounts, match
from ringfaust.spark.audit import lifecycles as lives
from ringfaust.spark.audit.findings import KEY, KINDS, gather
from ringfaust.spark.audit.offsets import Extents
from ringfaust.spark.audit.outcomes import Judge
from ringfaust.spark.audit.sources import Material


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit found."""

    inputs: int
    """Records of the producers' topics."""
    waiting: int
    """Of these: not read yet."""
    lines: int
    """Lines of the events topic, repeats not counted."""
    records: int
    """Records of dispatched, evicted and dead topic, repeats not counted."""
    repeats: int
    """Records that stand somewhere a second time, word for word."""
    kinds: dict[str, int]
    """How many findings of each kind, the gravest first."""
    unbalanced: int
    """How many queues do not add up, or have something wrong."""
    unbalanced_windows: int
    totals: dict[str, int]
    """`accounts.COUNTS` over all queues, and `queues`."""
    told: DataFrame
    """See `lives.tell`."""
    rows: DataFrame
    """See `accounts.rows`."""
    windows: DataFrame | None
    """See `accounts.windows`."""
    findings: DataFrame
    """See `findings.gather`."""

    @property
    def balanced(self) -> bool:
        """Is every record accounted for, exactly once and unaltered?"""
        return not (self.kinds or self.unbalanced or self.unbalanced_windows)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of an audit."""

    worker: WorkerConfig
    queues: QueuesConfig
    window: str | None = None
    """Length of a window of time, as Spark reads it; None: none are counted."""
    repeats_are_faults: bool = True
    """A record that stands twice word for word is a fault; else it is counted and told."""


def look(
    question: Question,
    material: Material,
    extents: Extents,
    confirmed_by: DataFrame | None = None,
) -> Verdict:
    """Judge what was read.

    Args:
        question: what is asked.
        material: what was read.
        extents: where the producers' topics begin.
        confirmed_by: findings of an earlier look; only what that found too is told.
    """
    worker, queues, keep = question.worker, question.queues, _keep
    events = worker.topic(Role.EVENTS)
    told = keep(lives.tell(material.lines))
    seen = keep(match.records(material.outputs))
    # Last, so that what was told is there; records that came since wait.
    material = replace(material, inputs=keep(material.inputs), hop=keep(material.hop))
    pairs = keep(match.matched(told, seen))
    judge = Judge(material, told, worker=worker, queues=queues, extents=extents, keep=keep)
    fates = judge.fates()
    again = [keep(part) for part in (lives.repeated(told, events), match.copies(seen))]
    repeats = sum(part.count() for part in again)
    light = [
        lives.transitions(told, events),
        match.differences(pairs, worker),
        *fates.findings,
        *judge.payloads(seen),
        *(again if question.repeats_are_faults else ()),
    ]
    heavy = [
        lives.damaged(told, events),
        lives.steps(told, events),
        lives.sequence_gaps(told),
        lives.delivery_gaps(told, seen),
        judge.commands(),
        match.order(pairs),
    ]
    # What shuffles goes one by one: as one plan all of it takes Spark a minute to plan.
    parts = [keep(reduce(DataFrame.unionByName, light)), *map(keep, heavy)]
    found = gather([part for part in parts if not part.isEmpty()] or parts[:1])
    if confirmed_by is not None:
        found = _also_in(found, confirmed_by)
    findings = keep(found)
    by_kind = {row["kind"]: row["count"] for row in findings.groupBy("kind").count().collect()}
    rows = keep(accounts.rows(told, findings))
    windows = keep(accounts.windows(told, question.window)) if question.window else None
    totals = rows.agg(
        F.count("*").alias("queues"),
        F.sum((~F.col("balanced")).cast("int")).alias("unbalanced"),
        *[F.sum(name).alias(name) for name in accounts.COUNTS],
    ).first()
    assert totals is not None  # there is one row, whatever is summed
    counted = {name: value or 0 for name, value in totals.asDict().items()}
    return Verdict(
        inputs=material.inputs.count(),
        waiting=fates.waiting.count(),
        lines=told.filter("nth = 1").count(),
        records=seen.filter("copy = 1").count(),
        repeats=repeats,
        kinds={kind: by_kind[kind] for kind in KINDS if kind in by_kind},
        unbalanced=counted.pop("unbalanced"),
        unbalanced_windows=windows.filter("not balanced").count() if windows else 0,
        totals=counted,
        told=told,
        rows=rows,
        windows=windows,
        findings=findings,
    )


def _keep(frame: DataFrame) -> DataFrame:
    """Computed now, and kept: topics grow, and all has to be judged by what was read once.

    A checkpoint rather than `persist`, whose plans grow with every step until Spark plans longer
    than it computes. An executor that is lost takes its part with it: the audit fails, and is to be
    asked again. On disk, for memory is wanted for sorting.
    """
    return frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def _also_in(found: DataFrame, earlier: DataFrame) -> DataFrame:
    """Those findings that an earlier look had too."""
    one, other = found.alias("one"), earlier.select(*KEY).alias("other")
    same = [F.col(f"one.{name}").eqNullSafe(F.col(f"other.{name}")) for name in KEY]
    return one.join(other, reduce(Column.__and__, same), "left_semi")
