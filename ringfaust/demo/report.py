"""The demo's last screen: the account of each queue, what happened in words, where to look next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.console import Console

from ringfaust.demo.dashboard import COLUMNS, RING_SIZE, add_counts, count_table
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role
from ringfaust.testing.accounts.proof import Proof
from ringfaust.testing.accounts.prove import counter_differences


class DemoResult(NamedTuple):
    """All that the last screen tells of."""

    proof: Proof
    flights: int
    extras: int
    held: Mapping[str, Mapping[str, Any]]
    """By queue, the worker's own `list`."""
    evicted: Counter[str]
    """By queue, as the independent consumer read them."""
    application: str
    servers: str
    own_broker: bool


def faults(outcome: DemoResult) -> list[str]:
    """What does not balance, in words; empty: all does."""
    proof = outcome.proof
    found = proof.problems()
    expected = outcome.flights + outcome.extras
    if proof.inputs != expected:
        found.append(f"{expected:,} records were sent, {proof.inputs:,} are in the input topic")
    found += counter_differences(proof, outcome.held)
    for queue, row in proof.accounts.items():
        if outcome.evicted[queue] != row.evicted:
            found.append(
                f"queue {queue}: the independent consumer read {outcome.evicted[queue]:,} "
                f"evicted records, the proof {row.evicted:,}"
            )
    return found


def print_report(console: Console, outcome: DemoResult, seconds: float) -> bool:
    """Print the last screen. Returns whether everything balances."""
    _print_table(console, outcome.proof)
    wrong = faults(outcome)
    if wrong:
        console.print("[bold red]The accounts do not balance:[/]")
        for text in wrong:
            console.print(f"  {text}", markup=False, highlight=False)
    else:
        _print_words(console, outcome, seconds)
    _print_next(console, outcome)
    return not wrong


def _print_table(console: Console, proof: Proof) -> None:
    title = "what became of each record, read back from the topics offset by offset"
    table = count_table(console, title, "balanced")
    rows = sorted(proof.accounts.values(), key=lambda row: -row.added)
    for row in rows:
        verdict = "[green]yes[/]" if row.balanced else "[bold red]NO[/]"
        add_counts(console, table, row.queue, asdict(row), verdict)
    table.add_section()
    total = {name: sum(getattr(row, name) for row in rows) for name in COLUMNS}
    verdict = "[green]yes[/]" if proof.balanced else "[bold red]NO[/]"
    add_counts(console, table, "all", total, verdict)
    console.print(table)


def _print_words(console: Console, outcome: DemoResult, seconds: float) -> None:
    rows = list(outcome.proof.accounts.values())
    evicted, acked, dead, expired = (
        sum(getattr(row, name) for row in rows) for name in ("evicted", "acked", "dead", "expired")
    )
    held = sum(row.ready + row.delivering + row.scheduled for row in rows)
    topic = topic_name(outcome.application, Role.EVICTED)
    dead_topic = topic_name(outcome.application, Role.DEAD)
    console.print(
        f"[bold green]{outcome.flights:,} flights accounted for[/], and {outcome.extras} "
        f"announcements that the demo added, in {seconds:.0f} s.\n"
        f"{evicted:,} were overwritten by newer ones; each has a record on {topic}, whole and in "
        "order: 0 lost, 0 duplicated, 0 altered.\n"
        f"{acked:,} were acknowledged by the gates, {dead:,} rejected and {expired:,} expired "
        f"(see {dead_topic}). {held:,} are held: the last {RING_SIZE} departures of "
        "each carrier, and what the gates had in hand.\n"
        "The worker's own counters agree, and so does a plain Kafka consumer that read "
        f"{topic} all along.",
        highlight=False,
    )


def _print_next(console: Console, outcome: DemoResult) -> None:
    if outcome.own_broker:
        text = (
            f"\nThe topics stay on {outcome.servers} for you to look at. To remove them:\n"
            f"  kafka-topics.sh --bootstrap-server {outcome.servers} --delete "
            f"--topic '{outcome.application}[.].*'"
        )
    else:
        text = (
            "\nWorker, broker and their data are gone again. To look into the topics yourself:\n"
            "  ringfaust broker                                     a broker that stays, and\n"
            "  ringfaust demo --bootstrap-servers 127.0.0.1:9092    the demo on it"
        )
    console.print(text, markup=False, highlight=False)
    console.print(
        "Rings of your own: say what they are in config/queues.yaml, then `ringfaust topics create`"
        " and `ringfaust worker`.",
        highlight=False,
    )
