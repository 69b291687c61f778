"""`ringfaust topics plan|create|verify`: print the result and return the exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rich.markup import escape
from rich.table import Table

from ringfaust.cli.operate import print_json
from ringfaust.cli.parts import where
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.routes import arrival_order
from ringfaust.config.topics import (
    TopicFinding,
    TopicProblem,
    What,
    check_topics,
    compare_topics,
    create_topics,
)
from ringfaust.terminal import Terminal

State = Literal["as declared", "missing", "different"]


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that an application needs, compared with the brokers."""

    topic: str
    partitions: int | None
    """How many it must have; null: any number."""
    cleanup: Literal["delete", "compact"]
    timestamps: Literal["append", "create"]
    state: State
    differences: list[What]
    """What differs; empty if nothing does, or if the topic is missing."""


def plan(worker: WorkerConfig, queues: QueuesConfig, *, as_json: bool = False) -> int:
    """Print which topics exist, are missing or differ. Returns 0.

    Raises:
        BrokerUnreachable: no broker answers.
        BrokerRefused: a broker answers but cannot describe its topics.
    """
    planned = [_planned(each) for each in asyncio.run(compare_topics(worker, queues))]
    if as_json:
        print_json(planned)
        return 0
    out = _console()
    table = Table(title=escape(f"topics of {worker.application} at {worker.bootstrap_servers}"))
    for heading in ("topic", "partitions", "cleanup", "timestamps", "state"):
        table.add_column(heading, overflow="fold")
    for each in planned:
        table.add_row(*_row(each))
    out.print(table)
    missing, different = (
        sum(each.state == state for each in planned) for state in ("missing", "different")
    )
    as_declared = len(planned) - missing - different
    out.print(f"{as_declared} as declared, {missing} missing, {different} different")
    if missing:
        out.print("run `ringfaust topics create` to create the missing topics")
    if different:
        out.print("run `ringfaust topics verify` for what the differences mean")
    return 0


def _planned(finding: TopicFinding) -> PlannedTopic:
    wanted, declared = finding.wanted, finding.wanted.declaration
    differences = [each.what for each in finding.problems] if finding.existing else []
    state: State = "missing"
    if finding.existing:
        state = "different" if differences else "as declared"
    return PlannedTopic(
        topic=wanted.name,
        partitions=wanted.partitions if wanted.exact else None,
        cleanup=declared.cleanup,
        timestamps=declared.timestamps,
        state=state,
        differences=differences,
    )


_COLOURS = {"missing": "red", "different": "yellow", "as declared": "green"}


def _row(topic: PlannedTopic) -> list[str]:
    wanted = "any" if topic.partitions is None else str(topic.partitions)
    what = f": {', '.join(topic.differences)}" if topic.differences else ""
    state = f"[{_COLOURS[topic.state]}]{topic.state}{what}[/]"
    return [escape(topic.topic), wanted, topic.cleanup, topic.timestamps, state]


def create(worker: WorkerConfig, queues: QueuesConfig) -> int:
    """Create the missing topics and print their names, and what is wrong with the others.

    Returns:
        1 if a topic that existed before is wrong, so that no worker can start; else 0.

    Raises:
        BrokerUnreachable: no broker answers.
        BrokerRefused: the brokers refuse to create one.
    """
    out = _console()
    created = asyncio.run(create_topics(worker, queues))
    for name in created:
        out.print(f"created {escape(name)}")
    if created:
        out.print(escape(f"{len(created)} topics are new ({where(worker)})"))
    if not created:
        out.print("all topics exist already")
    problems: list[TopicProblem] = []
    for finding in asyncio.run(compare_topics(worker, queues)):
        if finding.existing is None:
            continue
        problems.extend(finding.problems)
        count = finding.existing.partitions
        routes = [each for each in queues.routes if each.topic == finding.wanted.name]
        warn_of_order(arrival_order(route, count) for route in routes)
    return _print_problems(problems)


def warn_of_order(warnings: Iterable[str]) -> None:
    """Print which queues are ordered by arrival alone; an empty text says nothing."""
    for text in filter(None, warnings):
        _console().print(f"[yellow]warning[/]  {escape(text)}")


def order_warnings(worker: WorkerConfig, queues: QueuesConfig) -> list[str]:
    """Return which queues are ordered by arrival alone if `topics create` creates their topics."""
    return [text for route in queues.routes if (text := arrival_order(route, worker.partitions))]


def verify(worker: WorkerConfig, queues: QueuesConfig, *, as_json: bool = False) -> int:
    """Print one line for each problem, or all of them as JSON.

    Returns:
        1 if a problem is an error, so that no worker can start; else 0.

    Raises:
        BrokerUnreachable: no broker answers.
        BrokerRefused: a broker answers but cannot describe its topics.
    """
    problems = asyncio.run(check_topics(worker, queues))
    if as_json:
        print_json(problems)
        return _status(problems)
    status = _print_problems(problems)
    if not problems:
        _console().print(f"a worker of {worker.application} can run with these topics")
    return status


def _print_problems(problems: Iterable[TopicProblem]) -> int:
    """Print a line for each, and return the exit status."""
    out, found = _console(), list(problems)
    for problem in found:
        colour = "red" if problem.severity == "error" else "yellow"
        out.print(f"[{colour}]{problem.severity}[/]  {escape(problem.text)}")
    return _status(found)


def _status(problems: Iterable[TopicProblem]) -> int:
    return int(any(problem.severity == "error" for problem in problems))


def _console() -> Terminal:
    return Terminal(highlight=False, soft_wrap=True)
