"""`ringfaust spark …`: the data pipeline. Each command imports what it needs when it runs."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfaust.cli.parts import ConfigFolder, OwnServers, Servers, SparkCommand, group

spark = group("Run rings and analyses on Spark. Needs the extra ringfaust[spark].")


def _location(value: str | None) -> str | None:
    """Make a folder absolute, as Spark needs it. A URI stays as it is."""
    return value if value is None or "://" in value else str(Path(value).expanduser().absolute())


def _path(about: str) -> Any:
    return typer.Option(metavar="PATH", callback=_location, help=about)


Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark master, as for spark-submit. Default: local[2]."),
]


@spark.command(cls=SparkCommand)
def ring(  # noqa: PLR0917 - typer passes them by name
    checkpoint: Annotated[
        str,
        _path("Folder or URI for state and progress."),
    ],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    master: Master = None,
    trigger_ms: Annotated[
        int, typer.Option(min=0, help="Shortest time between the starts of two micro-batches.")
    ] = 200,
    batch_records: Annotated[
        int, typer.Option(min=1, help="Most records in one micro-batch, over all partitions.")
    ] = 200_000,
    tasks: Annotated[
        int,
        typer.Option(min=1, help="Tasks per micro-batch. An existing checkpoint keeps its number."),
    ] = 4,
    once: Annotated[
        bool, typer.Option("--once", help="Stop after reading what the topics hold now.")
    ] = False,
    from_worker: Annotated[
        bool,
        typer.Option("--from-worker", help="Start with everything that the worker's rings hold."),
    ] = False,
) -> None:
    """Run the rings as a Structured Streaming job until Ctrl-C or SIGTERM.

    Example: ringfaust spark ring --config config --checkpoint /lake/rings
    """
    from ringfaust.config import load
    from ringfaust.spark.ring.command import run
    from ringfaust.spark.ring.job import JobSettings

    settings = JobSettings(
        checkpoint=checkpoint, trigger_ms=trigger_ms, batch_records=batch_records, tasks=tasks
    )
    files = load(folder, bootstrap_servers=bootstrap_servers)
    typer.echo(run(*files, settings, once=once, from_worker=from_worker, master=master))


@spark.command("move-to-worker", cls=SparkCommand)
def move_to_worker(
    checkpoint: Annotated[
        str,
        _path("Checkpoint of a ring job that has stopped."),
    ],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    master: Master = None,
) -> None:
    """Hand everything that a ring job holds to the worker, which continues when it next starts.

    Example: ringfaust spark move-to-worker --checkpoint /data/rings
    """
    from ringfaust.config import load
    from ringfaust.spark.ring.command import run_move_to_worker

    files = load(folder, bootstrap_servers=bootstrap_servers)
    rows = run_move_to_worker(*files, checkpoint, master)
    typer.echo(f"wrote {rows:,} rows to {files[0].topic('changelog')}; start the worker now")


@spark.command(cls=SparkCommand)
def lake(  # noqa: PLR0917 - typer passes them by name
    to: Annotated[
        str,
        _path("Folder or URI of the lake. Created if it does not exist."),
    ],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop after reading what the topics hold now.")
    ] = False,
    inputs: Annotated[
        bool,
        typer.Option(help="Also copy the producers' topics, control and hop, for the audit."),
    ] = True,
    catalog: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEMA", help="Register the tables in Spark's catalog, such as main.rings."
        ),
    ] = None,
    master: Master = None,
) -> None:
    """Copy an application's topics into Delta tables.

    Each record is copied exactly once, from the beginning of the topics, until Ctrl-C or SIGTERM.

    Example: ringfaust spark lake --config config --to /lake --once
    """
    from ringfaust.config import load
    from ringfaust.spark.lake.command import run

    files = load(folder, bootstrap_servers=bootstrap_servers)
    run(*files, to, inputs=inputs, catalog=catalog, once=once, master=master)


@spark.command(cls=SparkCommand)
def maintain(
    lake: Annotated[str, _path("Folder or URI of the lake.")],
    retention: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=DAYS",
            help="Delete a table's rows after so many days, such as bronze=30d. Repeatable.",
        ),
    ] = None,
    deleted_file_retention: Annotated[
        str,
        typer.Option(
            metavar="LENGTH", help="Keep files that left a table this long, such as 12h or 7d."
        ),
    ] = "7d",
    master: Master = None,
) -> None:
    """Cluster the past days of a lake's tables, delete old days, and vacuum.

    The lake may be written and read at the same time. Run it once a day.

    Example: ringfaust spark maintain --lake /lake --retention bronze=30d
    """
    from ringfaust.spark.maintain.command import run
    from ringfaust.spark.maintain.request import read_options

    run(read_options(lake, retention or (), deleted_file_retention), master)


class Repeats(StrEnum):
    """How the audit treats records that were written twice, byte for byte."""

    FAIL = "fail"
    COUNT = "count"


@spark.command(cls=SparkCommand)
def audit(  # noqa: PLR0917 - typer passes them by name
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            callback=_location,
            help="Read events and outputs from this lake instead of the topics.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="First day to audit, with --lake. Default: the first that is not closed.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Close the days before this one, and read no other."),
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="Also count per time window, such as 1h.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="LENGTH", help="Repeat the audit at this interval, such as 5m."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write report.html and its charts to this folder."),
    ] = None,
    repeats: Annotated[
        Repeats,
        typer.Option(help="Identical copies of a record: report as a fault, or only count."),
    ] = Repeats.FAIL,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every finding as a line of JSON.")
    ] = False,
    master: Master = None,
) -> None:
    """Prove that every record has exactly one outcome or is still held.

    Exit status: 0 if the accounts balance, 1 if not, 2 if the audit could not run.

    Example: ringfaust spark audit --config config --window 1h --report report/
    """
    from ringfaust.config import load
    from ringfaust.spark.audit.command import AuditSettings, run

    settings = AuditSettings(
        lake=lake,
        since=since,
        until=until,
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
    typer.Option(metavar="JOB", help="Name of the job. A job writes each row once."),
]
Rate = Annotated[
    float | None, typer.Option(min=0.001, help="Most records per second, over all tasks.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written. Write nothing.")
]


@spark.command(cls=SparkCommand)
def backfill(  # noqa: PLR0917 - typer passes them by name
    source: Annotated[
        str, typer.Argument(help="File, folder, glob pattern or URI. For Delta also PATH@v7.")
    ],
    kind: Annotated[
        str,
        typer.Option("--format", metavar="parquet|delta|json|csv", help="Format of the source."),
    ],
    topic: Annotated[str, typer.Option(help="A producers' topic that a route reads.")],
    key: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Record key: a column or SQL.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Record value: a column or SQL. Default: the row as JSON."
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Time and order of the records: a column or SQL."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=EXPR", help="A header: a column or SQL. Repeatable."),
    ] = None,
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    name: Name = None,
    rate: Rate = None,
    skip_bad: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write invalid rows to this folder and continue."),
    ] = None,
    broker_time: Annotated[
        bool, typer.Option("--broker-time", help="Accept a topic whose brokers set the timestamps.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
) -> None:
    """Write rows from Parquet, Delta, JSON or CSV to a topic, each exactly once.

    Example: ringfaust spark backfill flights.parquet --format parquet --topic flights --dry-run
    """
    from ringfaust.config import load
    from ringfaust.spark.backfill.command import read_options, run

    files = load(folder, bootstrap_servers=bootstrap_servers)
    request = read_options(
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
    run(*files, request, dry_run=dry_run, master=master)


@spark.command(cls=SparkCommand)
def redrive(  # noqa: PLR0917 - typer passes them by name
    lake: Annotated[str, _path("Folder or URI of the lake.")],
    role: Annotated[
        str, typer.Option("--from", metavar="dead|evicted", help="The topic that had the messages.")
    ],
    where: Annotated[
        str, typer.Option(metavar="SQL", help="Condition on the columns of the lake's records.")
    ],
    to_topic: Annotated[
        str | None,
        typer.Option(help="Topic to send to. Default: the topic each message came from."),
    ] = None,
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    name: Name = None,
    rate: Rate = None,
    max_redrives: Annotated[
        int, typer.Option(min=1, help="Skip messages that have been redriven this often.")
    ] = 5,
    again: Annotated[
        bool, typer.Option("--again", help="Also send messages that this job sent before.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
) -> None:
    """Send dead or evicted messages from the lake again, each exactly once.

    Example: ringfaust spark redrive --lake /lake --from dead --where "queue = 'orders'" --dry-run
    """
    from ringfaust.config import load
    from ringfaust.spark.redrive.command import run
    from ringfaust.spark.redrive.request import LakeRedriveRequest, read_role

    files = load(folder, bootstrap_servers=bootstrap_servers)
    request = LakeRedriveRequest(
        lake=lake,
        role=read_role(role),
        where=where,
        to_topic=to_topic,
        name=name,
        rate=rate,
        max_redrives=max_redrives,
        again=again,
    )
    run(*files, request, dry_run=dry_run, master=master)


@spark.command(cls=SparkCommand)
def rewind(  # noqa: PLR0917 - typer passes them by name
    queue: Annotated[str, typer.Option(metavar="NAME", help="The queue to look at.")],
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    master: Master = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            callback=_location,
            help="Folder or URI of a lake to read. Default: the events topic.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show what it held at this time: ISO 8601, or ms."),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(metavar="TOPIC/P/O", help="Show what it held after this record."),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="P/N", help="Show what it held after step N of partition P."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="Show what changed up to this time, offset or step."),
    ] = None,
    ring_size: Annotated[
        str | None,
        typer.Option(metavar="N,…", help="Show what these ring sizes would have evicted."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Also apply this setting. Repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most messages to name in each list.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a ring held, what changed, or what another ring size would have evicted.

    Example: ringfaust spark rewind --queue orders --at 2026-01-31T17:05:00Z
    """
    from ringfaust.config import load
    from ringfaust.spark.rewind.command import read_options, run

    request = read_options(
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
    run(*files, request, lake=lake, master=master, as_json=as_json)


@spark.command(cls=SparkCommand)
def demo(
    flights: Annotated[
        str,
        typer.Option(metavar="N|all", help="How many flights to send, from the start of the year."),
    ] = "60000",
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the audit report and a log.")
    ] = Path("ringfaust-report"),
    bootstrap_servers: OwnServers = None,
) -> None:
    """Send real flights through a worker and a Spark job, then audit and compare both.

    Exit status: 0 if both agree and account for every flight, 1 if not, 2 if the demo could not
    run.

    Example: ringfaust spark demo
    """
    from ringfaust.demo.spark import run

    raise typer.Exit(run(bootstrap_servers, flights, report))
