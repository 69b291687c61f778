"""The command line. Each command imports what it needs when it runs, so that help is quick."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust import __version__
from ringfaust.cli.parts import Commands, ConfigFolder, OwnServers, Servers, group
from ringfaust.cli.spark import spark

if TYPE_CHECKING:
    from ringfaust.config import QueuesConfig, WorkerConfig

main = group(
    "Ring queues on Apache Kafka: the newest N stay, the rest is accounted for.", cls=Commands
)
topics = group("Plan, make and verify the topics that an application needs.")
config = group("Look at the configuration.")
main.add_typer(topics, name="topics")
main.add_typer(config, name="config")
main.add_typer(spark, name="spark")


class HostName(StrEnum):
    """Where scenarios are played."""

    MEMORY = "memory"
    FAUST = "faust"
    SPARK = "spark"


class GoneTo(StrEnum):
    """From where messages are sent again."""

    DEAD = "dead"
    EVICTED = "evicted"


@main.callback()
def _before() -> None:
    # What aiokafka logs is told by our own errors, unless somebody sets logging up.
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
        typer.Option(metavar="DIR", help="Where its state is kept; wins over worker.yaml."),
    ] = None,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM."""
    worker_config, queues_config = _load(folder, bootstrap_servers, data_dir=data_dir)
    from ringfaust.worker.app import run

    run(worker_config, queues_config)


@topics.command("plan")
def topics_plan(folder: ConfigFolder = None, bootstrap_servers: Servers = None) -> None:
    """Show which topics are there, missing or different. Changes nothing."""
    files = _load(folder, bootstrap_servers)
    from ringfaust.cli.topics import plan

    raise typer.Exit(plan(*files))


@topics.command("create")
def topics_create(folder: ConfigFolder = None, bootstrap_servers: Servers = None) -> None:
    """Make the topics that are missing. Never alters or removes one."""
    files = _load(folder, bootstrap_servers)
    from ringfaust.cli.topics import create

    raise typer.Exit(create(*files))


@topics.command("verify")
def topics_verify(folder: ConfigFolder = None, bootstrap_servers: Servers = None) -> None:
    """Say in words what is wrong with the topics.

    Exit status 1 if a worker could not run with them.
    """
    files = _load(folder, bootstrap_servers)
    from ringfaust.cli.topics import verify

    raise typer.Exit(verify(*files))


@config.command("check")
def config_check(folder: ConfigFolder = None) -> None:
    """Read both files and say what is wrong, with file, line and a suggestion."""
    worker_config, queues = _load(folder, None)
    from ringfaust.config.documents import shipped

    where = folder or shipped("config")
    typer.echo(
        f"{where / 'queues.yaml'} is right: routes {len(queues.routes)}, queues "
        f"{len(queues.queues)}, "
        f"addresses {len(queues.addresses)}, settings {len(queues.settings)}"
    )
    path = where / "worker.yaml"
    said = "is right" if path.exists() else "is not there: all at its default"
    typer.echo(f"{path} {said}: application {worker_config.application}")
    for route in queues.routes:
        hop = "by the hop" if route.needs_hop(worker_config.partitions) else "directly"
        typer.echo(f"  {route.topic} -> {route.queue}, {hop}")


@main.command()
def redrive(
    *,
    source: Annotated[GoneTo, typer.Option("--from", help="Which topic has the messages.")],
    to: Annotated[str, typer.Option(metavar="QUEUE", help="The queue to send them to.")],
    ids: Annotated[list[str] | None, typer.Option("--id", help="This message; repeatable.")] = None,
    reason: Annotated[str, typer.Option(help="Those with this reason.")] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Those since then: ISO 8601, or ms since 1970.")
    ] = "",
    selector: Annotated[str, typer.Option(help="Those that a message selector matches.")] = "",
    queue: Annotated[str, typer.Option(help="Those that were in this queue.")] = "",
    partition: Annotated[
        int | None, typer.Option(min=0, help="Where the queue lives, if that cannot be known.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell only what would be sent.")
    ] = False,
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
) -> None:
    """Send dead or evicted messages again; of an id the last one.

    Exit status 1 if one that was named cannot be sent again.
    """
    worker_config, queues_config = _load(folder, bootstrap_servers)
    from ringfaust.cli.redrive import read_time, run
    from ringfaust.kafka.redrive import RedriveRequest
    from ringfaust.protocol.records import Role

    asked = RedriveRequest(
        role=Role(source.value),
        to=to,
        ids=ids or (),
        reason=reason,
        since_ms=read_time(since) if since else 0,
        selector=selector,
        queue=queue,
        partition=partition,
    )
    raise typer.Exit(run(worker_config, queues_config, asked, dry_run=dry_run))


@main.command()
def scenario(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", dir_okay=False, help="Scenario files.")
    ],
    host: Annotated[HostName, typer.Option(help="Where to play them.")] = HostName.MEMORY,
    strict: Annotated[
        bool, typer.Option("--strict", help="What the host cannot do fails, instead of a skip.")
    ] = False,
    bootstrap_servers: OwnServers = None,
) -> None:
    """Play scenario files and tell which hold.

    Exit status: 0 all hold, 1 one fails, 2 one is not valid.
    """
    from ringfaust.testing.scenario.main import run

    raise typer.Exit(run(files, host.value, strict, bootstrap_servers))


@main.command()
def demo(bootstrap_servers: OwnServers = None) -> None:
    """Send real flights through rings and account for each."""
    from ringfaust.demo import run

    raise typer.Exit(run(bootstrap_servers))


@main.command()
def broker(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Where it listens.")] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keeps its topics; else they are lost."),
    ] = None,
) -> None:
    """Run a real Kafka broker here, to try things out.

    It listens on 127.0.0.1 until Ctrl-C or SIGTERM.
    """
    from ringfaust.cli.broker import run

    run(port, data_dir)


@main.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
