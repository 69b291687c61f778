"""What the queues hold at a closing, and what they have counted, so that `rewind` can begin there.

A closing leaves in `queue_counts` a row for each queue, and in `open_lines` those lines about the
messages it holds that decide what they are: the entry, when they came due, the last dispatch and
the last line. So each closing needs the one before, and the lines since then.
"""

from __future__ import annotations

from ringfaust.core.model import COUNTS, HELD_STATES
from ringfaust.protocol.lifecycle import ENTRY_EVENTS, EXIT_EVENTS
from ringfaust.spark.lake.queries import GoldQueries
from ringfaust.spark.lake.tables import OPEN_LINES, QUEUE_COUNTS
from ringfaust.spark.lake.views import TableName, with_lives
from ringfaust.spark.lines import REFUSAL
from ringfaust.spark.message_states import any_of

_KEY = ("partition", "queue", "life")
_LAST = ("last_sequence", "step", "time_ms")


def write(queries: GoldQueries, batch: int) -> None:
    """Write what is open at a closing, unless it is there.

    Args:
        queries: run its queries.
        batch: `messages` is closed up to it.
    """
    after = queries.last_closing(QUEUE_COUNTS.name)
    if after < batch:
        name_of = queries.name_of
        closing = _Closing(name_of, after, batch)
        queries.append(closing.open_lines(), OPEN_LINES, batch)
        queries.append(closing.counts(), QUEUE_COUNTS, batch)  # last: `after` is read from it


class _Closing:
    """The queries of a closing.

    Args:
        name_of: how SQL refers to a table.
        after: the batch of the closing before; -1: none.
        batch: the batch of this one.
    """

    def __init__(self, name_of: TableName, after: int, batch: int) -> None:
        self._name_of = name_of
        self._before = f"batch = {after}"
        self._since = f"batch > {after} AND batch <= {batch}"
        last = f"SELECT max(date) FROM {name_of('transitions')} WHERE {self._since}"
        self._stamp = f"CAST({batch} AS BIGINT) AS batch, ({last}) AS date"

    def open_lines(self) -> str:
        """The lines about the messages that are held."""
        columns = [name for name in OPEN_LINES.schema.names if name not in ("batch", "date")]
        names = ", ".join(f"`{name}`" for name in columns)
        earlier = f"SELECT {names} FROM {self._name_of('open_lines')} WHERE {self._before}"
        since = f"""SELECT {names} FROM {self._name_of("transitions")}
            WHERE {self._since} AND sequence IS NOT NULL"""
        lines = with_lives(self._name_of, f"{earlier} UNION ALL {since}")
        same = " AND ".join(f"l.{name} = m.{name}" for name in (*_KEY, "sequence"))
        return f"""
SELECT {", ".join(f"l.`{name}`" for name in columns)}, {self._stamp}
FROM ({lines}) l JOIN {self._name_of("messages")} m ON {same}
WHERE m.ended_date IS NULL AND ({any_of(ENTRY_EVENTS)} OR event = 'due'
    OR (event = 'dispatched' AND l.delivery = m.last_delivery)
    OR (l.offset = m.last_offset AND l.line = m.last_line))"""

    def counts(self) -> str:
        """The counts of each queue (R100), and the last that is known of it."""
        counted = (*HELD_STATES, *EXIT_EVENTS, "refused")
        sums = {name: f"CAST(sum(c.{name}) AS BIGINT)" for name in counted}
        sums["added"] = " + ".join(sums[name] for name in (*HELD_STATES, *EXIT_EVENTS))
        columns = ", ".join(f"{sums[name]} AS {name}" for name in COUNTS)
        columns += "".join(f", max(c.{name}) AS {name}" for name in _LAST)
        keys = ", ".join(f"c.{name}" for name in _KEY)
        rows = " UNION ALL ".join((self._counted_before(), self._messages(), self._others()))
        return f"""
SELECT {keys}, {columns}, {self._stamp} FROM ({rows}) c LEFT JOIN (
    SELECT partition, queue, max(step) AS step FROM {self._name_of("deletions")}
    GROUP BY partition, queue
) d ON c.partition = d.partition AND c.queue = d.queue
WHERE c.life >= coalesce(d.step, 0) GROUP BY {keys}"""

    def _counted_before(self) -> str:
        held = dict.fromkeys(HELD_STATES, "0")
        table = self._name_of("queue_counts")
        return f"SELECT {_row(**held)} FROM {table} t WHERE {self._before}"

    def _messages(self) -> str:
        """A row for each message that is held, or has ended since."""
        counts: dict[str, str] = {name: f"CAST(state = '{name}' AS INT)" for name in HELD_STATES}
        counts |= {name: f"CAST(coalesce(fate = '{name}', false) AS INT)" for name in EXIT_EVENTS}
        others = {"refused": "0", "last_sequence": "t.sequence", "step": "0", "time_ms": "0"}
        return f"""SELECT {_row(**counts, **others)} FROM {self._name_of("messages")} t
            WHERE ended_date IS NULL OR ({self._since})"""

    def _others(self) -> str:
        """What the messages do not say of their queue."""
        lines = f"""SELECT * FROM {self._name_of("transitions")}
            WHERE {self._since} AND queue <> ''"""
        zeros = dict.fromkeys((*HELD_STATES, *EXIT_EVENTS, "last_sequence"), "0")
        # A line that is there twice counts once.
        refused = f"count(DISTINCT t.step, t.id, t.source) FILTER (WHERE {REFUSAL})"
        row = _row(**zeros, refused=refused, step="max(t.step)", time_ms="max(t.time_ms)")
        keys = ", ".join(f"t.{name}" for name in _KEY)
        return f"SELECT {row} FROM ({with_lives(self._name_of, lines)}) t GROUP BY {keys}"


def _row(**values: str) -> str:
    """The columns of a row that is to be added up: those of the table `t`, or these."""
    names = (*_KEY, *HELD_STATES, *EXIT_EVENTS, "refused", *_LAST)
    return ", ".join(f"{values.get(name, f't.{name}')} AS {name}" for name in names)
