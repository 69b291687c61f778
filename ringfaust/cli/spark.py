"""`ringfaust spark …`: the data pipeline. Each command imports what it needs when it runs."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from typing import Annotated

import typer

from ringfaust.cli.operate import say, say_text
from ringfaust.cli.parts import ConfigFiles, ErrorReportingGroup, SparkCommand, group
from ringfaust.spark.options import (
    AuditOptions,
    BackfillOptions,
    LakeOptions,
    MaintainOptions,
    Master,
    RedriveOptions,
    RewindOptions,
    RingOptions,
    SessionOptions,
    location,
)

spark = group("Run rings and analyses on Spark. Needs the extra ringfaust[spark].")


@spark.command(cls=SparkCommand)
def ring(*, options: RingOptions, files: ConfigFiles, session: SessionOptions) -> None:
    """Run the rings as a Structured Streaming job until Ctrl-C or SIGTERM.

    Example: ringfaust spark ring --config config --checkpoint /lake/rings
    """
    from ringfaust.spark.ring.command import run

    session.use()
    say_text(run(*files.load(), options))


@spark.command("move-to-worker", cls=SparkCommand)
def move_to_worker(
    *,
    checkpoint: Annotated[str, location("Checkpoint of a ring job that has stopped.")],
    master: Master = None,
    files: ConfigFiles,
    session: SessionOptions,
) -> None:
    """Hand everything that a ring job holds to the worker, which continues when it next starts.

    Example: ringfaust spark move-to-worker --checkpoint /data/rings
    """
    from ringfaust.spark.ring.command import run_move_to_worker

    session.use()
    worker, queues = files.load()
    rows = run_move_to_worker(worker, queues, checkpoint, master)
    say(f"wrote {rows:,} rows to {worker.topic('changelog')}; start the worker now")


@spark.command(cls=SparkCommand)
def lake(*, options: LakeOptions, files: ConfigFiles, session: SessionOptions) -> None:
    """Copy an application's topics into Delta tables.

    Each record is copied exactly once, from the beginning of the topics, until Ctrl-C or SIGTERM.

    Example: ringfaust spark lake --config config --to /lake --once
    """
    from ringfaust.spark.lake.command import run

    session.use()
    say_text(run(*files.load(), options))


@spark.command(cls=SparkCommand)
def maintain(*, options: MaintainOptions, session: SessionOptions) -> None:
    """Cluster the past days of a lake's tables, delete old days, and vacuum.

    The lake may be written and read at the same time. Run it once a day.

    Example: ringfaust spark maintain --lake /lake --retention bronze=30d
    """
    from ringfaust.spark.maintain.command import run

    session.use()
    run(options)


@spark.command(cls=SparkCommand)
def audit(*, files: ConfigFiles, options: AuditOptions, session: SessionOptions) -> None:
    """Prove that every record has exactly one outcome or is still held.

    Exit status: 0 if the accounts balance, 1 if not, 2 if the audit could not run.

    Example: ringfaust spark audit --config config --window 1h --report report/
    """
    from ringfaust.spark.audit.command import run

    session.use()
    raise typer.Exit(run(*files.load(), options))


@spark.command(cls=SparkCommand)
def backfill(*, options: BackfillOptions, files: ConfigFiles, session: SessionOptions) -> None:
    """Write rows from Parquet, Delta, JSON or CSV to a topic, each exactly once.

    Example: ringfaust spark backfill flights.parquet --format parquet --topic flights --dry-run
    """
    from ringfaust.spark.backfill.command import run

    session.use()
    run(*files.load(), options)


@spark.command(cls=SparkCommand)
def redrive(*, options: RedriveOptions, files: ConfigFiles, session: SessionOptions) -> None:
    """Send dead or evicted messages from the lake again, each exactly once.

    Example: ringfaust spark redrive --lake /lake --from dead --where "queue = 'orders'" --dry-run
    """
    from ringfaust.spark.redrive.command import run

    session.use()
    run(*files.load(), options)


@spark.command(cls=SparkCommand)
def rewind(*, options: RewindOptions, files: ConfigFiles, session: SessionOptions) -> None:
    """Show what a ring held, what changed, or what another ring size would have evicted.

    Example: ringfaust spark rewind --queue orders --at 2026-01-31T17:05:00Z
    """
    from ringfaust.spark.rewind.command import run

    session.use()
    run(*files.load(), options)


def main() -> None:
    """The program `ringfaust` of the distribution ringfaust-spark: these commands alone."""
    program = group("Spark jobs for ring queues on Apache Kafka.", cls=ErrorReportingGroup)
    program.add_typer(spark, name="spark")
    program(prog_name="ringfaust")
