"""Transitions → what happened in each queue in each minute, and its depths at the minute's end.

The queries are SQL that both engines of gold understand (`lake.engine`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

from ringfaust.core.model import HELD_STATES
from ringfaust.spark.lake import schedule
from ringfaust.spark.lake.engine import GoldEngine
from ringfaust.spark.lake.tables import COUNTED, QUEUE_MINUTES, QUEUES

_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
_MINUTE_OF = f"time_ms - time_ms % {_MINUTE_MS}"

_ADDED = "event IN ('added', 'scheduled')"
_DELAYED = "(event = 'returned' AND coalesce(due_ms > 0, false))"
_FROM_DELIVERY = """(event IN ('acked', 'dead', 'returned')
    OR (event = 'expired' AND coalesce(delivery > 0, false))
    OR (event = 'evicted' AND coalesce(reason, '') = 'return_overflow'))"""
_FROM_READY = f"""(event = 'dispatched'
    OR (event IN ('evicted', 'expired', 'removed', 'moved_out', 'lost')
        AND NOT {_FROM_DELIVERY} AND NOT {schedule.IS_UNDUE}))"""
_EVICTED = "FILTER (WHERE event = 'evicted')"
_CHANGES = {
    "ready": (
        (1, "event IN ('added', 'due')"),
        (1, f"event = 'returned' AND NOT {_DELAYED}"),
        (-1, _FROM_READY),
    ),
    "delivering": ((1, "event = 'dispatched'"), (-1, _FROM_DELIVERY)),
    "scheduled": (
        (1, "event = 'scheduled'"),
        (1, _DELAYED),
        (-1, "event = 'due'"),
        (-1, schedule.IS_UNDUE),
    ),
}
"""By depth, the lines that raise or lower it.

An exit line does not say whether its message was ready or scheduled: it counts as one of a ready
message, and `schedule` corrects it.
"""


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """What a batch of transitions contains."""

    first_ms: int
    """The first minute, in ms since 1970."""
    last_ms: int
    """The last minute."""
    deletions: int
    """Lines with which a queue is deleted."""
    schedulings: int
    """Lines with which a message begins to wait for its time."""

    @property
    def first_day(self) -> str:
        """The day of the first minute, as YYYY-MM-DD."""
        return _day(self.first_ms).isoformat()

    @property
    def last_day(self) -> str:
        """The day of the last minute, as YYYY-MM-DD."""
        return _day(self.last_ms).isoformat()


def write(engine: GoldEngine, batch: int) -> BatchSummary | None:
    """Merge the batch into `queue_minutes` and `queues`.

    A row stores the last batch that it includes, so merging that batch again does not change it.

    Args:
        engine: has the batch's transitions as `lines`.
        batch: its number.

    Returns:
        None if the batch has no lines about queues.
    """
    engine.keep("counted", _counted())
    found = engine.rows(
        "SELECT min(minute_ms), max(minute_ms), CAST(sum(deletions) AS BIGINT), "
        "CAST(sum(schedulings) AS BIGINT) FROM counted"
    )[0]
    if found[0] is None:
        return None
    summary = BatchSummary(*found)
    counted, follows = "SELECT * FROM counted", False
    if summary.schedulings or engine.rows(f"SELECT 1 FROM {engine.name_of('scheduled')} LIMIT 1"):
        engine.keep("followed", schedule.followed(engine))
        counted, follows = _corrected(), True
    engine.keep("rows_of_minutes", _with_depths(engine, counted, batch))
    since = {
        "minute": datetime.fromtimestamp(summary.first_ms / 1000, UTC),
        "date": _day(summary.first_ms),
    }
    key = ("partition", "queue", "minute")
    engine.merge("rows_of_minutes", QUEUE_MINUTES, batch, key=key, update=_UPDATE, since=since)
    _merge_queues(engine, batch)
    if follows:  # last: it replaces what the above depends on
        schedule.write(engine, batch)
    return summary


def _day(minute_ms: int) -> date:
    return datetime.fromtimestamp(minute_ms / 1000, UTC).date()


def _counted() -> str:
    """By queue and minute: counts of events, and the change of each depth."""
    counts = {name: f"count(*) FILTER (WHERE event = '{name}')" for name in COUNTED}
    counts["added"] = f"count(*) FILTER (WHERE {_ADDED})"
    counts["redelivered"] = "count(*) FILTER (WHERE event = 'dispatched' AND handovers > 1)"
    counts["added_bytes"] = f"CAST(sum(size_bytes) FILTER (WHERE {_ADDED}) AS BIGINT)"
    counts["evicted_age_ms_sum"] = f"CAST(sum(age_ms) {_EVICTED} AS BIGINT)"
    counts["evicted_age_ms_min"] = f"min(age_ms) {_EVICTED}"
    counts["evicted_age_ms_max"] = f"max(age_ms) {_EVICTED}"
    counts["ring_size"] = f"max_by(ring_size, step) {_EVICTED}"
    counts["deletions"] = "count(*) FILTER (WHERE event = 'deleted')"
    counts["schedulings"] = f"count(*) FILTER (WHERE event = 'scheduled' OR {_DELAYED})"
    for depth, terms in _CHANGES.items():
        signed = " + ".join(f"CASE WHEN {term} THEN {sign} ELSE 0 END" for sign, term in terms)
        counts[f"{depth}_change"] = f"CAST(sum({signed}) AS BIGINT)"
    columns = ", ".join(f"{value} AS {name}" for name, value in counts.items())
    return f"""
