"""Print the answer of a rewind as tables or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ringfaust.spark.rewind.contents import Contents, HeldMessage
from ringfaust.spark.rewind.diff import Diff
from ringfaust.spark.rewind.moment import ResolvedMoment
from ringfaust.spark.rewind.whatif import AS_IT_WAS, VariantResult
from ringfaust.terminal import Terminal

_MIN_WIDTH = 120
"""Minimum width of the tables in characters, even on a narrower terminal."""
_EXITS = ("evicted", "acked", "expired", "dead", "removed")


@dataclass(frozen=True, slots=True)
class RewindAnswer:
    """The answer, with an entry for each partition that has a queue of the name."""

    queue: str
    moments: Sequence[ResolvedMoment]
    contents: Sequence[Contents] = ()
    diffs: Sequence[Diff] = ()
    results: Sequence[VariantResult] = ()
    known_until: Mapping[int, int] = field(default_factory=dict)
    """By partition the time of the lake's last line, in ms, if a moment is later."""

    @property
    def partitions(self) -> set[int]:
        """Those that have a queue of the name."""
        every: list[Contents | Diff | VariantResult] = [
            *self.contents, *self.diffs, *self.results
        ]  # fmt: skip
        return {each.partition for each in every}


def warnings(answer: RewindAnswer) -> Iterator[str]:
    """For partitions whose last line in the lake is before a moment."""
    for partition, time_ms in answer.known_until.items():
        yield (
            f"{answer.queue}, partition {partition}: the lake's last event is of {_time(time_ms)} "
            "(UTC), and the moment is later. Either nothing has happened since, or "
            "`ringfaust spark lake` has yet to read it"
        )


# --- JSON ---------------------------------------------------------------------------------------


def as_json(answer: RewindAnswer, limit: int) -> dict[str, Any]:
    """The answer as a JSON object. Counts are complete; lists have at most `limit` entries."""
    found: dict[str, Any] = {"queue": answer.queue, "moments": [str(m) for m in answer.moments]}
    if answer.known_until:
        found["known_until_ms"] = {str(part): at for part, at in answer.known_until.items()}
    if answer.contents:
        found["contents"] = [_contents_json(one, limit) for one in answer.contents]
    if answer.diffs:
        found["diff"] = [_diff_json(one) for one in answer.diffs]
    if answer.results:
        found["what_if"] = [asdict(one) for one in answer.results]
    return found


def _contents_json(contents: Contents, limit: int) -> dict[str, Any]:
    return {
        "partition": contents.partition,
        "digest": contents.digest(),
        "counts": dict(contents.counts),
        **{
            state: [asdict(held) for held in islice(messages, limit)]
            for state, messages in contents.held.items()
        },
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


def print_tables(answer: RewindAnswer, limit: int) -> None:
    """Print the answer on standard output."""
    console = Terminal(highlight=False, markup=False)
    console.width = max(console.width, _MIN_WIDTH)
    if not answer.partitions:
        console.print(f"{answer.queue}: no message left or changed")
    for contents in answer.contents:
        _print_contents(console, contents, limit)
    for diff in answer.diffs:
        _print_diff(console, diff, answer.moments)
    for partition in sorted({result.partition for result in answer.results}):
        here = [result for result in answer.results if result.partition == partition]
        _print_results(console, here)


def _table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        # Readers search for ids and sources, so they may be folded but not cut.
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold",
            no_wrap=name not in ("id", "from"),
        )
    return table


def _time(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return at.isoformat(" ", "milliseconds").removesuffix("+00:00")


def _print_contents(console: Terminal, contents: Contents, limit: int) -> None:
    counts = contents.counts
    console.print(f"{contents.queue}, partition {contents.partition}, after {contents.moment}")
    console.print(", ".join(f"{name} {count:,}" for name, count in counts.items() if count))
    console.print(f"digest {contents.digest()}\n", soft_wrap=True)
    table = _table("state", "#", "id", "priority", "sent", "from", "", numbers=("#", "priority"))
    for state, messages in contents.held.items():
        for place, held in enumerate(islice(messages, limit), 1):
            table.add_row(
                state, str(place), held.id, str(held.priority), _time(held.enqueued_ms),
                held.source, _details(held),
            )  # fmt: skip
        if len(messages) > limit:
            table.add_row(state, "", f"and {len(messages) - limit:,} more")
    if table.rows:
        console.print(table)


def _details(held: HeldMessage) -> str:
    if held.consumer:
        return f"held by {held.consumer}, delivery {held.delivery}"
    return f"due {_time(held.due_ms)}" if held.due_ms else ""


def _print_diff(console: Terminal, diff: Diff, moments: Sequence[ResolvedMoment]) -> None:
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


def _print_results(console: Terminal, results: Sequence[VariantResult]) -> None:
    console.print(f"{results[0].queue}, partition {results[0].partition}\n")
    numbers = (*_EXITS, "same", "spared", "more")
    table = _table("", *numbers, numbers=numbers)
    for result in results:
        table.add_row(
            result.variant,
            *(f"{result.left.get(name, 0):,}" for name in _EXITS),
            f"{result.same:,}", f"{result.spared:,}", f"{result.more:,}",
        )  # fmt: skip
    console.print(table)
    for result in results:
        if result.first and result.last:
            first, last = (f"{at.id} ({_time(at.time_ms)})" for at in (result.first, result.last))
            console.print(f"{result.variant}: evicted from {first} to {last}", soft_wrap=True)
        if result.variant == AS_IT_WAS and result.spared + result.more:
            console.print(
                "The replay with the original settings differs from history, so the figures above "
                "are not exact. Was the configuration different when the history began? For other "
                "causes see docs/rewind.md."
            )
        for how, eviction in result.differing:
            console.print(
                f"{result.variant}: {how} {eviction.id} (step {eviction.step}, {eviction.reason})",
                soft_wrap=True,
            )
