"""Transitions → what happened in each queue in each minute, and its depths at the minute's end."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.core.model import HELD_STATES
from ringfaust.protocol.lifecycle import ENDED
from ringfaust.spark.frames import kept
from ringfaust.spark.lake.store import ALL, append_gold
from ringfaust.spark.lake.tables import QUEUE_MINUTES, QUEUES, SCHEDULED, path, sql_name
from ringfaust.spark.lake.views import COUNTED, select_list
from ringfaust.spark.lines import REFUSAL, STATE_AFTER

_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
_MINUTE_OF = f"time_ms - time_ms % {_MINUTE_MS}"

_IS_UNDUE = "(event = 'evicted' AND reason = 'scheduled_overflow' AND cause = '')"
"""SQL: a due message had no room. With a cause, another message was evicted for it."""
_LEFT = f"state = '{ENDED}' AND was = 'scheduled' AND NOT {_IS_UNDUE}"
"""SQL on `followed`: with this line a scheduled message left its queue."""
_SCHEDULED_KEY = ", ".join(SCHEDULED.schema.names)

_ADDED = "event IN ('added', 'scheduled')"
_DELAYED = "(event = 'returned' AND coalesce(due_ms > 0, false))"
_FROM_DELIVERY = """(event IN ('acked', 'dead', 'returned')
    OR (event = 'expired' AND coalesce(delivery > 0, false))
    OR (event = 'lost' AND coalesce(delivery > 0, by <> 'start'))
    OR (event = 'evicted' AND coalesce(reason, '') = 'return_overflow'))"""
_FROM_READY = f"""(event = 'dispatched'
    OR (event IN ('evicted', 'expired', 'removed', 'moved_out', 'lost')
        AND NOT {_FROM_DELIVERY} AND NOT {_IS_UNDUE}))"""
_IS_NO_USE = "event IN ('refused', 'unrouted', 'pending', 'configured_address', 'misplaced')"
"""SQL: such a line may name a queue that does not exist."""
_PLACE = "struct(offset, line)"
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
        (-1, _IS_UNDUE),
    ),
}
"""By depth, the lines that raise or lower it.

An exit line does not say whether its message was ready or scheduled: it counts as one of a ready
message, and `followed` corrects it. That of a lost one names its delivery if a consumer held it
(R82). Old lines do not: those of a start count as ones of messages that no consumer held.
"""


def write(spark: SparkSession, root: str, batch: int) -> tuple[str, str, int] | None:
    """Append the batch to `queue_minutes`, and replace `queues`. Its transitions are `lines`.

    A minute has a row for each batch with lines of it. The view `queue_minutes_now` adds them up.

    Returns:
        The first and the last day of the lines about queues, as YYYY-MM-DD, and how many of them
        delete a queue; None if there are no such lines.
    """
    with ExitStack() as stack:
        _keep(stack, spark, "counted", _counted())
        first_ms, last_ms, deletions, schedulings = spark.sql(
            "SELECT min(minute_ms), max(minute_ms), sum(deletions), sum(schedulings) FROM counted"
        ).collect()[0]
        if first_ms is None:
            return None
        follows = bool(schedulings) or _has_files(spark, root, "scheduled")
        if follows:
            _keep(stack, spark, "followed", _followed(root))
        counted = _corrected() if follows else "SELECT *, 0 AS moved FROM counted"
        append_gold(spark, root, _with_depths(root, counted), QUEUE_MINUTES, batch)
        # Not from the rows of queue_minutes: they depend on `queues`, and replacing it makes Spark
        # compute them again.
        append_gold(spark, root, _depths(root, counted), QUEUES, batch, replace=ALL)
        if follows:  # last: it replaces what the above depends on
            append_gold(spark, root, _waiting(root), SCHEDULED, batch, replace=ALL)
    return _day(first_ms), _day(last_ms), deletions


def _keep(stack: ExitStack, spark: SparkSession, name: str, query: str) -> None:
    """Let queries refer to this query by a name, and compute it only once."""
    stack.enter_context(kept(spark.sql(query))).createOrReplaceTempView(name)


def _has_files(spark: SparkSession, root: str, table: str) -> bool:
    """Whether a table has rows. It is known to Delta, unlike their number."""
    about = DeltaTable.forPath(spark, path(root, table)).detail()
    return bool(about.select("numFiles").collect()[0][0])


def _day(minute_ms: int) -> str:
    return datetime.fromtimestamp(minute_ms / 1000, UTC).date().isoformat()


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
    counts["is_gone"] = f"max_by(event = 'deleted', {_PLACE}) FILTER (WHERE NOT {_IS_NO_USE})"
    counts["batch"] = "max(batch)"  # Spark would compile a literal again for each batch
    return f"""
SELECT partition, queue, {_MINUTE_OF} AS minute_ms, {select_list(counts)} FROM lines
WHERE queue IS NOT NULL AND queue <> '' AND time_ms IS NOT NULL
  AND NOT ({REFUSAL})
