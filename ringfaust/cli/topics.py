"""`ringfaust topics plan|create|verify`: print the result and return the exit status."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.routes import arrival_order
from ringfaust.config.topics import TopicFinding, check_topics, compare_topics, create_topics


def plan(worker: WorkerConfig, queues: QueuesConfig) -> int:
    """Print which topics exist, are missing or differ. Returns 0.

    Raises:
        BrokerUnreachable: no broker answers.
        BrokerRefused: a broker answers but cannot describe its topics.
    """
    findings = asyncio.run(compare_topics(worker, queues))
    out = _console()
    table = Table(title=f"topics of {worker.application} at {worker.bootstrap_servers}")
    for heading in ("topic", "partitions", "cleanup", "timestamps", "state"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(*_row(finding))
    out.print(table)
    missing = sum(finding.existing is None for finding in findings)
    different = sum(bool(each.existing and each.problems) for each in findings)
    as_declared = len(findings) - missing - different
    out.print(f"{as_declared} as declared, {missing} missing, {different} different")
    if missing:
        out.print("run `ringfaust topics create` to create the missing topics")
    if different:
        out.print("run `ringfaust topics verify` for what the differences mean")
    return 0


def _row(finding: TopicFinding) -> list[str]:
    declared = finding.wanted.declaration
    wanted = str(finding.wanted.partitions) if finding.wanted.exact else "any"
    if finding.existing is None:
        state = "[red]missing[/]"
    elif finding.problems:
        state = "[yellow]different: " + ", ".join(each.what for each in finding.problems) + "[/]"
    else:
        state = "[green]as declared[/]"
    name = escape(finding.wanted.name)
    return [name, wanted, declared.cleanup, declared.timestamps, state]


def create(worker: WorkerConfig, queues: QueuesConfig) -> int:
    """Create the missing topics and print their names. Returns 0.

    Raises:
        BrokerUnreachable: no broker answers.
        BrokerRefused: the brokers refuse to create one.
    """
    out = _console()
    created = asyncio.run(create_topics(worker, queues))
    for name in created:
        out.print(f"created {escape(name)}")
    if not created:
        out.print("all topics exist already")
    for finding in asyncio.run(compare_topics(worker, queues)):
        for route in queues.routes:
            if finding.existing and finding.wanted.name == route.topic:
                _warn(arrival_order(route, finding.existing.partitions))
    return 0


def warn_of_order(worker: WorkerConfig, queues: QueuesConfig) -> None:
    """Print which queues are ordered by arrival alone if `topics create` creates their topics."""
    for route in queues.routes:
        _warn(arrival_order(route, worker.partitions))


def _warn(text: str) -> None:
    if text:
        _console().print(f"[yellow]warning[/]  {escape(text)}")


def verify(worker: WorkerConfig, queues: QueuesConfig) -> int:
    """Print one line for each problem.

    Returns:
        1 if a problem is an error, so that no worker can start; else 0.

    Raises:
        BrokerUnreachable: no broker answers.
        BrokerRefused: a broker answers but cannot describe its topics.
    """
    out = _console()
    problems = asyncio.run(check_topics(worker, queues))
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        out.print(f"[{colour}]{problem.severity}[/]  {escape(problem.text)}")
    errors = sum(problem.severity == "error" for problem in problems)
    if not problems:
        out.print(f"a worker of {worker.application} can run with these topics")
    return 1 if errors else 0


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)
