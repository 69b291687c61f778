"""`ringfaust spark …`: the data pipeline. Each command imports what it needs when it runs."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from typing import Annotated

import typer

from ringfaust.app.cli_parts import ConfigFolder, Servers, group

spark = group("The data pipeline on Spark (needs the extra ringfaust[spark]).")

Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="As of spark-submit; local[2] if not given."),
]


@spark.command()
def ring(  # noqa: PLR0917 - typer gives them by name
    checkpoint: Annotated[
        str, typer.Option(metavar="PATH", help="Folder or URI that keeps state and progress.")
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
) -> None:
    """Run the rings as a Structured Streaming job, until Ctrl-C or SIGTERM."""
    from ringfaust.app.config import load
    from ringfaust.spark.ring.command import run
    from ringfaust.spark.ring.job import JobSettings

    settings = JobSettings(
        checkpoint=checkpoint, trigger_ms=trigger_ms, batch_records=batch_records, tasks=tasks
    )
    files = load(folder, bootstrap_servers=bootstrap_servers)
    run(*files, settings, once=once, master=master)
