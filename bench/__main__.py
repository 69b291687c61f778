"""`make bench`: ringfaust beside its peers, round by round. See docs/performance.md."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import page
from bench.environment import environment
from bench.kafka import Kafka
from bench.model import Load, Peer
from bench.peers.artemis import Artemis
from bench.peers.copy import Copy
from bench.peers.faust_idiom import FaustIdiom
from bench.peers.floor import Floor
from bench.peers.ringfaust import Ringfaust
from bench.peers.share_group import ShareGroup
from bench.processes import ROOT
from bench.results import Line, Results
from bench.workloads import QUICK, workloads

QUICK_SCALE = 0.25
QUICK_PEERS = ("ringfaust", "Artemis", "aiokafka copy")


def chosen(only: str, scale: float) -> list[Load]:
    """The loads of the workloads that were asked for, by name."""
    by_workload = workloads(scale)
    names = [name.strip() for name in only.split(",") if name.strip()] or list(by_workload)
    unknown = sorted(set(names) - set(by_workload))
    if unknown:
        raise typer.BadParameter(
            f"there is no workload {', '.join(unknown)}; there are {', '.join(by_workload)}"
        )
    return [load for name in names for load in by_workload[name]]


def peers(kafka: Kafka) -> list[Peer]:
    """All systems, in the order in which they take turns."""
    return [
        Ringfaust(kafka),
        Artemis(fsync=False),
        Artemis(fsync=True),
        Copy(kafka),
        FaustIdiom(kafka),
        Floor(kafka),
        ShareGroup(),
    ]


def measure(
    loads: Sequence[Load], names: Sequence[str], rounds: int, path: Path, out: Console
) -> Results:
    """Carry each load in each round by every peer that can, in turns.

    Args:
        loads: what to carry.
        names: of the peers; none: all.
        rounds: how often.
        path: where the results are written, after each load: an interrupted run keeps its part.
        out: shows the progress.
    """
    results = Results(environment(), [])
    with Kafka() as kafka, ExitStack() as stack, _progress(out) as progress:
        able = [peer for peer in peers(kafka) if not names or peer.name in names]
        turns = [(load, [peer for peer in able if peer.carries(load)]) for load in loads]
        for peer in able:
            if any(peer in carrying for _, carrying in turns):
                stack.enter_context(peer)
        task = progress.add_task("", total=rounds * sum(len(carrying) for _, carrying in turns))
        for load, carrying in turns:
            lines = [Line(load, peer.name) for peer in carrying]
            results.lines.extend(lines)
            for number in range(1, rounds + 1):
                for peer, line in zip(carrying, lines, strict=True):
                    about = f"{load.title}, round {number}: {peer.name}"
                    progress.update(task, description=about)
                    line.rounds.append(peer.run(load))
                    figures = ", ".join(f"{k} {v:,.1f}" for k, v in line.rounds[-1].items())
                    progress.console.print(f"{about}: {figures}", highlight=False)
                    progress.advance(task)
            results.write(path)
    return results


@contextlib.contextmanager
def _progress(out: Console) -> Iterator[Progress]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=out) as progress:
        yield progress


def main(
    only: Annotated[str, typer.Option(help="Names of workloads, separated by commas.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="How often each load is carried.")] = 5,
    scale: Annotated[float, typer.Option(min=0.001, help="Share of the messages.")] = 1.0,
    quick: Annotated[bool, typer.Option(help="Evict and cycle, one small round each.")] = False,
) -> None:
    """Measure ringfaust beside its peers."""
    # As with Ctrl-C, everything that was started is stopped.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    out = Console()
    names: Sequence[str] = ()
    loads = chosen(only, scale)
    if quick:
        names, rounds = QUICK_PEERS, 1
        loads = [load for load in chosen(",".join(QUICK), QUICK_SCALE) if load.credit == 1_000]
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = ROOT / "bench" / "results" / f"{stamp}.json"
    results = measure(loads, names, rounds, path, out)
    out.print(page.console_table(results))
    out.print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    typer.run(main)