GROUP BY partition, queue, {_MINUTE_OF}"""


def _corrected() -> str:
    """The counts; lines with which a scheduled message left count as such."""
    return f"""
SELECT c.*, coalesce(m.moved, 0) AS moved FROM counted c LEFT JOIN (
    SELECT partition, queue, {_MINUTE_OF} AS minute_ms, count(*) AS moved
    FROM followed WHERE {_LEFT} GROUP BY partition, queue, {_MINUTE_OF}
) m ON c.partition = m.partition AND c.queue = m.queue AND c.minute_ms = m.minute_ms"""


_CHANGED = {
    "ready": "c.ready_change + c.moved",
    "delivering": "c.delivering_change",
    "scheduled": "c.scheduled_change - c.moved",
}
"""By depth, its change in a minute: `moved` scheduled messages have left, not ready ones."""


def _with_depths(root: str, counted: str) -> str:
    """The columns of `queue_minutes`, with the depths at the end of each minute."""
    so_far = "OVER (PARTITION BY c.partition, c.queue ORDER BY c.minute_ms)"
    columns = {name: f"c.{name}" for name in QUEUE_MINUTES.schema.names}
    columns |= {
        name: f"CAST(coalesce(q.{name}, 0) + sum({_CHANGED[name]}) {so_far} AS BIGINT)"
        for name in HELD_STATES
    }
    columns["minute"] = "timestamp_millis(c.minute_ms)"
    columns["date"] = f"DATE '1970-01-01' + CAST(floor(c.minute_ms / {_DAY_MS}) AS INT)"
    return f"""
SELECT {select_list(columns)} FROM ({counted}) c
LEFT JOIN {sql_name(root, "queues")} q
ON c.partition = q.partition AND c.queue = q.queue"""


def _depths(root: str, counted: str) -> str:
    """The current depths of all queues. A batch's last line of a queue's use may delete it."""
    sums = select_list({name: f"CAST(sum({name}) AS BIGINT)" for name in HELD_STATES})
    changes = select_list(_CHANGED)
    return f"""
SELECT partition, queue, {sums}, max(last_minute) AS last_minute, max(batch) AS batch FROM (
    SELECT partition, queue, {", ".join(HELD_STATES)}, last_minute, batch,
           -1 AS minute_ms, false AS is_gone
    FROM {sql_name(root, "queues")}
    UNION ALL
    SELECT c.partition, c.queue, {changes}, timestamp_millis(c.minute_ms) AS last_minute, c.batch,
           c.minute_ms, c.is_gone
    FROM ({counted}) c
) each GROUP BY partition, queue
HAVING NOT coalesce(max_by(is_gone, minute_ms) FILTER (WHERE is_gone IS NOT NULL), true)"""


# --- messages that wait for their time ------------------------------------------------------------
# An exit line does not say whether its message did.


def _followed(root: str) -> str:
    """The batch's lines about messages that were scheduled before it, or are scheduled in it.

    Each has the message's state after it (`state`) and before (`was`). Sequence numbers need no
    lifecycle here: nothing outlives the deletion of its queue.
    """
    lines = f"""(
        SELECT {_SCHEDULED_KEY}, x.offset, line, time_ms, event, coalesce(reason, '') AS reason,
               coalesce(cause, '') AS cause, {STATE_AFTER} AS state
        FROM lines x WHERE sequence IS NOT NULL)"""
    of_message = "OVER (PARTITION BY l.partition, l.queue, l.sequence ORDER BY l.offset, l.line)"
    return f"""
SELECT l.*, coalesce(lag(l.state) {of_message}, k.waited) AS was,
       lead(l.state) {of_message} IS NULL AS is_last
FROM {lines} l JOIN (
    SELECT {_SCHEDULED_KEY}, max(waited) AS waited FROM (
        SELECT {_SCHEDULED_KEY}, 'scheduled' AS waited FROM {sql_name(root, "scheduled")}
        UNION ALL
        SELECT {_SCHEDULED_KEY}, CAST(NULL AS STRING) FROM {lines} b WHERE b.state = 'scheduled'
    ) each GROUP BY {_SCHEDULED_KEY}
) k ON {_same("l", "k")}
WHERE l.state IS NOT NULL"""


def _waiting(root: str) -> str:
    """The messages that are scheduled after the batch: the table `scheduled`."""
    return f"""
SELECT {_SCHEDULED_KEY} FROM {sql_name(root, "scheduled")} b
WHERE NOT EXISTS (SELECT 1 FROM followed f WHERE {_same("f", "b")})
UNION ALL
SELECT {_SCHEDULED_KEY} FROM followed WHERE is_last AND state = 'scheduled'"""


def _same(one: str, other: str) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in SCHEDULED.schema.names)
