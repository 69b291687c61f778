"""The demo's final screen: the account of each queue, a summary, and what to try next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.console import Console

from ringfaust.demo.dashboard import COLUMNS, RING_SIZE, add_counts, count_table
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role
from ringfaust.testing.accounts.proof import Proof
from ringfaust.testing.accounts.prove import counter_differences


class DemoResult(NamedTuple):
    """What the final screen shows."""

    proof: Proof
    flights: int
    extras: int
    held: Mapping[str, Mapping[str, Any]]
    """The worker's reply to `list`, by queue."""
    evicted: Counter[str]
    """How many evicted records the plain Kafka consumer read, by queue."""
    application: str
    servers: str
    given_brokers: bool


def faults(result: DemoResult) -> list[str]:
    """Return what does not balance, a sentence each; empty if everything does."""
    proof = result.proof
    found = proof.problems()
    expected = result.flights + result.extras
    if proof.inputs != expected:
        found.append(f"{expected:,} records were sent, {proof.inputs:,} are in the input topic")
    found += counter_differences(proof, result.held)
    for queue, row in proof.accounts.items():
        if result.evicted[queue] != row.counts.evicted:
            found.append(
                f"queue {queue}: the plain Kafka consumer read {result.evicted[queue]:,} "
                f"evicted records, the proof {row.counts.evicted:,}"
            )
    return found


def print_report(console: Console, result: DemoResult, seconds: float) -> bool:
    """Print the final screen, and return whether everything balances."""
    _print_table(console, result.proof)
    wrong = faults(result)
    if wrong:
        console.print("[bold red]The accounts do not balance:[/]")
        for text in wrong:
            console.print(f"  {text}", markup=False, highlight=False)
    else:
        _print_words(console, result, seconds)
    _print_next(console, result)
    return not wrong


def _print_table(console: Console, proof: Proof) -> None:
    title = "the outcome of every record, read back from the topics offset by offset"
    table = count_table(console, title, "balanced")
    rows = sorted(proof.accounts.values(), key=lambda row: -row.counts.added)
    for row in rows:
        verdict = "[green]yes[/]" if row.balanced else "[bold red]NO[/]"
        add_counts(console, table, row.queue, row.counts.as_dict(), verdict)
    table.add_section()
    total = {name: sum(getattr(row.counts, name) for row in rows) for name in COLUMNS}
    verdict = "[green]yes[/]" if proof.balanced else "[bold red]NO[/]"
    add_counts(console, table, "all", total, verdict)
    console.print(table)


def _print_words(console: Console, result: DemoResult, seconds: float) -> None:
    rows = [row.counts for row in result.proof.accounts.values()]
    evicted, acked, dead, expired = (
        sum(getattr(row, name) for row in rows) for name in ("evicted", "acked", "dead", "expired")
    )
    held = sum(row.messages for row in rows)
    topic = topic_name(result.application, Role.EVICTED)
    dead_topic = topic_name(result.application, Role.DEAD)
    console.print(
        f"[bold green]{result.flights:,} flights accounted for[/], and {result.extras} "
        f"announcements that the demo added, in {seconds:.0f} s.\n"
        f"{evicted:,} were evicted by newer ones. Each has a complete record on {topic}, in order:"
        "\n0 lost, 0 duplicated, 0 altered.\n"
        f"{acked:,} were acknowledged by the consumers, {dead:,} rejected and {expired:,} expired "
        f"(see {dead_topic}).\n{held:,} are still held: the last {RING_SIZE} departures of "
        "each carrier, and the unsettled deliveries.\n"
        f"The worker's own counters agree, and so does a plain Kafka consumer of {topic}.",
        highlight=False,
    )


def _print_next(console: Console, result: DemoResult) -> None:
    if result.given_brokers:
        text = (
            f"\nThe topics stay on {result.servers}, so that you can read them. To delete them:\n"
            f"  kafka-topics.sh --bootstrap-server {result.servers} --delete "
            f"--topic '{result.application}[.].*'"
        )
    else:
        text = (
            "\nThe worker, the broker and their data are removed. To read the topics yourself:\n"
            "  ringfaust broker                                     runs a broker, and\n"
            "  ringfaust demo --bootstrap-servers 127.0.0.1:9092    runs the demo on it"
        )
    console.print(text, markup=False, highlight=False)
    console.print(
        "For rings of your own, declare them in config/queues.yaml, then run\n`ringfaust topics "
        "create` and `ringfaust worker`.",
        highlight=False,
    )
