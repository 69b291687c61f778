"""The queries of closings and views. Readers in DuckDB understand those of views.

A **closing** brings the tables `messages` and `deliveries` up to a batch: rows that have ended are
appended, open rows are replaced. The views `…_now` add the batches since the last closing without
storing them.

Here `name_of` says how SQL refers to a table, and `since`, by table, which batches are later than
its last closing, such as `batch > 7`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ringfaust.core.model import HELD_STATES
from ringfaust.protocol.lifecycle import ENTRY_EVENTS, EXIT_EVENTS
from ringfaust.spark.lines import STATE_AFTER, any_of

ENDED_ON = {"messages": "ended_date", "deliveries": "settled_date"}
"""The tables that closings write, and their column that is null in open rows."""
VIEWS = ("messages_now", "deliveries_now", "queue_minutes_now", "evictions")
COUNTED = (
    "added", "due", "dispatched", "redelivered", "acked", "returned", "evicted", "expired", "dead",
    "removed", "moved_out", "refused",
)  # fmt: skip
"""The events that `queue_minutes` counts."""

_RECORD_LINES = 1 << 20
"""More lines than fit into a record of 1 MB, so that one number can hold offset and line."""
_ENTERS, _ENDS = any_of(ENTRY_EVENTS), any_of(EXIT_EVENTS)
_DISPATCHED = "event = 'dispatched'"
_SETTLES = "(event IN ('acked', 'returned') OR (event = 'expired' AND delivery > 0))"
_ENDS_UNNAMED = "(fate IN ('dead', 'lost') OR reason = 'return_overflow')"
"""The last line of such a message ends its last delivery without giving the number. That of a lost
one does so only if nothing else has ended the delivery: most were ready or scheduled."""
_LOST = "c.how = 'lost'"

_BOUNDS = ("min", "max")
_LENGTHS = ("age_ms", "held_ms")
"""In ms, and no times."""

TableName = Callable[[str], str]
"""How SQL refers to a table of the lake."""


def _when(condition: str, *names: str, **others: str) -> dict[str, str]:
    """Columns that only lines of this kind set."""
    values = {name: f"l.{name}" for name in names} | others
    return {name: f"CASE WHEN {condition} THEN {value} END" for name, value in values.items()}


_MESSAGE_KEY = ("partition", "queue", "life", "sequence")
_ENQUEUED = f"""CASE WHEN {_ENTERS} THEN l.enqueued_ms
                WHEN event = 'evicted' THEN l.time_ms - l.age_ms END"""
_MESSAGE = {
    "id": "l.id",
    **_when(_ENTERS, "source", "priority", "group", "size_bytes", added_step="l.step"),
    "enqueued_ms": _ENQUEUED,
    **_when(_ENTERS, "due_ms", "expires_at_ms"),
    **_when(_DISPATCHED, first_dispatched_ms="l.time_ms", last_dispatched_ms="l.time_ms"),
    **_when(_DISPATCHED, last_delivery="l.delivery"),
    "attempts": "l.attempt",
    "handovers": "l.handovers",
    "consumers": f"CASE WHEN {_DISPATCHED} THEN {{array}}(l.consumer) END",
    "state": "l.state",
    **_when(_ENDS, "reason", "cause", "consumer", "text", "to", "age_ms", fate="l.event"),
    **_when(_ENDS, ended_ms="l.time_ms", ended_step="l.step", ended_date="l.date"),
    "place": "l.place",
}
"""What a line says about its message. The greatest value of each column counts, except in these."""
_MESSAGE_COMBINED = {
    "first_dispatched_ms": "min(c.first_dispatched_ms)",
    "consumers": "coalesce(array_sort(array_distinct(flatten("
    "array_agg(c.consumers) FILTER (WHERE c.consumers IS NOT NULL)))), {array}())",
    "state": "max_by(c.state, c.place)",
}
_DELIVERY_KEY = ("partition", "delivery")
_DELIVERY = {
    **{name: f"l.{name}" for name in ("queue", "life", "sequence", "id")},
    **_when(_DISPATCHED, "consumer", "attempt", "handovers"),
    **_when(_DISPATCHED, handed_ms="l.time_ms", handed_step="l.step"),
    **_when(_SETTLES, how="l.event", settled_ms="l.time_ms", settled_step="l.step"),
    **_when(_SETTLES, settled_date="l.date"),
}
_SETTLED = ("how", "settled_ms", "settled_step", "settled_date")
_UNNAMED = {
    "partition": "m.partition",
    "delivery": "m.last_delivery",
    **{name: f"m.{name}" for name in ("queue", "life", "sequence", "id")},
    "how": "m.fate",
    "settled_ms": "m.ended_ms",
    "settled_step": "m.ended_step",
    "settled_date": "m.ended_date",
}

COLUMNS = {
    "messages": (
        *_MESSAGE_KEY, *(name for name in _MESSAGE if name != "place"), "last_offset", "last_line",
        "batch",
    ),
    "deliveries": (*_DELIVERY_KEY, *_DELIVERY, "held_ms", "batch"),
}  # fmt: skip
"""The columns of these tables, in the order of the queries."""


def closing_of(table: str, name_of: TableName, after: int, upto: int) -> str:
    """The rows of a closing: those that have ended since the last one, and all that are open.

    Messages are closed before deliveries. `after` is the batch of the last closing of this table
    (-1: none), `upto` that of this closing.
    """
    lines = f"batch > {after} AND batch <= {upto}"
    if table == "messages":
        return _messages(name_of, lines, upto, SPARK.array)
    closed = f"SELECT * FROM {name_of('messages')} WHERE batch > {after} AND batch <= {upto}"
    return _deliveries(name_of, lines, upto, closed)


class Dialect(NamedTuple):
    """Where the SQL of Spark and DuckDB differs."""

    array: str
    """The function that makes an array."""
    timestamp: str
    """An expression `{ms}` in ms since 1970 as a timestamp."""


SPARK = Dialect("array", "timestamp_millis({ms})")
DUCKDB = Dialect("list_value", "make_timestamptz({ms} * 1000)")


def view(name: str, name_of: TableName, since: Mapping[str, str], dialect: Dialect = SPARK) -> str:
    """The query of a view. It has each time also as a timestamp: `ended_at` beside `ended_ms`."""
    query, columns = _view(name, name_of, since, dialect.array)
    times = {
        f"{column.removesuffix('_ms').removesuffix('_at')}_at": f"v.{column}"
        for column in columns
        if column.endswith("_ms") and column not in _LENGTHS
    }
    if not times:
        return query
    timestamps = {at: dialect.timestamp.format(ms=ms) for at, ms in times.items()}
    return f"SELECT v.*, {select_list(timestamps)} FROM ({query}) v"


def _view(
    name: str, name_of: TableName, since: Mapping[str, str], array: str
) -> tuple[str, Sequence[str]]:
    """A view's query without timestamps, and its columns."""
    if name == "evictions":
        return _evictions(name_of)
    if name == "queue_minutes_now":
        return _queue_minutes(name_of)
    messages = _messages(name_of, since["messages"], None, array)
    messages = _with_ended(name_of, "messages", messages)
    if name == "messages_now":
        return messages, COLUMNS["messages"]
    recent = f"SELECT * FROM ({messages}) e WHERE batch IS NULL OR {since['deliveries']}"
    deliveries = _deliveries(name_of, since["deliveries"], None, recent)
    return _with_ended(name_of, "deliveries", deliveries), COLUMNS["deliveries"]


