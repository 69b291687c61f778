"""The replay from a lake in DuckDB: as the replay of the same lines without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.errors import BadSetting
from ringfaust.spark.lake.tables import TRANSITIONS
from ringfaust.spark.rewind.replay import EventLine, IncompleteHistory
from ringfaust.spark.rewind.with_duckdb import replay
from ringfaust.spark.vendor import to_arrow_schema
from tests.spark.rewind_log import QUEUES
from tests.spark.test_rewind_replay import Steps, busy_lines, evictions, replayed

LARGE = {"large": {"ring_size": 8}}
CATALOG = Catalog(QUEUES, {})


def _lake(history: dict[str, Steps]) -> duckdb.DuckDBPyConnection:
    """A lake whose transitions are these lines, in no order."""
    rows = [
        {"partition": 0, "queue": queue, "offset": step[0].step, "line": number} | line
        for queue, steps in history.items()
        for step in steps
        for number, line in enumerate(_written(step))
    ]
    connection = duckdb.connect()
    schema = to_arrow_schema(TRANSITIONS.schema)
    connection.register("transitions", pa.Table.from_pylist(rows[::-1], schema))
    return connection


def _written(step: list[EventLine]) -> Iterator[dict[str, Any]]:
    """The lines of a step as with `clock: log`: only `done` says that a record was a tick."""
    tick = step[0].by == "tick"
    of_step = {"step": step[0].step, "time_ms": step[0].time_ms}
    of_step["by"] = f"clock/0/{step[0].step}" if tick else step[0].by
    for line in step:
        yield line._asdict() | of_step | {"command": None}
    command = "tick" if tick else step[0].command
    if command:
        yield of_step | {"event": "done", "command": command, "queue": None}
    yield of_step | {"event": "refused", "reason": "bad_command"}
    yield of_step | {"event": "dead", "reason": "limit"}


def test_each_queue_is_replayed_as_without_a_lake() -> None:
    history = busy_lines(3, 800)
    lake = _lake(history)
    for queue, steps in history.items():
        found = replay(lake, queue, CATALOG, LARGE).to_pylist()
        for variant, changes in {"as it was": {}, "history": {}, **LARGE}.items():
            evicted = [
                (row["step"], row["sequence"], row["id"], row["reason"])
                for row in found
                if row["variant"] == variant and row["event"] == "evicted"
            ]
            assert evicted == evictions(replayed(steps, QUEUES[queue], changes)), (queue, variant)


def test_a_lake_that_lacks_the_first_messages_is_refused() -> None:
    lines = [[EventLine(9, "added", 1, "in/0/9", None, 7, "m7", 1, 4, 100)]]
    with pytest.raises(IncompleteHistory, match="queue 'plain', partition 0: message 7 follows 0"):
        replay(_lake({"plain": lines}), "plain", CATALOG, LARGE)


def test_a_setting_that_acts_through_consumers_is_refused() -> None:
    with pytest.raises(BadSetting, match="redelivery_delay"):
        replay(_lake({}), "plain", CATALOG, {"slower": {"redelivery_delay": 10}})
