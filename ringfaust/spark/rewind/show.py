"""The answers of a rewind, as tables for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ringfaust.spark.rewind.contents import Contents, Held
from ringfaust.spark.rewind.diff import Diff
from ringfaust.spark.rewind.moment import Settled
from ringfaust.spark.rewind.whatif import AS_IT_WAS, Eviction, Verdict

_WIDE = 120
"""Columns that the tables take, also where the terminal has fewer."""
_GONE = ("evicted", "acked", "expired", "dead", "removed")


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, for each partition that has a queue of that name."""

    queue: str
    moments: Sequence[Settled]
    contents: Sequence[Contents] = ()
    diffs: Sequence[Diff] = ()
    verdicts: Sequence[Verdict] = ()


# --- JSON ---------------------------------------------------------------------------------------


def as_json(answer: Answer, limit: int) -> dict[str, Any]:
    """The answer as JSON has it; counts are whole, lists have at most `limit` entries."""
    found: dict[str, Any] = {"queue": answer.queue, "moments": [str(m) for m in answer.moments]}
    if answer.contents:
        found["contents"] = [_contents_json(one, limit) for one in answer.contents]
    if answer.diffs:
        found["diff"] = [_diff_json(one) for one in answer.diffs]
    if answer.verdicts:
        found["what_if"] = [asdict(one) for one in answer.verdicts]
    return found


def _contents_json(contents: Contents, limit: int) -> dict[str, Any]:
    return {
        "partition": contents.partition,
        "digest": contents.digest(),
        "counts": dict(contents.counts),
        "ready": [asdict(held) for held in islice(contents.ready, limit)],
        "delivering": [asdict(held) for held in islice(contents.delivering, limit)],
        "scheduled": [asdict(held) for held in islice(contents.scheduled, limit)],
    }


def _diff_json(diff: Diff) -> dict[str, Any]:
    counts = [
        {"kind": kind, "after": after, "reason": reason, "messages": messages}
        for (kind, after, reason), messages in diff.counts.items()
    ]
    return {
        "partition": diff.partition,
        "unchanged": diff.unchanged,
        "counts": counts,
        "changes": [asdict(change) for change in diff.changes],
    }


# --- tables -------------------------------------------------------------------------------------


def print_tables(answer: Answer, limit: int) -> None:
    """The answer on standard output."""
    console = Console(highlight=False)
    console.width = max(console.width, _WIDE)
    for contents in answer.contents:
        _print_contents(console, contents, limit)
    for diff in answer.diffs:
        _print_diff(console, diff, answer.moments)
    for partition in sorted({verdict.partition for verdict in answer.verdicts}):
        here = [verdict for verdict in answer.verdicts if verdict.partition == partition]
        _print_verdicts(console, here)


def _table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        # Ids and sources are what people look for: folded if need be, never cut.
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold",
            no_wrap=name not in ("id", "from"),
        )
    return table


def _time(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03}"


def _print_contents(console: Console, contents: Contents, limit: int) -> None:
    counts = contents.counts
    console.print(f"{contents.queue}, partition {contents.partition}, after {contents.moment}")
    console.print(", ".join(f"{name} {count:,}" for name, count in counts.items() if count))
    console.print(f"digest {contents.digest()}\n", soft_wrap=True)
    lists = {
        "ready": contents.ready,
        "delivering": contents.delivering,
        "scheduled": contents.scheduled,
    }
    table = _table("state", "#", "id", "priority", "sent", "from", "", numbers=("#", "priority"))
    for state, messages in lists.items():
        for place, held in enumerate(islice(messages, limit), 1):
            table.add_row(
                state, str(place), held.id, str(held.priority), _time(held.enqueued_ms),
                held.source, _by_whom_or_when(held),
            )  # fmt: skip
        if len(messages) > limit:
            table.add_row(state, "", f"and {len(messages) - limit:,} more")
    if table.rows:
        console.print(table)


def _by_whom_or_when(held: Held) -> str:
    if held.consumer:
        return f"held by {held.consumer}, delivery {held.delivery}"
    return f"due {_time(held.due_ms)}" if held.due_ms else ""


def _print_diff(console: Console, diff: Diff, moments: Sequence[Settled]) -> None:
    first, second = moments
    console.print(f"{diff.queue}, partition {diff.partition}, from {first} to {second}\n")
    counts = _table("", "messages", "now", "reason", numbers=("messages",))
    for (kind, after, reason), messages in diff.counts.items():
        counts.add_row(kind, f"{messages:,}", after, reason)
    counts.add_row("unchanged", f"{diff.unchanged:,}")
    console.print(counts)
    if diff.changes:
        table = _table("step", "time", "", "id", "before", "after", "reason", "consumer")
        for each in diff.changes:
            table.add_row(
                str(each.step), _time(each.time_ms), each.kind, each.id, each.before, each.after,
                each.reason, each.consumer,
            )  # fmt: skip
        console.print(table)
    missing = sum(diff.counts.values()) - len(diff.changes)
    if missing:
        console.print(f"and {missing:,} more")


def _print_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    console.print(f"{verdicts[0].queue}, partition {verdicts[0].partition}\n")
    numbers = (*_GONE, "as then", "spared", "more")
    table = _table("", *numbers, numbers=numbers)
    for verdict in verdicts:
        table.add_row(
            verdict.variant,
            *(f"{verdict.left.get(name, 0):,}" for name in _GONE),
            f"{verdict.same:,}", f"{verdict.spared:,}", f"{verdict.more:,}",
        )  # fmt: skip
    console.print(table)
    for verdict in verdicts:
        if verdict.first and verdict.last:
            ends = f"evicted from {_named(verdict.first)} to {_named(verdict.last)}"
            console.print(f"{verdict.variant}: {ends}", soft_wrap=True)
        if verdict.variant == AS_IT_WAS and verdict.spared + verdict.more:
            console.print(
                "The replay as it was differs from history: the configuration is not that of when "
                "it began, or see docs/rewind.md. The figures above are not exact."
            )
        for how, eviction in verdict.differing:
            console.print(
                f"{verdict.variant}: {how} {eviction.id} (step {eviction.step}, {eviction.reason})",
                soft_wrap=True,
            )


def _named(eviction: Eviction) -> str:
    return f"{eviction.id} ({_time(eviction.time_ms)})"