def _with_ended(name_of: TableName, table: str, rows: str) -> str:
    """The ended rows of a table, and these."""
    columns = select_list({name: f"t.{name}" for name in COLUMNS[table]})
    ended = f"SELECT {columns} FROM {name_of(table)} t WHERE t.{ENDED_ON[table]} IS NOT NULL"
    return f"{ended} UNION ALL {rows}"


def _lines(name_of: TableName, where: str) -> str:
    """Transitions with `life`."""
    return with_lives(name_of, f"SELECT * FROM {name_of('transitions')} WHERE {where}")


def with_lives(name_of: TableName, lines: str) -> str:
    """Lines with `life`, the step in which the queue was last deleted before, or 0."""
    return f"""
SELECT t.*, coalesce(d.begins, 0) AS life
FROM ({lines}) t LEFT JOIN (
    SELECT partition, queue, step AS begins,
           lead(step) OVER (PARTITION BY partition, queue ORDER BY step) AS ends
    FROM (SELECT DISTINCT partition, queue, step FROM {name_of("deletions")}) each
) d ON t.partition = d.partition AND t.queue = d.queue
   AND t.step > d.begins AND (d.ends IS NULL OR t.step <= d.ends)"""


def select_list(values: Mapping[str, str]) -> str:
    """SQL: the values as columns with these names."""
    return ", ".join(f"{value} AS {name}" for name, value in values.items())


def _batch(upto: int | None) -> str:
    return "CAST(NULL AS BIGINT)" if upto is None else f"CAST({upto} AS BIGINT)"


