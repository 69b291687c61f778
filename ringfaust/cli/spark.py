"""`ringfaust spark …`: the data pipeline. Each command imports what it needs when it runs."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfaust.cli.parts import ConfigFolder, OwnServers, Servers, group

spark = group("The data pipeline on Spark (needs the extra ringfaust[spark]).")


def _location(value: str | None) -> str | None:
    """A folder as Spark needs it, absolute; a URI stays."""
    return value if value is None or "://" in value else str(Path(value).expanduser().absolute())


def _path(about: str) -> Any:
    return typer.Option(metavar="PATH", callback=_location, help=about)


Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="As of spark-submit; local[2] if not given."),
]


@spark.command()
def ring(  # noqa: PLR0917 - typer gives them by name
    checkpoint: Annotated[
        str,
        _path("Folder or URI that keeps state and progress."),
    ],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    master: Master = None,
    trigger_ms: Annotated[
        int, typer.Option(min=0, help="Least time from one micro-batch to the next.")
    ] = 200,
    batch_records: Annotated[
        int, typer.Option(min=1, help="Most records in one micro-batch, over all partitions.")
    ] = 200_000,
    tasks: Annotated[
        int,
        typer.Option(min=1, help="Tasks of a micro-batch; a checkpoint keeps its first number."),
    ] = 4,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that was there has been read.")
    ] = False,
    from_worker: Annotated[
        bool, typer.Option("--from-worker", help="Begin with all that the worker's rings hold.")
    ] = False,
) -> None:
    """Run the rings as a Structured Streaming job, until Ctrl-C or SIGTERM."""
    from ringfaust.config import load
    from ringfaust.spark.ring.command import run
    from ringfaust.spark.ring.job import JobSettings

    settings = JobSettings(
        checkpoint=checkpoint, trigger_ms=trigger_ms, batch_records=batch_records, tasks=tasks
    )
    files = load(folder, bootstrap_servers=bootstrap_servers)
    run(*files, settings, once=once, from_worker=from_worker, master=master)


@spark.command("move-to-worker")
def move_to_worker(
    checkpoint: Annotated[
        str,
        _path("Of a ring job that has been stopped."),
    ],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    master: Master = None,
) -> None:
    """Give all that a ring job holds to the worker, which goes on with it at its next start."""
    from ringfaust.config import load
    from ringfaust.spark.ring.command import run_move_to_worker

    files = load(folder, bootstrap_servers=bootstrap_servers)
    rows = run_move_to_worker(*files, checkpoint, master)
    typer.echo(f"{rows:,} rows written to {files[0].topic('changelog')}: start the worker")


@spark.command()
def lake(
    to: Annotated[
        str,
        _path("Folder or URI of the lake; made if not there."),
    ],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that was there has been read.")
    ] = False,
    master: Master = None,
) -> None:
    """Keep what events, dispatched, evicted and dead tell as Delta tables.

    Exactly once, from the beginning of the topics, until Ctrl-C or SIGTERM.
    """
    from ringfaust.config import load
    from ringfaust.spark.lake.command import run

    worker, _ = load(folder, bootstrap_servers=bootstrap_servers)
    run(worker, to, once=once, master=master)


class Repeats(StrEnum):
    """What a record is that stands somewhere twice, word for word."""

    FAIL = "fail"
    COUNT = "count"


@spark.command()
def audit(  # noqa: PLR0917 - typer gives them by name
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            callback=_location,
            help="Read events and outputs from this lake, not the topics.",
        ),
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="Count for each window too, such as 1h.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="RedriveMessage and again, such as 5m.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write report.html and its pictures there.")
    ] = None,
    repeats: Annotated[
        Repeats,
        typer.Option(help="Records that stand twice word for word: a fault, or only counted."),
    ] = Repeats.FAIL,
    as_json: Annotated[
        bool, typer.Option("--json", help="Lines of JSON that name every finding.")
    ] = False,
    master: Master = None,
) -> None:
    """Prove that every record that came in has exactly one fate, or is held.

    Exit status: 0 balanced, 1 not, 2 it could not be done.
    """
    from ringfaust.config import load
    from ringfaust.spark.audit.command import AuditSettings, run

    settings = AuditSettings(
        lake=lake,
        window=window,
        every=every,
        report=report,
        repeats_are_faults=repeats is Repeats.FAIL,
        as_json=as_json,
        master=master,
    )
    raise typer.Exit(run(*load(folder, bootstrap_servers=bootstrap_servers), settings))


Name = Annotated[
    str | None,
    typer.Option(metavar="JOB", help="What is written under one name is written once."),
]
Rate = Annotated[
    float | None, typer.Option(min=0.001, help="Most records a second, over all tasks.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be written and write nothing.")
]


@spark.command()
def backfill(  # noqa: PLR0917 - typer gives them by name
    source: Annotated[
        str, typer.Argument(help="File, folder, pattern or URI; Delta also PATH@v7.")
    ],
    kind: Annotated[
        str, typer.Option("--format", metavar="parquet|delta|json|csv", help="What it is.")
    ],
    topic: Annotated[str, typer.Option(help="A producers' topic that a route reads.")],
    key: Annotated[str | None, typer.Option(metavar="EXPR", help="Column or SQL.")] = None,
    value: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Column or SQL; else the row as JSON.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="EXPR", help="The records' time and order.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=EXPR", help="RedriveMessage for each header.")
    ] = None,
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    name: Name = None,
    rate: Rate = None,
    skip_bad: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Rows that make no sense go there and stop nothing."),
    ] = None,
    broker_time: Annotated[
        bool, typer.Option("--broker-time", help="Accept a topic that stamps records itself.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
) -> None:
    """Write rows of Parquet, Delta, JSON or CSV to a topic, each exactly once."""
    from ringfaust.config import load
    from ringfaust.spark.backfill.command import read_options, run

    files = load(folder, bootstrap_servers=bootstrap_servers)
    asked = read_options(
        source=source,
        kind=kind,
        topic=topic,
        key=key,
        value=value,
        timestamp=timestamp,
        headers=header or [],
        name=name,
        rate=rate,
        skip_bad=skip_bad,
        broker_time=broker_time,
    )
    run(*files, asked, dry_run=dry_run, master=master)


@spark.command()
def redrive(  # noqa: PLR0917 - typer gives them by name
    lake: Annotated[str, _path("Folder or URI of the lake.")],
    role: Annotated[str, typer.Option("--from", metavar="dead|evicted", help="Which messages.")],
    where: Annotated[str, typer.Option(metavar="SQL", help="Condition on the lake's records.")],
    to_topic: Annotated[
        str | None, typer.Option(help="Else each goes to the topic that it came from.")
    ] = None,
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    name: Name = None,
    rate: Rate = None,
    max_redrives: Annotated[
        int, typer.Option(min=1, help="Messages that were sent again so often are left out.")
    ] = 5,
    dry_run: DryRun = False,
    master: Master = None,
) -> None:
    """Send dead or evicted messages of the lake again, each exactly once."""
    from ringfaust.config import load
    from ringfaust.spark.backfill.redrive import Redrive, read_role, run

    files = load(folder, bootstrap_servers=bootstrap_servers)
    asked = Redrive(
        lake=lake,
        role=read_role(role),
        where=where,
        to_topic=to_topic,
        name=name,
        rate=rate,
        max_redrives=max_redrives,
    )
    run(*files, asked, dry_run=dry_run, master=master)


@spark.command()
def rewind(  # noqa: PLR0917 - typer gives them by name
    queue: Annotated[str, typer.Option(metavar="NAME", help="Whose past.")],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    master: Master = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            callback=_location,
            help="Folder or URI of a lake; else the events topic.",
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="What it held then: ISO 8601, or ms.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(metavar="TOPIC/P/O", help="What it held after the record at this offset."),
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="P/N", help="What it held after step N of partition P.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="What changed from there to this, in any such form."),
    ] = None,
    ring_size: Annotated[
        str | None,
        typer.Option(metavar="N,…", help="What would have been evicted with these ring sizes."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="And with this setting."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most messages named in each list.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Tell what a ring held, what changed, or what another ring size had evicted."""
    from ringfaust.config import load
    from ringfaust.spark.rewind.command import read_question, run

    question = read_question(
        queue,
        at=at,
        offset=offset,
        step=step,
        to=to,
        ring_sizes=ring_size,
        settings=settings or (),
        limit=limit,
    )
    files = load(folder, bootstrap_servers=bootstrap_servers)
    run(*files, question, lake=lake, master=master, as_json=as_json)


@spark.command()
def demo(
    flights: Annotated[
        str, typer.Option(metavar="N|all", help="How many of the year's first flights.")
    ] = "60000",
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Keeps the audit's report, and a log.")
    ] = Path("ringfaust-report"),
    bootstrap_servers: OwnServers = None,
) -> None:
    """Send real flights through worker and Spark job, audit and compare them.

    Exit status: 0 all equal and accounted for, 1 not, 2 it could not be done.
    """
    from ringfaust.demo.spark import run

    raise typer.Exit(run(bootstrap_servers, flights, report))
