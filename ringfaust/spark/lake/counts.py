"""What each queue has counted at a closing, so that `rewind` need not begin with its first message.

A row also says which is the oldest message that the queue holds. The lines about that message and
later ones, and all lines after the closing, then say as much as all lines.
"""

from __future__ import annotations

from ringfaust.core.model import COUNTS, HELD_STATES
from ringfaust.protocol.lifecycle import EXIT_EVENTS
from ringfaust.spark.lake.queries import GoldQueries
from ringfaust.spark.lake.tables import QUEUE_COUNTS
from ringfaust.spark.lake.views import TableName, with_lives
from ringfaust.spark.lines import REFUSAL

_KEY = ("partition", "queue", "life")
_EXITS = (*EXIT_EVENTS, "refused")
_SUMMED = (*HELD_STATES, *_EXITS)
_ROW = (*_KEY, *_SUMMED, "last_sequence", "oldest_sequence", "step", "time_ms")


def write(queries: GoldQueries, batch: int) -> None:
    """Write the counts at a closing, unless they are there.

    `messages` is closed up to the batch.
    """
    after = queries.last_closing(QUEUE_COUNTS.name)
    if after < 0 and queries.rows(f"SELECT min(batch) FROM {queries.name_of('transitions')}")[0][0]:
        return  # a lake of an older version, whose first lines a retention has deleted
    if after < batch:
        queries.append(_counts(queries.name_of, after, batch), QUEUE_COUNTS, batch)


def _counts(name_of: TableName, after: int, upto: int) -> str:
    """The counts of the closing before, and what has happened since.

    A queue has no row if its messages do not add up: if a ring job has repeated lines (ADR 32).
    """
    since = f"batch > {after} AND batch <= {upto}"
    lines = f"SELECT * FROM {name_of('transitions')} WHERE {since}"
    rows = (_earlier(name_of, after), _messages(name_of, since), _refused(name_of, lines))
    sums = {name: f"CAST(sum(c.{name}) AS BIGINT)" for name in _SUMMED}
    sums["added"] = " + ".join(sums[name] for name in (*HELD_STATES, *EXIT_EVENTS))
    counts = ", ".join(f"{sums[name]} AS {name}" for name in COUNTS)
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


_NOTHING = "CAST(NULL AS BIGINT)"


def _row(table: str, values: dict[str, str]) -> str:
    """Rows to be added up, with these values beside the key."""
    values = {**{name: f"t.{name}" for name in _KEY}, **values}
    columns = ", ".join(f"{values.get(name, _NOTHING)} AS {name}" for name in _ROW)
    return f"SELECT {columns} FROM {table}"
