"""The options of the Spark jobs: `cli.spark` offers them, and the jobs take them as they are.

Nothing here imports pyspark, so the command line can show them without it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer


def _location(value: str | None) -> str | None:
    """Make a folder absolute, as Spark needs it. A URI stays as it is."""
    if value is None or "://" in value:
        return value
    try:
        return str(Path(value).expanduser().absolute())
    except RuntimeError:
        text = f"{value!r}: there is no such user; write the path of the folder"
        raise typer.BadParameter(text) from None  # it names the option


def location(about: str) -> Any:
    """An option that takes a folder or a URI."""
    return typer.Option(metavar="PATH", callback=_location, help=about)


def text(metavar: str, about: str) -> Any:
    """An option whose value the job reads."""
    return typer.Option(metavar=metavar, help=about)


Master = Annotated[str | None, text("URL", "Spark master, as for spark-submit. Default: local[2].")]
JobName = Annotated[str | None, text("JOB", "Name of the job. A job writes each row once.")]
Rate = Annotated[
    float | None, typer.Option(min=0.001, max=1e9, help="Most records per second, over all tasks.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written. Write nothing.")
]
Once = Annotated[bool, typer.Option("--once", help="Stop after reading what the topics hold now.")]


class SessionOptions(NamedTuple):
    """Of every command: settings of the Spark session, besides its master."""

    conf: Annotated[
        list[str] | None, text("NAME=VALUE", "A setting of Spark, as for spark-submit. Repeatable.")
    ] = None
    packages: Annotated[
        str | None, text("GROUP:NAME:VERSION,…", "Packages that Spark loads, as for spark-submit.")
    ] = None

    def use(self) -> None:
        """Let the session of this process have them."""
        from ringfaust.spark.session import use_settings  # noqa: PLC0415 - it imports pyspark

        use_settings(self.conf or (), self.packages)


class RingOptions(NamedTuple):
    """Of `ringfaust spark ring`."""

    checkpoint: Annotated[str, location("Folder or URI for state and progress.")]
    trigger_ms: Annotated[
        int, typer.Option(min=0, help="Shortest time between the starts of two micro-batches.")
    ] = 200
    batch_records: Annotated[
        int, typer.Option(min=1, help="Most records in one micro-batch, over all partitions.")
    ] = 200_000
    tasks: Annotated[
        int,
        typer.Option(min=1, help="Tasks per micro-batch. An existing checkpoint keeps its number."),
    ] = 4
    once: Once = False
    from_worker: Annotated[
        bool,
        typer.Option("--from-worker", help="Start with everything that the worker's rings hold."),
    ] = False
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Start with empty rings in a new checkpoint, although another job or workers, "
            "which have stopped, have rings.",
        ),
    ] = False
    master: Master = None


class LakeOptions(NamedTuple):
    """Of `ringfaust spark lake`."""

    to: Annotated[str, location("Folder or URI of the lake. Created if it does not exist.")]
    once: Once = False
    inputs: Annotated[
        bool,
        typer.Option(help="Also copy the producers' topics, control and hop, for the audit."),
    ] = True
    catalog: Annotated[
        str | None, text("SCHEMA", "Register the tables in Spark's catalog, such as main.rings.")
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Serve metrics for Prometheus at this port."),
    ] = None
    master: Master = None


class MaintainOptions(NamedTuple):
    """Of `ringfaust spark maintain`."""

    lake: Annotated[str, location("Folder or URI of the lake.")]
    retention: Annotated[
        list[str] | None,
        text(
            "TABLE=DAYS",
            "Delete a table's rows after so many days, such as bronze=30d. Repeatable.",
        ),
    ] = None
    deleted_file_retention: Annotated[
        str, text("LENGTH", "Keep files that left a table this long, such as 12h or 7d.")
    ] = "7d"
    master: Master = None


class Repeats(StrEnum):
    """How the audit treats records that were written twice, byte for byte."""

    FAIL = "fail"
    COUNT = "count"


class AuditOptions(NamedTuple):
    """Of `ringfaust spark audit`."""

    lake: Annotated[
        str | None, location("Read events and outputs from this lake instead of the topics.")
    ] = None
    since: Annotated[
        str | None,
        text("DATE", "First day to audit, with --lake. Default: the first that is not closed."),
    ] = None
    until: Annotated[
        str | None, text("DATE", "Close the days before this one, and read no other.")
    ] = None
    window: Annotated[str | None, text("LENGTH", "Also count per time window, such as 1h.")] = None
    every: Annotated[
        str | None, text("LENGTH", "Repeat the audit at this interval, such as 5m.")
    ] = None
    report: Annotated[
        Path | None, text("DIR", "Write report.html and its charts to this folder.")
    ] = None
    repeats: Annotated[
        Repeats,
        typer.Option(help="Identical copies of a record: report as a fault, or only count."),
    ] = Repeats.FAIL
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every finding as a line of JSON.")
    ] = False
    master: Master = None


class Format(StrEnum):
    """The format of a backfill's source."""

    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    CSV = "csv"


