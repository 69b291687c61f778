"""What would have been evicted with other settings: each queue's history again, by Spark's workers.

A queue's lines go to one task in their order and through `replay` one step at a time, for all the
settings that are asked about side by side. What is held in memory is the rings, never the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ringfaust.core.catalog import Catalog, Fields
from ringfaust.core.settings import QueueSpec
from ringfaust.errors import BadSetting
from ringfaust.spark.lines import is_refusal
from ringfaust.spark.rewind.messages import GONE
from ringfaust.spark.rewind.moment import Settled, until
from ringfaust.spark.rewind.replay import CHANGEABLE, Departure, Line, NotWhole, Replay
from ringfaust.spark.vendor import to_arrow_schema

AS_IT_WAS = "as it was"
"""Name of the variant with nothing changed; it shows whether the replay can be believed."""
HISTORY = "history"
"""Name under which the departures that really were stand."""

_COMMANDS = ("tick", "deliver_now", "cancel_scheduled")
"""Where the lines alone do not tell what was asked for."""
_NOT_WHOLE = "not whole"
"""In place of an event: the replay had to stop; the reason says why."""
_BATCH_ROWS = 10_000
_DEPARTURE = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("queue", StringType()),
        StructField("variant", StringType()),
        StructField("life", IntegerType()),
        StructField("step", LongType()),
        StructField("time_ms", LongType()),
        StructField("sequence", LongType()),
        StructField("id", StringType()),
        StructField("event", StringType()),
        StructField("reason", StringType()),
        StructField("ring_size", IntegerType()),
    ]
)


@dataclass(frozen=True, slots=True)
class Eviction:
    """One message that was evicted, or would have been."""

    id: str
    sequence: int
    step: int
    time_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one setting had done to one queue."""

    queue: str
    partition: int
    variant: str
    left: Mapping[str, int]
    """How many left, by how: evicted, acked, expired, dead, removed (moves too)."""
    same: int
    """Evicted then and now."""
    spared: int
    """Evicted then, not now."""
    more: int
    """Evicted now, not then."""
    first: Eviction | None
    last: Eviction | None
    differing: Sequence[tuple[str, Eviction]]
    """The first that were `spared` or are `more`, by step."""


def check_changes(changes: Fields) -> Fields:
    """See that these settings can be asked about.

    Raises:
        BadSetting: a field is unknown, or its value is not right, or it acts through consumers.
    """
    QueueSpec().with_fields(changes)
    for name, value in changes.items():
        if name not in CHANGEABLE:
            advice = (
                "what it does depends on what consumers would have done; can be asked about: "
                + ", ".join(CHANGEABLE)
            )
            raise BadSetting(name, value, advice)
    return changes


def replay_lines(lines: DataFrame, catalog: Catalog, variants: Mapping[str, Fields]) -> DataFrame:
    """Who left each queue, when and how: in history, as it was, and in each variant.

    Args:
        lines: as of `read_lines`, of whole queues, with `command` as of `with_commands`.
        catalog: what the queues were set to when their history began.
        variants: by name: settings that are to be otherwise, of `check_changes`.

    Returns:
        A row for each departure, with `variant`.
    """
    names = ["partition", "queue", *Line._fields]
    # One queue's lines in one task, in order. Not applyInPandas: it holds a whole group in memory.
    ordered = (
        lines.filter(
            F.col("queue").isNotNull()
            & ~F.col("event").isin("refused", "unreadable", "done")
            & ~is_refusal()
        )
        .repartition("partition", "queue")
        .sortWithinPartitions("partition", "queue", "step", "offset", "line")
        .select(*names)
    )
    given = {AS_IT_WAS: {}, **variants}
    replayer: Any = _replayer(catalog, given)  # pyspark's type asks for less than it gives
    return ordered.mapInArrow(replayer, _DEPARTURE)


def with_commands(own: DataFrame, lines: DataFrame) -> DataFrame:
    """Add `command`: what was asked for, where the lines of a step do not tell it.

    Args:
        own: lines of the queues in question.
        lines: all lines, for `done` names no queue.
    """
    commands = (
        lines.filter((F.col("event") == "done") & F.col("command").isin(*_COMMANDS))
        .select("partition", "by", "command")
        .distinct()
    )
    return own.drop("command").join(commands, ["partition", "by"], "left")


def _replayer(
    catalog: Catalog, given: Mapping[str, Fields]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = []
        for (partition, queue), lines in groupby(_rows(batches), key=lambda row: row[:2]):
            settings = catalog.spec(queue, {}).set_fields()
            replays = {name: Replay(settings, fields) for name, fields in given.items()}
            try:
                for variant, departure in _replayed(replays, (Line(*row[2:]) for row in lines)):
                    rows.append((partition, queue, variant, *departure))
                    if len(rows) >= _BATCH_ROWS:
                        yield _batch(rows)
                        rows = []
            except NotWhole as error:
                missing = Departure(0, 0, 0, 0, "", _NOT_WHOLE, str(error), 0)
                rows.append((partition, queue, HISTORY, *missing))
        yield _batch(rows)

    return run


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_DEPARTURE)
    arrow = to_arrow_schema(_DEPARTURE)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, arrow.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _replayed(
    replays: Mapping[str, Replay], lines: Iterable[Line]
) -> Iterator[tuple[str, Departure]]:
    """One queue, step by step; lines that Spark's Kafka sink repeated count once."""
    life = 0
    for _, told in groupby(lines, key=lambda line: line.step):
        step = list(dict.fromkeys(told))
        for line in step:
            if line.event in GONE:
                yield HISTORY, _departed(line, life)
        for name, replay in replays.items():
            for departure in replay.do(step):
                yield name, departure
        life += any(line.event == "deleted" for line in step)