def _messages(name_of: TableName, where: str, upto: int | None, array: str) -> str:
    key = {name: f"l.{name}" for name in _MESSAGE_KEY}
    open_ = {name: f"m.{name}" for name in (*_MESSAGE_KEY, *_MESSAGE)}
    open_["place"] = f"m.last_offset * {_RECORD_LINES} + m.last_line"
    combined = {name: f"max(c.{name})" for name in _MESSAGE} | _MESSAGE_COMBINED
    combined["consumers"] = combined["consumers"].format(array=array)
    kept = {name: f"g.{name}" for name in COLUMNS["messages"]}
    kept |= {
        "last_offset": f"g.place >> {_RECORD_LINES.bit_length() - 1}",
        "last_line": f"CAST(g.place & {_RECORD_LINES - 1} AS INT)",
        "batch": _batch(upto),
    }
    return f"""
SELECT {select_list(kept)} FROM (
    SELECT {select_list({n: f"c.{n}" for n in _MESSAGE_KEY} | combined)} FROM (
        SELECT {select_list(open_)} FROM {name_of("messages")} m WHERE m.ended_date IS NULL
        UNION ALL
        SELECT {select_list(key | _MESSAGE).format(array=array)} FROM (
            SELECT n.*, n.offset * {_RECORD_LINES} + n.line AS place, {STATE_AFTER} AS state
            FROM ({_lines(name_of, f"{where} AND sequence IS NOT NULL")}) n
        ) l WHERE l.state IS NOT NULL
    ) c GROUP BY {", ".join(f"c.{name}" for name in reversed(_MESSAGE_KEY))}
) g"""  # grouped first by the column that distinguishes most messages


def _deliveries(name_of: TableName, where: str, upto: int | None, messages: str) -> str:
    key = {name: f"l.{name}" for name in _DELIVERY_KEY}
    every = (*_DELIVERY_KEY, *_DELIVERY)
    unnamed = {name: _UNNAMED.get(name, "NULL") for name in every}
    combined = {name: f"max(c.{name})" for name in _DELIVERY}
    for name in _SETTLED:
        combined[name] = f"coalesce(max(c.{name}) FILTER (WHERE NOT {_LOST}), max(c.{name}))"
    kept = {name: f"g.{name}" for name in every}
    kept |= {"held_ms": "g.settled_ms - g.handed_ms", "batch": _batch(upto)}
    about = f"{where} AND ({_DISPATCHED} OR {_SETTLES})"
    return f"""
SELECT {select_list(kept)} FROM (
    SELECT {select_list({n: f"c.{n}" for n in _DELIVERY_KEY} | combined)} FROM (
        SELECT {select_list({n: f"d.{n}" for n in every})} FROM {name_of("deliveries")} d
        WHERE d.settled_date IS NULL
        UNION ALL
        SELECT {select_list(key | _DELIVERY)} FROM ({_lines(name_of, about)}) l
        UNION ALL
        SELECT {select_list(unnamed)} FROM ({messages}) m
        WHERE {_ENDS_UNNAMED} AND m.last_delivery IS NOT NULL
    ) c GROUP BY {", ".join(f"c.{name}" for name in reversed(_DELIVERY_KEY))}
    HAVING count(*) > count(*) FILTER (WHERE {_LOST})
) g"""  # a delivery of which there is no more has ended before the last closing


def _queue_minutes(name_of: TableName) -> tuple[str, Sequence[str]]:
    key = ("partition", "queue", "minute", "date")
    sums = (*COUNTED, "added_bytes", "evicted_age_ms_sum")
    columns = {name: f"m.{name}" for name in key[:3]}
    columns |= {name: f"CAST(sum(m.{name}) AS BIGINT)" for name in sums}
    columns |= {
        f"evicted_age_ms_{least}": f"{least}(m.evicted_age_ms_{least})" for least in _BOUNDS
    }
    columns |= {name: f"max_by(m.{name}, m.batch)" for name in HELD_STATES}
    columns["ring_size"] = "max_by(m.ring_size, m.batch) FILTER (WHERE m.ring_size IS NOT NULL)"
    columns |= {"batch": "max(m.batch)", "date": "m.date"}
    grouped = ", ".join(f"m.{name}" for name in key)
    rows = f"FROM {name_of('queue_minutes')} m GROUP BY {grouped}"
    return f"SELECT {select_list(columns)} {rows}", ()


def _evictions(name_of: TableName) -> tuple[str, Sequence[str]]:
    lines = _lines(name_of, "event = 'evicted'")
    columns = {name: f"l.{name}" for name in ("partition", "queue", "life", "sequence", "id")}
    columns |= {"enqueued_ms": "l.time_ms - l.age_ms", "evicted_ms": "l.time_ms"}
    kept = ("step", "reason", "cause", "ready", "ring_size", "age_ms", "handovers", "date")
    columns |= {name: f"l.{name}" for name in kept}
    return f"SELECT {select_list(columns)} FROM ({lines}) l", tuple(columns)