class BackfillOptions(NamedTuple):
    """Of `ringfaust spark backfill`."""

    source: Annotated[
        str, typer.Argument(help="File, folder, glob pattern or URI. For Delta also PATH@v7.")
    ]
    kind: Annotated[Format, typer.Option("--format", help="Format of the source.")]
    topic: Annotated[str, typer.Option(help="A producers' topic that a route reads.")]
    key: Annotated[str | None, text("EXPR", "Record key: a column or SQL.")] = None
    value: Annotated[
        str | None, text("EXPR", "Record value: a column or SQL. Default: the row as JSON.")
    ] = None
    timestamp: Annotated[
        str | None, text("EXPR", "Time and order of the records: a column or SQL.")
    ] = None
    header: Annotated[
        list[str] | None, text("NAME=EXPR", "A header: a column or SQL. Repeatable.")
    ] = None
    name: JobName = None
    rate: Rate = None
    skip_bad: Annotated[
        str | None, text("DIR", "Write invalid rows to this folder and continue.")
    ] = None
    broker_time: Annotated[
        bool, typer.Option("--broker-time", help="Accept a topic whose brokers set the timestamps.")
    ] = False
    dry_run: DryRun = False
    master: Master = None


class LakeRole(StrEnum):
    """Which records of the lake to send again."""

    DEAD = "dead"
    EVICTED = "evicted"


class RedriveOptions(NamedTuple):
    """Of `ringfaust spark redrive` (R43)."""

    lake: Annotated[str, location("Folder or URI of the lake.")]
    role: Annotated[LakeRole, typer.Option("--from", help="The topic that had the messages.")]
    where: Annotated[str, text("SQL", "Condition on the columns of the lake's records.")]
    to_topic: Annotated[
        str | None,
        typer.Option(help="Topic to send to. Default: the topic each message came from."),
    ] = None
    name: JobName = None
    rate: Rate = None
    max_redrives: Annotated[
        int, typer.Option(min=1, help="Skip messages that have been redriven this often.")
    ] = 5
    again: Annotated[
        bool, typer.Option("--again", help="Also send messages that a redrive has sent before.")
    ] = False
    dry_run: DryRun = False
    master: Master = None


class RewindOptions(NamedTuple):
    """Of `ringfaust spark rewind`."""

    queue: Annotated[list[str], text("NAME", "A queue to look at. Repeatable.")]
    lake: Annotated[
        str | None, location("Folder or URI of a lake to read. Default: the events topic.")
    ] = None
    at: Annotated[
        str | None, text("TIME", "Show what it held then: 1h (ago), yesterday, or a time.")
    ] = None
    offset: Annotated[str | None, text("TOPIC/P/O", "Show what it held after this record.")] = None
    step: Annotated[str | None, text("P/N", "Show what it held after step N of partition P.")] = (
        None
    )
    to: Annotated[
        str | None, text("MOMENT", "Show what changed up to this time, offset or step.")
    ] = None
    ring_size: Annotated[
        str | None, text("N,…", "Show what these ring sizes would have evicted.")
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Also apply this setting. Repeatable."),
    ] = None
    limit: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Most messages to name in each list.")
    ] = 20
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each queue, a line each.")
    ] = False
    master: Master = None
