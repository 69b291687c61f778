"""Which messages wait for their time: an exit line does not say whether its message did."""

from __future__ import annotations

from ringfaust.protocol.lifecycle import ENDED
from ringfaust.spark.lake.queries import ALL, GoldQueries
from ringfaust.spark.lake.tables import SCHEDULED
from ringfaust.spark.message_states import STATE_AFTER

IS_UNDUE = "(event = 'evicted' AND reason = 'scheduled_overflow' AND cause = '')"
"""SQL: a due message had no room. With a cause, another message was evicted for it."""
LEFT = f"state = '{ENDED}' AND was = 'scheduled' AND NOT {IS_UNDUE}"
"""SQL on `followed`: with this line a scheduled message left its queue."""
_KEY = ", ".join(SCHEDULED.schema.names)


def followed(queries: GoldQueries) -> str:
    """The batch's lines about messages that were scheduled before it, or are scheduled in it.

    Each has the message's state after it (`state`) and before (`was`). Sequence numbers need no
    lifecycle here: nothing outlives the deletion of its queue.
    """
    lines = f"""(
        SELECT {_KEY}, x.offset, line, time_ms, event, coalesce(reason, '') AS reason,
               coalesce(cause, '') AS cause, {STATE_AFTER} AS state
        FROM lines x WHERE sequence IS NOT NULL)"""
    of_message = "OVER (PARTITION BY l.partition, l.queue, l.sequence ORDER BY l.offset, l.line)"
    return f"""
SELECT l.*, coalesce(lag(l.state) {of_message}, k.waited) AS was,
       lead(l.state) {of_message} IS NULL AS is_last
FROM {lines} l JOIN (
    SELECT {_KEY}, max(waited) AS waited FROM (
        SELECT {_KEY}, 'scheduled' AS waited FROM {queries.name_of("scheduled")}
        UNION ALL
        SELECT {_KEY}, CAST(NULL AS STRING) FROM {lines} b WHERE b.state = 'scheduled'
    ) each GROUP BY {_KEY}
) k ON {_same("l", "k")}
WHERE l.state IS NOT NULL"""


def write(queries: GoldQueries, batch: int) -> None:
    """Replace the table `scheduled` by the messages that are scheduled after the batch."""
    waiting = f"""
SELECT {_KEY} FROM {queries.name_of("scheduled")} b
WHERE NOT EXISTS (SELECT 1 FROM followed f WHERE {_same("f", "b")})
UNION ALL
SELECT {_KEY} FROM followed WHERE is_last AND state = 'scheduled'"""
    queries.append(waiting, SCHEDULED, batch, replace=ALL)


def _same(one: str, other: str) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in SCHEDULED.schema.names)
