"""`ringfaust spark rewind`: the question of the command line, and its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.catalog import Fields
from ringfaust.errors import BadSetting, RingfaustError
from ringfaust.protocol.records import Role
from ringfaust.spark.kafka import read_topics
from ringfaust.spark.lake import tables
from ringfaust.spark.lines import read_lines
from ringfaust.spark.rewind import show
from ringfaust.spark.rewind.contents import read_contents
from ringfaust.spark.rewind.diff import read_diff
from ringfaust.spark.rewind.moment import (
    Asked,
    Moment,
    read_moment,
    read_offset,
    read_step,
    read_time,
    settle,
)
from ringfaust.spark.rewind.whatif import check_changes, what_if
from ringfaust.spark.session import open_session


class BadQuestion(RingfaustError):
    """The options do not go together."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    queue: str
    moment: Moment | None
    """None: only what-if, over all of history."""
    to: Moment | None
    variants: Mapping[str, Fields]
    """Settings to be tried, by name."""
    limit: int
    """Most messages of each list that are named."""


def read_question(
    queue: str,
    *,
    at: str | None,
    offset: str | None,
    step: str | None,
    to: str | None,
    ring_sizes: str | None,
    settings: Sequence[str],
    limit: int,
) -> Question:
    """The options of the command line, checked before Spark is started.

    Raises:
        BadQuestion: they do not go together.
        BadMoment: one is no moment.
        BadSetting: a setting cannot be asked about.
    """
    given = [
        reader(text)
        for reader, text in ((read_time, at), (read_offset, offset), (read_step, step))
        if text is not None
    ]
    if len(given) > 1:
        raise BadQuestion("give one of --at, --offset and --step, not several")
    if to and not given:
        raise BadQuestion("--to is the second moment of a diff: give --at, --offset or --step too")
    variants = _variants(ring_sizes, settings)
    if not given and not variants:
        raise BadQuestion(
            "nothing is asked: give a moment (--at, --offset or --step), or --ring-size or --set"
        )
    moment = given[0] if given else None
    return Question(queue, moment, read_moment(to) if to else None, variants, limit)


def _variants(ring_sizes: str | None, settings: Sequence[str]) -> dict[str, Fields]:
    changes: dict[str, object] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadQuestion(f"--set {text}: write name=value, such as evict=head")
        changes[name] = yaml.safe_load(value)
    check_changes(changes)
    others = ", ".join(f"{name}={value}" for name, value in changes.items())
    if ring_sizes is None:
        return {others: changes} if changes else {}
    found: dict[str, Fields] = {}
    for size in ring_sizes.split(","):
        try:
            number = int(size)
        except ValueError:
            raise BadSetting("ring_size", size, "whole numbers, with commas between") from None
        name = f"ring_size={number}" + (f", {others}" if others else "")
        found[name] = check_changes({**changes, "ring_size": number})
    return found


def run(
    worker: WorkerConfig,
    queues: QueuesConfig,
    question: Question,
    *,
    lake: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Answer on standard output.

    Args:
        worker: of the application whose events these are.
        queues: what they were set to when their history began, for what-if.
        question: of `read_question`.
        lake: the lake's folder or URI; None: the events topic.
        master: as Spark's --master.
        as_json: one JSON object in place of tables.

    Raises:
        BadQuestion: there is no such lake.
        RingfaustError: the events do not have the answer; the text says why.
    """
    with Console(stderr=True).status("starting Spark") as status:
        spark = open_session("ringfaust rewind", master)
        status.update(f"reading what became of {question.queue}")
        answer = _answer(_lines(spark, worker, lake), worker, queues, question)
    if as_json:
        print(json.dumps(show.as_json(answer, question.limit), ensure_ascii=False))
    else:
        show.print_tables(answer, question.limit)


def _lines(spark: SparkSession, worker: WorkerConfig, lake: str | None) -> DataFrame:
    if lake is not None:
        try:
            return tables.read(spark, lake, tables.TRANSITIONS.name)
        except AnalysisException as error:
            raise BadQuestion(
                f"there is no lake at {lake}: give the folder that `ringfaust spark lake` fills "
                f"({error.getCondition()})"
            ) from error
    return read_lines(read_topics(spark, worker, [worker.topic(Role.EVENTS)]))


def _answer(
    lines: DataFrame, worker: WorkerConfig, queues: QueuesConfig, question: Question
) -> show.Answer:
    queue, limit = question.queue, question.limit
    asked = [Asked(queue, moment) for moment in (question.moment, question.to) if moment]
    moments = settle(lines, asked, worker.topic(Role.HOP))
    found: dict[str, Any] = {}
    if len(moments) == 2:
        found["diffs"] = read_diff(lines, queue, moments[0], moments[1], limit)
    elif moments and not question.variants:
        (found["contents"],) = read_contents(lines, [(queue, moments[0])])
    if question.variants:
        found["verdicts"] = what_if(
            lines,
            queue,
            until_then=moments[-1] if moments else None,
            catalog=queues.catalog(),
            variants=question.variants,
            limit=limit,
        )
    return show.Answer(queue, moments, **found)
