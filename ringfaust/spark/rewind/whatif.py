"""What other settings would have evicted: Spark tasks replay the history of each queue.

One task gets all lines of a queue in order and replays them step by step, for all variants side by
side. It keeps the rings in memory, never the history.

Here `lines` are the result of `read_lines`, `catalog` has the settings of the queues at the
beginning of the history, and `variants` are changed settings by name, checked by `check_changes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType

from ringfaust.core.catalog import Catalog, Fields
from ringfaust.core.settings import QueueSpec
from ringfaust.errors import BadSetting
from ringfaust.protocol.lifecycle import EXIT_EVENTS
from ringfaust.spark.frames import kept, make_batch, read_rows
from ringfaust.spark.lake.tables import columns
from ringfaust.spark.lines import REFUSAL
from ringfaust.spark.rewind.moment import ResolvedMoment, until
from ringfaust.spark.rewind.replay import (
    CHANGEABLE,
    Departure,
    EventLine,
    IncompleteHistory,
    Replay,
)
from ringfaust.spark.vendor import to_arrow_schema

AS_IT_WAS = "as it was"
"""The variant without changes; it shows whether the replay is exact."""
HISTORY = "history"
"""The name for the departures that really happened."""

_COLUMNS = ", ".join(f"{'c' if name == 'command' else 't'}.{name}" for name in EventLine._fields)
LINES = f"""
SELECT t.partition, t.queue, {_COLUMNS}
FROM {{own}} t LEFT JOIN (
    SELECT DISTINCT d.partition, d.by, d.command FROM {{lines}} d
    WHERE d.event = 'done' AND d.command IN ('tick', 'deliver_now', 'cancel_scheduled')
) c ON c.partition = t.partition AND c.by = t.by
WHERE t.queue IS NOT NULL AND t.event NOT IN ('refused', 'unreadable', 'done')
    AND NOT ({REFUSAL})"""
"""SQL, for Spark and DuckDB: what `replayer` takes, of the lines of some queues and all `lines`.

The lines of a step do not identify these commands, and their `done` names no queue.
"""
ORDER = "t.partition, t.queue, t.step, t.offset, t.line"
"""SQL: the order in which it takes them."""
INCOMPLETE = "incomplete"
"""Used instead of an event if the replay had to stop; `reason` says why."""
_BATCH_ROWS = 10_000
DEPARTURE = columns(
    (IntegerType(), "partition"),
    (StringType(), "queue variant"),
    (IntegerType(), "generation"),
    (LongType(), "step time_ms sequence"),
    (StringType(), "id event reason"),
    (IntegerType(), "ring_size"),
)
"""The columns of a departure, with the queue and the variant."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A message that was evicted, or would have been."""

    id: str
    sequence: int
    step: int
    time_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class VariantResult:
    """What one variant would have done to one queue."""

    queue: str
    partition: int
    variant: str
    left: Mapping[str, int]
    """Number of departures by event: evicted, acked, expired, dead, removed (or moved, or lost)."""
    same: int
    """Number of messages evicted in both history and replay."""
    spared: int
    """Number of messages evicted only in history."""
    more: int
    """Number of messages evicted only in the replay."""
    first: Eviction | None
    last: Eviction | None
    differing: Sequence[tuple[str, Eviction]]
    """The first evictions that are `spared` or `more`, by step."""


def check_changes(changes: Fields) -> Fields:
    """Return the settings, if what-if supports them.

    Raises:
        BadSetting: a setting is unknown, has a wrong value, or acts through consumers.
    """
    QueueSpec().with_fields(changes)
    for name, value in changes.items():
        if name not in CHANGEABLE:
            advice = (
                "its effect depends on what consumers would have done; supported settings: "
                + ", ".join(CHANGEABLE)
            )
            raise BadSetting(name, value, advice)
    return changes


def replay_lines(
    own: DataFrame, lines: DataFrame, catalog: Catalog, variants: Mapping[str, Fields]
) -> DataFrame:
    """The departures from each queue: in history, with unchanged settings, and in each variant.

    `own` are the lines of whole queues, and `lines` all. The result has a row for each departure,
    with `variant`.
    """
    # The lines of a queue go to one task, in order. applyInPandas would hold them all in memory.
    query = f"{LINES} DISTRIBUTE BY t.partition, t.queue SORT BY {ORDER}"
    ordered = lines.sparkSession.sql(query, own=own, lines=lines)
    replays: Any = replayer(catalog, variants)  # PySpark's type is narrower than what it accepts
    return ordered.mapInArrow(replays, DEPARTURE)