def _departed(line: Line, life: int) -> Departure:
    event = "removed" if line.event == "moved_out" else line.event
    return Departure(
        life, line.step, line.time_ms, line.sequence or 0, line.id or "", event,
        line.reason or "", 0,
    )  # fmt: skip


# --- the answer ---------------------------------------------------------------------------------


def what_if(
    lines: DataFrame,
    queue: str,
    *,
    until_then: Settled | None,
    catalog: Catalog,
    variants: Mapping[str, Fields],
    limit: int,
) -> list[Verdict]:
    """Replay a queue's history and compare the evictions with those that were.

    Args:
        lines: as of `read_lines`.
        queue: its name.
        until_then: how far; None: all.
        catalog: what the queue was set to when its history began.
        variants: by name: settings of `check_changes`.
        limit: most evictions that differ to be named, of each variant.

    Returns:
        For each partition with such a queue: `history`, `as it was`, then the variants. Where
        `as it was` differs from history the replay is not to be believed to the last message.

    Raises:
        NotWhole: lines are missing.
    """
    own = lines.filter(F.col("queue") == queue)
    if until_then is not None:
        own = own.filter(until(until_then))
    departures = replay_lines(with_commands(own, lines), catalog, variants).persist()
    try:
        return _judge(departures, (HISTORY, AS_IT_WAS, *variants), queue, limit)
    finally:
        departures.unpersist()


def _judge(departures: DataFrame, names: Sequence[str], queue: str, limit: int) -> list[Verdict]:
    eviction = F.struct("step", "sequence", "id", "time_ms", "reason")
    left = departures.groupBy("partition", "variant", "event").agg(
        F.count("*").alias("messages"),
        F.min(eviction).alias("first"),
        F.max(eviction).alias("last"),
    )
    left_rows = {(row["partition"], row["variant"], row["event"]): row for row in left.collect()}
    for (partition, _, event), row in left_rows.items():
        if event == _NOT_WHOLE:
            raise NotWhole(f"queue {queue!r}, partition {partition}: {row['first']['reason']}")
    compared = _compare(departures, names[1:]).persist()
    try:
        counted = compared.groupBy("partition", "variant", "how").count().collect()
        counts = {(row["partition"], row["variant"], row["how"]): row["count"] for row in counted}
        named = _name_some(compared, limit)
    finally:
        compared.unpersist()
    verdicts = []
    for partition in sorted({row[0] for row in left_rows}):
        for name in names:
            here = {k[2]: row for k, row in left_rows.items() if k[:2] == (partition, name)}
            same, spared, more = (
                counts.get((partition, name, how), 0) for how in ("same", "spared", "more")
            )
            evicted = here.get("evicted")
            verdicts.append(
                Verdict(
                    queue,
                    partition,
                    name,
                    {event: row["messages"] for event, row in sorted(here.items())},
                    evicted["messages"] if name == HISTORY and evicted else same,
                    spared,
                    more,
                    _eviction(evicted["first"]) if evicted else None,
                    _eviction(evicted["last"]) if evicted else None,
                    named.get((partition, name), []),
                )
            )
    return verdicts


def _compare(departures: DataFrame, names: Sequence[str]) -> DataFrame:
    """Each message evicted in history or by a variant, with `how`: same, spared or more."""
    key = ["partition", "life", "sequence"]
    evicted = departures.filter("event = 'evicted'")
    was = evicted.filter(F.col("variant") == HISTORY).drop("variant")
    variants = F.explode(F.array(*map(F.lit, names))).alias("variant")
    then = was.select(*key, F.struct("step", "id", "time_ms", "reason").alias("then"), variants)
    now = evicted.filter(F.col("variant") != HISTORY).select(
        *key, "variant", F.struct("step", "id", "time_ms", "reason").alias("now")
    )
    how = F.when(F.col("then").isNull(), "more").when(F.col("now").isNull(), "spared")
    return then.join(now, [*key, "variant"], "full").withColumn("how", how.otherwise("same"))


def _name_some(
    compared: DataFrame, limit: int
) -> dict[tuple[int, str], list[tuple[str, Eviction]]]:
    rows = (
        compared.filter("how <> 'same'")
        .withColumn("at", F.coalesce("now", "then"))
        .withColumn(
            "place",
            F.expr(
                "row_number() over (partition by partition, variant order by at.step, sequence)"
            ),
        )
        .filter(F.col("place") <= limit)
        .orderBy("partition", "variant", "place")
        .select("partition", "variant", "how", "sequence", "at")
        .collect()
    )
    named: dict[tuple[int, str], list[tuple[str, Eviction]]] = {}
    for row in rows:
        at = row["at"]
        eviction = Eviction(at["id"], row["sequence"], at["step"], at["time_ms"], at["reason"])
        named.setdefault((row["partition"], row["variant"]), []).append((row["how"], eviction))
    return named


def _eviction(row: Any) -> Eviction:
    return Eviction(row["id"], row["sequence"], row["step"], row["time_ms"], row["reason"])
