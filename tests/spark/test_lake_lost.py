"""What there is no more: messages that were lost in a crash (R82), and queues."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.model import Message
from ringfaust.protocol.events import WRITERS, event_tail
from ringfaust.spark.lake import gold
from ringfaust.spark.lake.with_duckdb import open_duckdb
from tests.spark.batched_lake import BatchedLake
from tests.spark.lake_history import LakeHistory

DAY_MS = 86_400_000


def receive(history: LakeHistory, consumer: str, credit: int) -> list[Message]:
    """What a new consumer gets."""
    effects = history.do(c.Attach("b", consumer, credit))
    return [each.delivery.message for each in effects if isinstance(each, e.Dispatched)]


def lose(history: LakeHistory, message: Message, by: str, delivery: int = 0) -> None:
    text = WRITERS[e.Lost](e.Lost("b", message, delivery), history.host.state.step)
    history.lines.append(text + event_tail(history.now_ms, by))


def deliver(history: LakeHistory) -> Message:
    """Of four messages one is acked, two have come back, and one of these is held again."""
    for _ in range(4):
        history.send("b")
    first, second = receive(history, "c1", 2)
    history.do(c.Ack("b", "c1", first.id))
    history.do(c.Detach("b", "c1"))
    (held,) = receive(history, "c2", 1)
    assert held.id == second.id
    return held


def write(lake: BatchedLake, history: LakeHistory) -> None:
    """A batch with the history's lines."""
    lake.write(history.values(), history.now_ms)
    gold.catch_up(lake.spark, lake.root, lake.batch)
    history.lines.clear()


def end_day(lake: BatchedLake, history: LakeHistory) -> None:
    """A batch of the next day closes the one before."""
    history.now_ms += DAY_MS
    history.send("other")
    write(lake, history)


@pytest.mark.parametrize(
    ("days", "by", "delivery"),
    [((), "control/0/9", 0), ((2,), "control/0/9", 3), ((1,), "start", 3), ((1, 2), "start", 3)],
    ids=str,
)
def test_a_message_that_is_lost_while_it_is_held_ends_its_delivery(
    spark: SparkSession, tmp_path: Path, days: tuple[int, ...], by: str, delivery: int
) -> None:
    """A day may end before the messages are lost (1), and after that (2).

    Old lines lack the delivery. A start returns what was settled in an open transaction (R81).
    """
    lake, history = BatchedLake(spark, tmp_path / "lake"), LakeHistory(0, queues={"b": {}})
    held = deliver(history)
    if 1 in days:
        write(lake, history)
        end_day(lake, history)
    lost_ms = history.now_ms
    for message in history.host.state.queues["b"].in_order():
        lose(history, message, "start")
    lose(history, held, by, delivery)
    write(lake, history)
    if 2 in days:
        end_day(lake, history)
    duckdb = open_duckdb(lake.root)
    depths = "SELECT ready, delivering, scheduled FROM queues WHERE queue = 'b'"
    assert duckdb.execute(depths).fetchall() == [(0, 0, 0)]
    asked = f"SELECT how, settled_ms = {lost_ms} FROM deliveries_now ORDER BY delivery"
    ended = duckdb.execute(asked).fetchall()
    assert [how for how, _ in ended] == ["acked", "returned", "returned", "lost"]
    assert ended[-1] == ("lost", True)


def test_the_table_of_queues_has_those_that_there_are(spark: SparkSession, tmp_path: Path) -> None:
    lake = BatchedLake(spark, tmp_path / "lake")
    history = LakeHistory(0, queues={"a": {}, "b": {}})

    def queues() -> set[str]:
        write(lake, history)
        found = open_duckdb(lake.root).execute("SELECT queue FROM queues").fetchall()
        return {name for (name,) in found}

    for name in ("a", "b"):
        history.send(name)
    history.do(c.DeleteQueue("a"))
    history.do(c.Purge("unknown"))
    history.do(c.Purge("a"))  # of a queue that there is no more
    assert queues() == {"b"}
    history.send("a")
    assert queues() == {"a", "b"}
    history.do(c.DeleteQueue("a"))
    assert queues() == {"b"}