def replayer(
    catalog: Catalog, variants: Mapping[str, Fields]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what replays lines, queue by queue and in order, and yields their departures.

    The original settings are replayed, too, as `as it was`.
    """
    given = {AS_IT_WAS: {}, **variants}

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(DEPARTURE)
        rows: list[tuple[Any, ...]] = []
        for (partition, queue), lines in groupby(read_rows(batches), key=lambda row: row[:2]):
            settings = catalog.spec(queue, {}).set_fields()
            replays = {name: Replay(settings, fields) for name, fields in given.items()}
            try:
                for variant, departure in _replayed(
                    replays, (EventLine(*row[2:]) for row in lines)
                ):
                    rows.append((partition, queue, variant, *departure))
                    if len(rows) >= _BATCH_ROWS:
                        yield make_batch(rows, schema)
                        rows = []
            except IncompleteHistory as error:
                why = f"queue {queue!r}, partition {partition}: {error}"
                missing = Departure(0, 0, 0, 0, "", INCOMPLETE, why, 0)
                rows.append((partition, queue, HISTORY, *missing))
        yield make_batch(rows, schema)

    return run


def _replayed(
    replays: Mapping[str, Replay], lines: Iterable[EventLine]
) -> Iterator[tuple[str, Departure]]:
    """Replay one queue step by step; lines that the log has twice count once."""
    generation = 0
    for _, step_lines in groupby(lines, key=lambda line: line.step):
        step = list(dict.fromkeys(step_lines))
        for line in step:
            if line.event in EXIT_EVENTS:
                yield HISTORY, _departed(line, generation)
        for name, replay in replays.items():
            for departure in replay.replay_step(step):
                yield name, departure
        generation += any(line.event == "deleted" for line in step)


def _departed(line: EventLine, generation: int) -> Departure:
    event = "removed" if line.event in ("moved_out", "lost") else line.event
    return Departure(
        generation, line.step, line.time_ms, line.sequence or 0, line.id or "", event,
        line.reason or "", 0,
    )  # fmt: skip


def first_catalog(lines: DataFrame, queue: str, configurations: Mapping[int, Catalog]) -> Catalog:
    """Return what was in effect when the queue was first used; later changes are in its lines.

    `configurations` are by revision, oldest first (R128).
    """
    oldest, *later = configurations
    if not later:
        return configurations[oldest]
    own = lines.filter(F.col("queue") == queue).groupBy("partition")
    begin = own.agg(F.min("step").alias("begin"))
    applied = lines.filter("event = 'applied'").join(F.broadcast(begin), "partition")
    ((last,),) = applied.filter("step < begin").agg(F.max("revision")).collect()
    return configurations[max([oldest, *(each for each in later if each <= (last or 0))])]


# --- the answer ---------------------------------------------------------------------------------


def what_if(
    lines: DataFrame,
    queue: str,
    *,
    until_then: ResolvedMoment | None,
    catalog: Catalog,
    variants: Mapping[str, Fields],
    limit: int,
) -> list[VariantResult]:
    """Replay a queue's history and compare the evictions with the real ones.

    The replay ends with `until_then`, or with the history. For each variant at most `limit`
    evictions that differ are listed.

    Returns:
        For each partition with such a queue: `history`, `as it was`, then the variants. If
        `as it was` differs from history, the replay is not exact.
    """
    own = lines.filter(F.col("queue") == queue)
    if until_then is not None:
        own = own.filter(until(until_then))
    with kept(replay_lines(own, lines, catalog, variants)) as departures:
        return _compare_with_history(departures, (HISTORY, AS_IT_WAS, *variants), queue, limit)


def _compare_with_history(
    departures: DataFrame, names: Sequence[str], queue: str, limit: int
) -> list[VariantResult]:
    left = departures.groupBy("partition", "variant", "event").agg(
        F.count("*").alias("messages"),
        F.min(_eviction()).alias("first"),
        F.max(_eviction()).alias("last"),
    )
    by_variant: defaultdict[tuple[int, str], dict[str, Row]] = defaultdict(dict)
    for row in left.collect():
        if row["event"] == INCOMPLETE:
            raise IncompleteHistory(row["first"]["reason"])
        by_variant[row["partition"], row["variant"]][row["event"]] = row
    with kept(_match_evictions(departures, names[1:])) as compared:
        counted = compared.groupBy("partition", "variant", "how").count().collect()
        named = _first_differing(compared, limit)
    counts = {(row["partition"], row["variant"], row["how"]): row["count"] for row in counted}
    results = []
    for partition, name in product(sorted({partition for partition, _ in by_variant}), names):
        here = by_variant[partition, name]
        same, spared, more = (
            counts.get((partition, name, how), 0) for how in ("same", "spared", "more")
        )
        evicted = here.get("evicted")
        results.append(
            VariantResult(
                queue,
                partition,
                name,
                {event: row["messages"] for event, row in sorted(here.items())},
                evicted["messages"] if name == HISTORY and evicted else same,
                spared,
                more,
                _read_eviction(evicted["first"]) if evicted else None,
                _read_eviction(evicted["last"]) if evicted else None,
                named[partition, name],
            )
        )
    return results


def _match_evictions(departures: DataFrame, names: Sequence[str]) -> DataFrame:
    """Each message evicted in history or in a variant, with `how`: same, spared or more."""
    key = ["partition", "generation", "sequence"]
    evicted = departures.filter("event = 'evicted'")
    was = evicted.filter(F.col("variant") == HISTORY).drop("variant")
    variants = F.explode(F.array(*map(F.lit, names))).alias("variant")
    then = was.select(*key, _eviction().alias("then"), variants)
    now = evicted.filter(F.col("variant") != HISTORY).select(
        *key, "variant", _eviction().alias("now")
    )
    how = F.when(F.col("then").isNull(), "more").when(F.col("now").isNull(), "spared")
    return then.join(now, [*key, "variant"], "full").withColumn("how", how.otherwise("same"))


def _first_differing(
    compared: DataFrame, limit: int
) -> Mapping[tuple[int, str], list[tuple[str, Eviction]]]:
    by_step = Window.partitionBy("partition", "variant").orderBy("at.step", "sequence")
    rows = (
        compared.filter("how <> 'same'")
        .withColumn("at", F.coalesce("now", "then"))
        .withColumn("place", F.row_number().over(by_step))
        .filter(F.col("place") <= limit)
        .orderBy("partition", "variant", "place")
        .select("partition", "variant", "how", "at")
        .collect()
    )
    named: defaultdict[tuple[int, str], list[tuple[str, Eviction]]] = defaultdict(list)
    for row in rows:
        named[row["partition"], row["variant"]].append((row["how"], _read_eviction(row["at"])))
    return named


def _eviction() -> Column:
    """The fields of an `Eviction`; the first one is the least."""
    return F.struct("step", "sequence", "id", "time_ms", "reason")


def _read_eviction(row: Row) -> Eviction:
    return Eviction(**row.asDict())
