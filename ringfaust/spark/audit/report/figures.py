"""The data of the charts, aggregated by Spark so that little of it comes to the driver."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.core.model import HELD_STATES
from ringfaust.spark.audit.lifecycles import CARRIED, message_events
from ringfaust.spark.audit.verdict import Verdict

TOP = 6
"""Number of queues that are named, those with the most evictions; the rest is one group."""
MAX_HANDOVERS = 8
"""The last bar counts this delivery of a message and all later ones."""
BINS_A_DECADE = 12
_POINTS = 120
_DAY_MS = 86_400_000
_STEPS_MS = (
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    900_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, _DAY_MS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figures:
    """The data of all charts."""

    begin_ms: int
    end_ms: int
    step_ms: int
    """Width of one step on the time axis."""
    depth: pd.DataFrame
    """By time in ms: messages in each state at the end of the step."""
    evictions: pd.DataFrame
    """By time in ms: evictions per second of each named queue and of the rest."""
    ages: pd.DataFrame
    """low_ms (lower end of a bin, log scale), count."""
    age_ms: tuple[float, float, float]
    """50th, 95th and 99th percentile of the age at eviction."""
    lifetimes: pd.DataFrame
    """queue, count, p10, p50, p90: ms from the send until a newer message evicted it."""
    handovers: pd.Series
    """By number: how many deliveries were the first, second … of their message."""


def figures(verdict: Verdict, top: int = TOP) -> Figures:
    """Aggregate the data of the charts, which name the `top` queues."""
    events = message_events(verdict.events)
    span = events.agg(F.min("time_ms"), F.max("time_ms")).first()
    begin_ms, end_ms = (span[0], span[1]) if span and span[0] is not None else (0, 0)
    step_ms = _step(begin_ms, end_ms)
    names = [
        row["queue"]
        for row in verdict.queues.filter("evicted > 0")
        .orderBy(F.desc("evicted"), "queue").limit(top).collect()
    ]  # fmt: skip
    evicted = events.filter("event = 'evicted'").withColumn("group", _group(names))
    at = (F.floor(F.col("time_ms") / step_ms) * step_ms).alias("at")
    times = pd.RangeIndex(begin_ms // step_ms * step_ms, end_ms + 1, step_ms, name="at")
    return Figures(
        begin_ms=begin_ms,
        end_ms=end_ms,
        step_ms=step_ms,
        depth=_depth(events, at, times) + _held_before(verdict.events),
        evictions=_rates(evicted, at, times, step_ms, names),
        ages=_ages(evicted),
        age_ms=_percentiles(evicted),
        lifetimes=_lifetimes(evicted.filter("reason = 'overflow'"), names),
        handovers=_handovers(events),
    )


def _step(begin_ms: int, end_ms: int) -> int:
    wanted = (end_ms - begin_ms) / _POINTS
    days = math.ceil(wanted / _DAY_MS) * _DAY_MS
    return next((step for step in _STEPS_MS if step >= wanted), days)


def _group(names: list[str]) -> Column:
    """The index of a named queue, else -1; an index, because a queue may have any name."""
    if not names:
        return F.lit(-1)
    index = F.array_position(F.array(*map(F.lit, names)), F.col("queue"))
    return (index - 1).cast("int")


def _depth(events: DataFrame, at: Column, times: pd.Index) -> pd.DataFrame:
    """Cumulate the transitions: each one moves a message from one state to another."""
    moves = [
        F.sum((F.col("state") == name).cast("int") - F.coalesce(F.col("was") == name, F.lit(False))
              .cast("int")).alias(name)
        for name in HELD_STATES
    ]  # fmt: skip
    found = events.groupBy(at).agg(*moves).toPandas().set_index("at")
    return found.reindex(times, fill_value=0).sort_index().cumsum()


def _held_before(events: DataFrame) -> pd.Series:
    """The messages in each state that earlier periods have left open."""
    carried = events.filter((F.col("nth") == CARRIED) & F.col("about"))
    last = carried.groupBy("partition", "queue", "sequence").agg(
        F.max_by("state", F.struct("step", "offset", "line")).alias("state")
    )
    held = last.agg(*[F.count_if(F.col("state") == name).alias(name) for name in HELD_STATES])
    return held.toPandas().iloc[0]


def _rates(
    evicted: DataFrame, at: Column, times: pd.Index, step_ms: int, names: list[str]
) -> pd.DataFrame:
    found = evicted.groupBy(at, "group").count().toPandas()
    wide = found.pivot_table(index="at", columns="group", values="count", fill_value=0)
    wide = wide.reindex(index=times, fill_value=0).reindex(
        columns=[*range(len(names)), -1], fill_value=0
    )
    wide.columns = pd.Index([*names, None])
    return wide / (step_ms / 1000)


def _ages(evicted: DataFrame) -> pd.DataFrame:
    # Ages below a millisecond go to the first bin.
    age = F.greatest(F.col("age_ms"), F.lit(1))
    number = F.floor(F.log10(age) * BINS_A_DECADE).alias("bin")
    found = evicted.groupBy(number).count().orderBy("bin").toPandas()
    found["low_ms"] = 10.0 ** (found["bin"] / BINS_A_DECADE)
    return found[["low_ms", "count"]]


def _percentiles(evicted: DataFrame) -> tuple[float, float, float]:
    row = evicted.agg(F.percentile_approx("age_ms", [0.5, 0.95, 0.99])).first()
    low, middle, high = row[0] if row and row[0] else (0, 0, 0)
    return low, middle, high


def _lifetimes(evicted: DataFrame, names: list[str]) -> pd.DataFrame:
    found = evicted.groupBy("group").agg(
        F.count("*").alias("count"),
        F.percentile_approx("age_ms", [0.1, 0.5, 0.9]).alias("parts"),
    )
    found = found.select(
        "group", "count", *[F.col("parts")[i].alias(p) for i, p in enumerate(("p10", "p50", "p90"))]
    )
    frame = found.toPandas()
    # Named queues by number of evictions, then the rest.
    frame["order"] = frame["group"].where(frame["group"] >= 0, len(names))
    frame = frame.sort_values("order")
    frame["queue"] = [names[group] if group >= 0 else None for group in frame["group"]]
    return frame[["queue", "count", "p10", "p50", "p90"]].reset_index(drop=True)


def _handovers(events: DataFrame) -> pd.Series:
    number = F.least(F.col("handovers"), F.lit(MAX_HANDOVERS)).alias("number")
    dispatched = events.filter("event = 'dispatched'")
    found = dispatched.groupBy(number).count().orderBy("number").toPandas()
    return found.set_index("number")["count"]
