"""Transitions → gold. Each batch is counted by minute; messages wait for the end of the day.

Each batch is appended to `queue_minutes`. `messages` and `deliveries` are brought up to date by a
closing (`lake.views`): in the first batch that contains a later day, or, if none comes, by the
clock. So the work depends on the batch, on the day and on what the queues hold, not on the size of
the tables.

A closing also keeps what each queue has counted, so that `rewind` need not begin with its first
message. A row of `queue_counts` says which is the oldest message that the queue holds. The lines
about that message and later ones, and all lines after the closing, then say as much as all lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from ringfaust.core.model import COUNTS, HELD_STATES
from ringfaust.protocol.lifecycle import EXIT_EVENTS
from ringfaust.spark.lake import minutes
from ringfaust.spark.lake.store import GOLD, LakeProgress, append_gold
from ringfaust.spark.lake.tables import DELETIONS, QUEUE_COUNTS, TABLES, last_closing, sql_name
from ringfaust.spark.lake.views import ENDED_ON, TableName, closing_of, select_list, with_lives
from ringfaust.spark.lines import REFUSAL

CLOSING_DELAY = timedelta(minutes=10)
"""The clock closes a day this long after its end (UTC): the last lines are in the topic by then."""
_CLOSING, _CLOSED = " closing", " closed"
"""What gold's note adds to the last day of which it has lines, once the clock closes that day."""
_KEY = ("partition", "queue", "life")
"""What identifies a queue in its counts."""
_EXITS = (*EXIT_EVENTS, "refused")
_SUMMED = (*HELD_STATES, *_EXITS)
_ROW = (*_KEY, *_SUMMED, "last_sequence", "oldest_sequence", "step", "time_ms")
_NOTHING = "CAST(NULL AS BIGINT)"


def catch_up(spark: SparkSession, root: str, batch: int, lines: DataFrame | None = None) -> None:
    """Process all batches up to `batch` that gold does not have yet.

    `lines` are the transitions of that batch, if they are at hand.
    """
    progress = LakeProgress(spark, root, GOLD)
    _finish_closing(spark, root, progress)
    for number in range(progress.batch + 1, batch + 1):
        found = lines if number == batch else None
        if found is None:
            of_batch = f"{sql_name(root, 'transitions')} WHERE batch = {number}"
            found = spark.sql(f"SELECT * FROM {of_batch}")
        found.createOrReplaceTempView("lines")
        progress.complete(number, _process(spark, root, number, progress.note))


def close_by_clock(spark: SparkSession, root: str, now: datetime) -> bool:
    """Close the last day of which there are lines, unless it may go on. Returns whether it did.

    To be called between two batches, when all lines that are in the topic have been read. Lines of
    that day that come later wait for the next closing.
    """
    progress = LakeProgress(spark, root, GOLD)
    day = _day(progress.note)
    if not day or progress.note != day:
        return False
    end = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1)
    if now < end + CLOSING_DELAY:
        return False
    progress.complete(progress.batch, day + _CLOSING)
    _finish_closing(spark, root, progress)
    return True


def _finish_closing(spark: SparkSession, root: str, progress: LakeProgress) -> None:
    """Do a closing by the clock that has begun."""
    if progress.note.endswith(_CLOSING):
        batch = progress.batch
        close(spark, root, batch)
        progress.complete(batch, _day(progress.note) + _CLOSED)


def _day(note: str) -> str:
    """The last day of which gold has lines, as YYYY-MM-DD; empty: it has none."""
    return note.removesuffix(_CLOSING).removesuffix(_CLOSED)


def _process(spark: SparkSession, root: str, batch: int, note: str) -> str:
    """Process a batch. Takes gold's note before it, and returns the one after it."""
    found = minutes.write(spark, root, batch)
    if found is None:
        return note
    first_day, last_day, deletions = found
    if deletions:
        deleted = f"SELECT {', '.join(DELETIONS.schema.names)} FROM lines WHERE event = 'deleted'"
        append_gold(spark, root, deleted, DELETIONS, batch)
    day = _day(note)
    if day >= last_day:  # a partition that lags does not take the day back
        return note
    # A day that the clock has closed is not closed again by the first lines of a later one.
    begun = first_day if note.endswith(_CLOSED) else day or first_day
    if begun != last_day:
        close(spark, root, batch)
    return last_day


def complete_batch(progress: LakeProgress) -> int:
    """The last batch that gold has completed, with a closing by the clock that follows it."""
    return progress.batch - progress.note.endswith(_CLOSING)


def closings(found: Mapping[str, int], complete: int) -> Mapping[str, int]:
    """By table, the last batch that a closing has brought into it.

    A closing of messages is followed by one of deliveries, which leaves no trace if there are none.

    `found` is what the tables' rows say, and `complete` the last batch that gold has completed.
    """
    messages = found["messages"]
    if messages > complete:
        return found
    return {**found, "deliveries": max(messages, found["deliveries"])}