SELECT partition, queue, {_MINUTE_OF} AS minute_ms, {columns} FROM lines
WHERE queue IS NOT NULL AND queue <> '' AND time_ms IS NOT NULL
  AND NOT (event = 'dead' AND sequence IS NULL)
GROUP BY partition, queue, {_MINUTE_OF}"""


def _corrected() -> str:
    """The counts; lines with which a scheduled message left count as such."""
    return f"""
SELECT c.*, coalesce(m.moved, 0) AS moved FROM counted c LEFT JOIN (
    SELECT partition, queue, {_MINUTE_OF} AS minute_ms, count(*) AS moved
    FROM followed WHERE {schedule.LEFT} GROUP BY partition, queue, {_MINUTE_OF}
) m ON c.partition = m.partition AND c.queue = m.queue AND c.minute_ms = m.minute_ms"""


def _with_depths(engine: GoldEngine, counted: str, batch: int) -> str:
    """The columns of `queue_minutes`, with the depths at the end of each minute."""
    moved = "c.moved" if "moved" in counted else "0"
    change = {
        "ready": f"c.ready_change + {moved}",
        "delivering": "c.delivering_change",
        "scheduled": f"c.scheduled_change - {moved}",
    }
    so_far = "OVER (PARTITION BY c.partition, c.queue ORDER BY c.minute_ms)"
    columns = {name: f"c.{name}" for name in QUEUE_MINUTES.schema.names}
    columns |= {
        name: f"CAST(coalesce(q.{name}, 0) + sum({change[name]}) {so_far} AS BIGINT)"
        for name in HELD_STATES
    }
    columns["minute"] = engine.timestamp("c.minute_ms")
    columns["date"] = f"DATE '1970-01-01' + CAST(floor(c.minute_ms / {_DAY_MS}) AS INT)"
    columns["batch"] = f"CAST({batch} AS BIGINT)"
    selected = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    return f"""
SELECT {selected} FROM ({counted}) c
LEFT JOIN (SELECT * FROM {engine.name_of("queues")} WHERE batch < {batch}) q
ON c.partition = q.partition AND c.queue = q.queue"""


_UPDATE = {
    **{
        name: f"coalesce(t.{name} + s.{name}, t.{name}, s.{name})"
        for name in (*COUNTED, "added_bytes", "evicted_age_ms_sum")
    },
    **{name: f"s.{name}" for name in (*HELD_STATES, "batch")},
    "evicted_age_ms_min": "least(t.evicted_age_ms_min, s.evicted_age_ms_min)",
    "evicted_age_ms_max": "greatest(t.evicted_age_ms_max, s.evicted_age_ms_max)",
    "ring_size": "coalesce(s.ring_size, t.ring_size)",
}


def _merge_queues(engine: GoldEngine, batch: int) -> None:
    """The current depths of each queue."""
    latest = ", ".join(f"max_by({name}, minute) AS {name}" for name in (*HELD_STATES, "batch"))
    engine.keep(
        "rows_of_queues",
        f"SELECT partition, queue, {latest}, max(minute) AS last_minute FROM rows_of_minutes "
        "GROUP BY partition, queue",
    )
    update = {name: f"s.{name}" for name in (*HELD_STATES, "batch", "last_minute")}
    engine.merge("rows_of_queues", QUEUES, batch, key=("partition", "queue"), update=update)
