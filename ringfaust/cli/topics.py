"""`ringfaust topics plan|create|verify`: what is printed, and the exit status."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.topics import TopicFinding, check_topics, compare_topics, create_topics


def plan(worker: WorkerConfig, queues: QueuesConfig) -> int:
    """Print a table of what is there, missing and different. Always 0."""
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
    there = len(findings) - missing - different
    out.print(f"{there} as declared, {missing} missing, {different} different")
    if missing:
        out.print("`ringfaust topics create` makes what is missing")
    if different:
        out.print("`ringfaust topics verify` says what the differences mean")
    return 0


def _row(finding: TopicFinding) -> list[str]:
    declared = finding.wanted.declaration
    wanted = str(finding.wanted.partitions) if finding.wanted.exact else "any"
    if finding.existing is None:
        state = "[red]missing[/]"
    elif finding.problems:
        state = "[yellow]different: " + ", ".join(each.what for each in finding.problems) + "[/]"
    else:
        state = "[green]there[/]"
    name = escape(finding.wanted.name)
    return [name, wanted, declared.cleanup, declared.timestamps, state]


def create(worker: WorkerConfig, queues: QueuesConfig) -> int:
    """Make what is missing, and name it. 0."""
    out = _console()
    made = asyncio.run(create_topics(worker, queues))
    for name in made:
        out.print(f"made {escape(name)}")
    if not made:
        out.print("all topics are there already")
    return 0


def verify(worker: WorkerConfig, queues: QueuesConfig) -> int:
    """Print one line for each problem. 1 if one of them is an error, else 0."""
    out = _console()
    problems = asyncio.run(check_topics(worker, queues))
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        out.print(f"[{colour}]{problem.severity}[/]  {escape(problem.text)}")
    errors = sum(problem.severity == "error" for problem in problems)
    if not problems:
        out.print(f"all topics of {worker.application} can be worked with")
    return 1 if errors else 0


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)
