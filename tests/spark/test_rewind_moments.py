"""What a ring held: against what the core itself had in it, after steps of a busy history."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ringfaust.core import command as c
from ringfaust.core import effect as e
from ringfaust.spark.lines import read_lines
from ringfaust.spark.rewind.contents import (
    HistoryCut,
    UnknownQueue,
    digest_answer,
    read_contents,
)
from ringfaust.spark.rewind.moment import (
    AtOffset,
    AtStep,
    AtTime,
    BadMoment,
    read_moment,
    settle,
)
from ringfaust.wire.events import WRITERS, done_line, event_tail
from ringfaust.wire.listing import list_queue
from tests.spark.rewind_log import QUEUES, History

HOP = "app.hop"


def to_lines(spark: SparkSession, batches: Sequence[Sequence[str]]) -> DataFrame:
    """Batches of lines as the records of partition 0 of an events topic."""
    rows = [
        (0, offset, None, bytearray("\n".join(batch), "ascii"))
        for offset, batch in enumerate(batches)
    ]
    schema = "partition int, offset long, timestamp timestamp, value binary"
    return read_lines(spark.createDataFrame(rows, schema))


class Told:
    """A busy history: its lines, and what each queue held after each step."""

    def __init__(self, seed: int, commands: int) -> None:
        history = History(seed)
        state = history.partition.state
        self.batches: list[list[str]] = []
        self.held: dict[tuple[str, int], dict[str, Any]] = {}
        """By queue and step: the answer to `list`; the last one that was given at that step."""
        self.steps_until: dict[int, int] = {}
        """By time: the last step of that time."""
        for number in range(commands):
            command, effects = history.draw()
            by = f"app.control/0/{number}"
            tail = event_tail(state.now_ms, by)
            lines = [WRITERS[type(effect)](effect, state.step) + tail for effect in effects]
            if not any(isinstance(effect, e.Refused) for effect in effects):
                lines.append(done_line(state.step, type(command).__name__.lower(), tail))
            self.batches.append(lines)
            self.steps_until[state.now_ms] = state.step
            for queue in state.queues.values():
                self.held[queue.name, state.step] = list_queue(queue, 10_000)
        self.last_step = state.step


@pytest.fixture(scope="module")
def told() -> Told:
    return Told(11, 1_500)


@pytest.fixture(scope="module")
def lines(spark: SparkSession, told: Told) -> DataFrame:
    return to_lines(spark, told.batches).cache()


def test_contents_are_those_of_the_core_after_any_step(lines: DataFrame, told: Told) -> None:
    moments = random.Random(5).sample(sorted(told.held), 60)
    found = read_contents(lines, [(queue, AtStep(0, step)) for queue, step in moments])
    for at, contents in zip(moments, found, strict=True):
        assert [each.answer() for each in contents] == [told.held[at]]
        assert contents[0].digest() == digest_answer(told.held[at])
