"""The `ringfaust` command. Each subcommand imports what it needs when it runs, to start fast."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust import __version__, compiled
from ringfaust.cli.consumer import consumer
from ringfaust.cli.message import message
from ringfaust.cli.operate import Application, AsJson, Brokers, Folder, Target
from ringfaust.cli.parts import (
    ConfigFolder,
    ErrorReportingGroup,
    OwnServers,
    Servers,
    group,
    read_time,
    require_spark,
)
from ringfaust.cli.queue import queue
from ringfaust.cli.spark import spark
from ringfaust.cli.xid import xid

if TYPE_CHECKING:
    from ringfaust.config import QueuesConfig, WorkerConfig

main = group(
    "Ring queues on Apache Kafka: keep the newest N messages, account for all others.",
    cls=ErrorReportingGroup,
)
topics = group("Inspect, create and verify the topics of an application.")
config = group("Check the configuration.")
main.add_typer(queue, name="queue")
main.add_typer(message, name="message")
main.add_typer(consumer, name="consumer")
main.add_typer(xid, name="xid")
main.add_typer(topics, name="topics")
main.add_typer(config, name="config")
main.add_typer(spark, name="spark")


class HostName(StrEnum):
    """A host that can play scenarios."""

    MEMORY = "memory"
    FAUST = "faust"
    SPARK = "spark"


class LogLevel(StrEnum):
    """How much a worker logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a worker writes the lines of its log."""

    TEXT = "text"
    JSON = "json"


class RedriveTopic(StrEnum):
    """A topic whose messages can be redriven."""

    DEAD = "dead"
    EVICTED = "evicted"


@main.callback()
def _before() -> None:
    # Our own errors cover what aiokafka logs. Users who configure logging still get its log.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())


def _load(
    folder: Path | None, servers: str | None, **overrides: object
) -> tuple[WorkerConfig, QueuesConfig]:
    from ringfaust.config import load

    return load(folder, bootstrap_servers=servers, **overrides)


@main.command()
def worker(
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the worker's state. Overrides worker.yaml."),
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(help="How much to log. Overrides worker.yaml.")
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How to write the log. Overrides worker.yaml.")
    ] = None,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM."""
    worker_config, queues_config = _load(
        folder, bootstrap_servers, data_dir=data_dir,
        log_level=log_level and log_level.value, log_format=log_format and log_format.value,
    )  # fmt: skip
    from ringfaust.worker.app import run

    run(worker_config, queues_config)


@topics.command("plan")
def topics_plan(folder: ConfigFolder = None, bootstrap_servers: Servers = None) -> None:
    """Show which topics exist, are missing or differ. Changes nothing."""
    files = _load(folder, bootstrap_servers)
    from ringfaust.cli.topics import plan

    raise typer.Exit(plan(*files))


@topics.command("create")
def topics_create(folder: ConfigFolder = None, bootstrap_servers: Servers = None) -> None:
    """Create missing topics. Never alters or deletes a topic."""
    files = _load(folder, bootstrap_servers)
    from ringfaust.cli.topics import create

    raise typer.Exit(create(*files))


@topics.command("verify")
def topics_verify(folder: ConfigFolder = None, bootstrap_servers: Servers = None) -> None:
    """Explain what is wrong with the topics.

    Exit status 1 if a worker cannot run with them.
    """
    files = _load(folder, bootstrap_servers)
    from ringfaust.cli.topics import verify

    raise typer.Exit(verify(*files))


@config.command("check")
def config_check(folder: ConfigFolder = None) -> None:
    """Check queues.yaml and worker.yaml.

    Reports every mistake with its file, its line and a suggestion.
    """
    worker_config, queues = _load(folder, None)
    from ringfaust.config.documents import shipped

    where = folder or shipped("config")
    typer.echo(
        f"{where / 'queues.yaml'} is valid: routes {len(queues.routes)}, queues "
        f"{len(queues.queues)}, "
        f"addresses {len(queues.addresses)}, settings {len(queues.settings)}"
    )
    path = where / "worker.yaml"
    state = "is valid" if path.exists() else "does not exist, so every setting has its default"
    typer.echo(f"{path} {state}: application {worker_config.application}")
    from ringfaust.config.agreement import fingerprint

    typer.echo(f"fingerprint, equal on all workers: {fingerprint(worker_config, queues)}")
    for route in queues.routes:
        how = "through the hop" if route.needs_hop(worker_config.partitions) else "directly"
        typer.echo(f"  {route.topic} -> {route.queue}, {how}")


