"""`ringfaust spark rewind`: read the options and print the answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.markup import escape

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.documents import setting_value
from ringfaust.core.catalog import Catalog, Fields
from ringfaust.errors import BadSetting, RingfaustError
from ringfaust.kafka.admin import existing_partitions
from ringfaust.protocol.records import Role
from ringfaust.spark.applied import in_use, revisions
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.kafka import read_topics
from ringfaust.spark.lake.tables import TRANSITIONS, read_if_any
from ringfaust.spark.lines import read_lines
from ringfaust.spark.options import RewindOptions
from ringfaust.spark.rewind import show
from ringfaust.spark.rewind.contents import UnknownQueue, read_contents
from ringfaust.spark.rewind.diff import read_diff
from ringfaust.spark.rewind.moment import (
    AtOffset,
    AtStep,
    AtTime,
    Moment,
    Requests,
    ResolvedMoment,
    read_moment,
    resolve_moments,
)
from ringfaust.spark.rewind.opening import (
    BEGINNING,
    Opening,
    find_opening,
    known_until,
    last_lines,
    lines_from,
)
from ringfaust.spark.rewind.whatif import check_changes, first_catalog, what_if
from ringfaust.spark.session import open_session
from ringfaust.terminal import Terminal
from ringfaust.visible import visible_json


class BadRewindOptions(RingfaustError):
    """The options do not fit together, or there is no lake at the given place."""


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """The moments and the settings of a rewind."""

    options: RewindOptions
    moments: Sequence[Moment]
    """Without a moment it is only what-if, over the whole history; with two it is a diff."""
    variants: Mapping[str, Fields]
    """Settings to try, by name."""


def read_options(options: RewindOptions) -> RewindRequest:
    """Check the options of the command line, before Spark starts.

    Raises:
        BadRewindOptions: the options do not fit together.
        BadMoment: a moment cannot be parsed.
        BadSetting: what-if does not support a setting.
    """
    texts: Mapping[type[Moment], str | None] = {
        AtTime: options.at, AtOffset: options.offset, AtStep: options.step
    }  # fmt: skip
    given = [read_moment(text, kind) for kind, text in texts.items() if text is not None]
    if len(given) > 1:
        raise BadRewindOptions("use only one of --at, --offset and --step")
    if options.to and not given:
        raise BadRewindOptions(
            "--to is the second moment of a diff: also use --at, --offset or --step"
        )
    variants = _variants(options.ring_size, options.settings or ())
    if not given and not variants:
        raise BadRewindOptions(
            "nothing to do: use a moment (--at, --offset or --step), --ring-size or --set"
        )
    if options.to:
        given.append(read_moment(options.to))
    return RewindRequest(options, given, variants)


def _variants(ring_sizes: str | None, settings: Sequence[str]) -> dict[str, Fields]:
    changes: dict[str, object] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadRewindOptions(f"--set {text}: use name=value, such as evict=head")
        changes[name] = setting_value(value)
    check_changes(changes)
    others = ", ".join(f"{name}={value}" for name, value in changes.items())
    if ring_sizes is None:
        return {others: changes} if changes else {}
    found: dict[str, Fields] = {}
    for size in ring_sizes.split(","):
        try:
            number = int(size)
        except ValueError:
            raise BadSetting("ring_size", size, "use whole numbers, separated by commas") from None
        name = f"ring_size={number}" + (f", {others}" if others else "")
        found[name] = check_changes({**changes, "ring_size": number})
    return found


def run(worker: WorkerConfig, queues: QueuesConfig, options: RewindOptions) -> None:
    """Print the answer on standard output.

    For what-if, what was applied takes the place of `queues`, which are those of a file (R128).

    Raises:
        BadRewindOptions: the options do not fit together, or there is no such lake or topic.
        BrokerUnreachable: no broker answers.
        RingfaustError: an option is invalid, or the events do not contain the answer; the text
            says why.
    """
    request = read_options(options)
    events = worker.topic(Role.EVENTS)
    # Spark itself waits for brokers that are away for over a minute.
    if options.lake is None and not asyncio.run(existing_partitions(worker.brokers(), [events])):
        raise BadRewindOptions(
            f"the brokers at {worker.bootstrap_servers} have no topic {events}: check the "
            "application's name in worker.yaml, or read a lake with --lake"
        )
    configurations = {0: queues.catalog()}
    if request.variants and (applied := revisions(worker, in_use(worker, queues))):
        configurations = {number: each.catalog() for number, each in applied.items()}
    with brief_errors(), Terminal(stderr=True).status("starting Spark") as status:
        spark = open_session("ringfaust rewind", options.master)
        status.update(escape(f"reading the events of {', '.join(options.queue)}"))
        if options.lake is None:
            lines = read_lines(read_topics(spark, worker, [events]))
        else:
            lines = read_if_any(spark, options.lake, TRANSITIONS.name, BadRewindOptions)
        rewind = _Rewind(spark, worker, configurations, request, lines)
        answers = rewind.answers()
        if options.lake is not None and request.moments:
            answers = rewind.with_known(answers)
    for answer in answers:
        for text in show.warnings(answer):
            print(text, file=sys.stderr)
        if options.as_json:
            print(visible_json(show.as_json(answer, options.limit)))
        else:
            show.print_tables(answer, options.limit)


@dataclass(frozen=True, slots=True)
class _Rewind:
    """Finds the answers."""

    spark: SparkSession
    worker: WorkerConfig
    configurations: Mapping[int, Catalog]
    """By revision, oldest first."""
    request: RewindRequest
    lines: DataFrame

    def answers(self) -> list[show.RewindAnswer]:
        """The answer for each queue, in the order in which they were named."""
        request = self.request
        names = list(dict.fromkeys(request.options.queue))
        requested = [(name, moment) for name in names for moment in request.moments]
        resolved = resolve_moments(self.lines, requested, self.worker.topic(Role.HOP))
        count = len(request.moments)
        moments = {name: resolved[n * count : (n + 1) * count] for n, name in enumerate(names)}
        if count == 1 and not request.variants:
            asked = [(name, of[0]) for name, of in moments.items()]
            lines, opening = self._lines_about(asked)
            held = zip(names, read_contents(lines, asked, opening), strict=True)
            return [show.RewindAnswer(name, moments[name], contents=found) for name, found in held]
        return [self._answer(name, moments[name]) for name in names]

    def _answer(self, queue: str, moments: Sequence[ResolvedMoment]) -> show.RewindAnswer:
        """What changed in a queue, or would have."""
        request, found = self.request, dict[str, Any]()
        limit = request.options.limit
        if len(moments) == 2:
            lines, _ = self._lines_about([(queue, moments[0])])
            found["diffs"] = read_diff(lines, queue, moments[0], moments[1], limit)
        if request.variants:
            found["results"] = what_if(
                self.lines,
                queue,
                until_then=moments[-1] if moments else None,
                catalog=first_catalog(self.lines, queue, self.configurations),
                variants=request.variants,
                limit=limit,
            )
        if not any(found.values()) and self.lines.filter(F.col("queue") == queue).isEmpty():
            raise UnknownQueue(f"no event names a queue {queue!r}")
        return show.RewindAnswer(queue, moments, **found)

    def with_known(self, answers: Sequence[show.RewindAnswer]) -> list[show.RewindAnswer]:
        """Add up to when the lake knows the queues, where a moment is later."""
        requests = [(answer.queue, moment) for answer in answers for moment in answer.moments]
        last = last_lines(*self._lines_about(requests))
        return [
            replace(answer, known_until=known_until(last, answer.partitions, answer.moments))
            for answer in answers
        ]

    def _lines_about(self, requests: Requests) -> tuple[DataFrame, Opening]:
        """The lines that answer requests, and where they begin."""
        lake = self.request.options.lake
        if lake is None:
            return self.lines, BEGINNING
        opening = find_opening(self.spark, lake, requests)
        return lines_from(self.spark, lake, opening), opening