def close(spark: SparkSession, root: str, batch: int) -> None:
    """Bring messages and deliveries up to a batch, and keep the counts.

    The batch's deletions are stored.
    """
    closed = closings({table: last_closing(spark, root, table) for table in ENDED_ON}, batch - 1)
    for table, ended_on in ENDED_ON.items():
        after = closed[table]
        if after < batch:
            rows = closing_of(table, partial(sql_name, root), after, batch)
            open_rows = f"{ended_on} IS NULL"
            append_gold(spark, root, rows, TABLES[table], batch, replace=open_rows)
    write_counts(spark, root, batch)


def write_counts(spark: SparkSession, root: str, batch: int) -> None:
    """Write the counts at a closing, unless they are there.

    `messages` is closed up to the batch.
    """
    after, name_of = last_closing(spark, root, QUEUE_COUNTS.name), partial(sql_name, root)
    if after < 0 and spark.sql(f"SELECT min(batch) FROM {name_of('transitions')}").collect()[0][0]:
        return  # a lake of an older version, whose first lines a retention has deleted
    if after < batch:
        append_gold(spark, root, _counts(name_of, after, batch), QUEUE_COUNTS, batch)


def _counts(name_of: TableName, after: int, upto: int) -> str:
    """The counts of the closing before, and what has happened since.

    A queue has no row if its messages do not add up: if a ring job has repeated lines (ADR 32).
    """
    since = f"batch > {after} AND batch <= {upto}"
    lines = f"SELECT * FROM {name_of('transitions')} WHERE {since}"
    rows = (_earlier(name_of, after), _messages(name_of, since), _refused(name_of, lines))
    sums = {name: f"CAST(sum(c.{name}) AS BIGINT)" for name in _SUMMED}
    sums["added"] = " + ".join(sums[name] for name in (*HELD_STATES, *EXIT_EVENTS))
    counts = select_list({name: sums[name] for name in COUNTS})
    keys = ", ".join(f"c.{name}" for name in _KEY)
    return f"""
WITH ends AS (
    SELECT partition, max(step) AS step, max(time_ms) AS time_ms, max(date) AS date
    FROM ({lines}) t GROUP BY partition
)
SELECT {keys}, {counts}, max(c.last_sequence) AS last_sequence,
    min(c.oldest_sequence) AS oldest_sequence, greatest(max(c.step), max(p.step)) AS step,
    greatest(max(c.time_ms), (SELECT max(time_ms) FROM ends)) AS time_ms,
    CAST({upto} AS BIGINT) AS batch, (SELECT max(date) FROM ends) AS date
FROM ({" UNION ALL ".join(rows)}) c LEFT JOIN ends p ON c.partition = p.partition LEFT JOIN (
    SELECT partition, queue, max(step) AS step FROM {name_of("deletions")}
    GROUP BY partition, queue
) d ON c.partition = d.partition AND c.queue = d.queue
WHERE c.life >= coalesce(d.step, 0) GROUP BY {keys}
HAVING {sums["added"]} = max(c.last_sequence)"""


def _earlier(name_of: TableName, after: int) -> str:
    """The rows of the closing before. What is held is counted again."""
    table = f"{name_of('queue_counts')} t WHERE batch = {after}"
    values = {name: f"t.{name}" for name in _ROW} | dict.fromkeys(HELD_STATES, "0")
    return _row(table, {**values, "oldest_sequence": _NOTHING})


def _messages(name_of: TableName, since: str) -> str:
    """A row for each message that is held, or has ended since."""
    values: dict[str, str] = {name: f"CAST(state = '{name}' AS INT)" for name in HELD_STATES}
    values |= {name: f"CAST(coalesce(fate = '{name}', false) AS INT)" for name in EXIT_EVENTS}
    values |= {"refused": "0", "last_sequence": "sequence"}
    values["oldest_sequence"] = "CASE WHEN ended_date IS NULL THEN sequence END"
    return _row(f"{name_of('messages')} t WHERE ended_date IS NULL OR ({since})", values)


def _refused(name_of: TableName, lines: str) -> str:
    """A row for each message that was refused. A line that is there twice counts once."""
    refused = with_lives(name_of, f"SELECT * FROM ({lines}) n WHERE {REFUSAL}")
    keys = ", ".join((*_KEY, "step", "id", "source"))
    values = dict.fromkeys(_SUMMED, "0") | {"refused": "1", "last_sequence": "0"}
    return _row(f"(SELECT DISTINCT {keys} FROM ({refused}) r) t", values)


def _row(table: str, values: dict[str, str]) -> str:
    """Rows to be added up, with these values beside the key."""
    values = {**{name: f"t.{name}" for name in _KEY}, **values}
    columns = select_list({name: values.get(name, _NOTHING) for name in _ROW})
    return f"SELECT {columns} FROM {table}"