@main.command()
def redrive(
    *,
    source: Annotated[
        RedriveTopic, typer.Option("--from", help="The topic that has the messages.")
    ],
    to: Annotated[str, typer.Option(metavar="QUEUE", help="The queue to send them to.")],
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="The message with this id. Repeatable.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Messages with this reason.")] = "",
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Messages since this time: ISO 8601, or ms since 1970."),
    ] = "",
    selector: Annotated[str, typer.Option(help="Messages that match this selector.")] = "",
    queue: Annotated[
        str, typer.Option(help="Messages that were in this queue, or match this pattern.")
    ] = "",
    partition: Annotated[
        int | None,
        typer.Option(min=0, help="The partition of the queue, if it cannot be determined."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also send messages that were sent again before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent. Send nothing.")
    ] = False,
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
) -> None:
    """Send dead or evicted messages again.

    A message that was sent before is left out, also after a redrive that was killed.

    If several records have the same id, the last one is sent. Exit status 1 if a message named
    by --id cannot be sent.
    """
    worker_config, queues_config = _load(folder, bootstrap_servers)
    from ringfaust.cli.redrive import run
    from ringfaust.kafka.redrive import RedriveRequest
    from ringfaust.protocol.records import Role

    request = RedriveRequest(
        role=Role(source.value),
        to=to,
        ids=ids or (),
        reason=reason,
        since_ms=read_time("--since", since) if since else 0,
        selector=selector,
        queue=queue,
        partition=partition,
        again=again,
    )
    raise typer.Exit(run(worker_config, queues_config, request, dry_run=dry_run))


@main.command()
def trace(
    *,
    message_id: Annotated[
        str, typer.Argument(metavar="[ID | TOPIC/PARTITION/OFFSET]", help="The message.")
    ] = "",
    key: Annotated[
        str, typer.Option(help="Instead: the latest messages whose records have this key.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Search since this time. Default: the last hour."),
    ] = "",
    as_json: AsJson = False,
    folder: Folder = None,
    bootstrap_servers: Brokers = None,
    application: Application = None,
) -> None:
    """Say where a message went: its whole life, in sentences.

    Exit status 1 if no event names it. Example: ringfaust trace order-17
    """
    from ringfaust.cli.trace import run

    target = Target(folder, bootstrap_servers, application)
    raise typer.Exit(run(target, message_id, key, since, as_json=as_json))


@main.command()
def scenario(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", dir_okay=False, help="Scenario files.")
    ],
    host: Annotated[HostName, typer.Option(help="The host to play them on.")] = HostName.MEMORY,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail on files that the host does not support."),
    ] = False,
    bootstrap_servers: OwnServers = None,
) -> None:
    """Play scenario files and report which hold.

    Exit status: 0 if all hold, 1 if one fails, 2 if one is not valid.
    """
    if host is HostName.SPARK:
        require_spark()
    from ringfaust.cli.scenario import run

    raise typer.Exit(run(files, host.value, strict, bootstrap_servers))


@main.command()
def demo(bootstrap_servers: OwnServers = None) -> None:
    """Send real flights through rings and account for every one."""
    from ringfaust.demo import run

    raise typer.Exit(run(bootstrap_servers))


@main.command()
def broker(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for the topics. Default: delete them when it stops."
        ),
    ] = None,
) -> None:
    """Run a real Kafka broker on this machine, to try things out.

    It listens on 127.0.0.1 until Ctrl-C or SIGTERM.
    """
    from ringfaust.cli.broker import run

    run(port, data_dir)


@main.command()
def version() -> None:
    """Print the version, and whether the engine is compiled."""
    typer.echo(f"{__version__} ({compiled.KIND})")
