"""The `ringfaust` command. Each subcommand imports what it needs when it runs, to start fast."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from ringfaust import __version__, compiled
from ringfaust.cli.applying import apply, diff, history
from ringfaust.cli.configuration import config
from ringfaust.cli.consumer import consumer
from ringfaust.cli.context import context
from ringfaust.cli.dead import Filters, Redrive, dead, evicted, redrive
from ringfaust.cli.exchange import receive, send
from ringfaust.cli.importing import importing
from ringfaust.cli.message import message
from ringfaust.cli.operate import AsJson, Target, Yes, approve, say
from ringfaust.cli.partition import partition
from ringfaust.cli.parts import (
    SPARK_MODULES,
    ConfigFiles,
    ConfigFolder,
    ErrorReportingGroup,
    OwnServers,
    Servers,
    SparkCommand,
    group,
    require_modules,
)
from ringfaust.cli.queue import queue
from ringfaust.cli.restoring import restore
from ringfaust.cli.scheduled import scheduled
from ringfaust.cli.spark import spark
from ringfaust.cli.upgrade import upgrade
from ringfaust.cli.worker import worker
from ringfaust.cli.xid import xid
from ringfaust.java import DEFAULT_KAFKA, KafkaVersion

main = group(
    "Ring queues on Apache Kafka: keep the newest N messages, account for all others.",
    cls=ErrorReportingGroup,
)
topics = group("Inspect, create and verify the topics of an application.")
for command in (send, receive, apply, diff, history, restore):
    main.command()(command)
main.add_typer(queue, name="queue")
main.add_typer(message, name="message")
main.add_typer(consumer, name="consumer")
main.add_typer(dead, name="dead")
main.add_typer(evicted, name="evicted")
main.add_typer(scheduled, name="scheduled")
main.add_typer(xid, name="xid")
main.add_typer(worker, name="worker")
main.add_typer(partition, name="partition")
main.add_typer(upgrade, name="upgrade")
main.add_typer(topics, name="topics")
main.add_typer(config, name="config")
main.add_typer(context, name="context")
main.add_typer(importing, name="import")
main.add_typer(spark, name="spark")


def _on_version(wanted: bool) -> None:  # noqa: FBT001 - click passes it so
    if wanted:
        version()
        raise typer.Exit


@main.callback()
def _before(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_on_version
        ),
    ] = False,
) -> None:
    # Our own errors cover what aiokafka logs. Users who configure logging still get its log.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())


@main.command()
def init(
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for queues.yaml and worker.yaml.")
    ],
    bootstrap_servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,…", help="Kafka brokers.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="A topic that feeds queues. Repeatable.")
    ] = None,
    per_key: Annotated[
        bool | None,
        typer.Option("--per-key/--per-topic", help="A ring for each key, or for each topic."),
    ] = None,
    ring_size: Annotated[
        int | None, typer.Option(min=1, help="How many messages a ring keeps.")
    ] = None,
    application: Annotated[
        str | None, typer.Option(metavar="NAME", help="Prefix of the application's topics.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: use defaults, and create the topics.")
    ] = False,
) -> None:
    """Write a first configuration: asks five questions, checks the files, offers to create topics.

    Does not ask what options say; --yes takes all topics. Exit status 1 as for `topics create`.

    Example: ringfaust init config --topic orders --ring-size 500 --yes
    """
    from ringfaust.cli.init import Given, run

    given = Given(
        servers=bootstrap_servers, application=application, topics=tuple(topic or ()),
        per_key=per_key, ring_size=ring_size, yes=yes,
    )  # fmt: skip
    raise typer.Exit(run(folder, given))


@topics.command("plan")
def topics_plan(
    *, folder: ConfigFolder = None, bootstrap_servers: Servers = None, as_json: AsJson = False
) -> None:
    """Show which topics exist, are missing or differ. Changes nothing.

    Example: ringfaust topics plan --config config
    """
    files = ConfigFiles(folder, bootstrap_servers).load()
    from ringfaust.cli.topics import plan

    raise typer.Exit(plan(*files, as_json=as_json))


@topics.command("create")
def topics_create(
    *, folder: ConfigFolder = None, bootstrap_servers: Servers = None, yes: Yes = False
) -> None:
    """Create missing topics. Never alters or deletes a topic.

    Exit status 1 if a worker cannot run with a topic that exists.

    Example: ringfaust topics create --config config
    """
    files = ConfigFiles(folder, bootstrap_servers).load()
    approve(Target(folder, bootstrap_servers), yes=yes)
    from ringfaust.cli.topics import create

    raise typer.Exit(create(*files))


@topics.command("verify")
def topics_verify(
    *, folder: ConfigFolder = None, bootstrap_servers: Servers = None, as_json: AsJson = False
) -> None:
    """Explain what is wrong with the topics.

    Exit status 1 if a worker cannot run with them.

    Example: ringfaust topics verify --config config
    """
    files = ConfigFiles(folder, bootstrap_servers).load()
    from ringfaust.cli.topics import verify

    raise typer.Exit(verify(*files, as_json=as_json))


@main.command("redrive", hidden=True)
def redrive_from(
    *,
    source: Annotated[
        Literal["dead", "evicted"], typer.Option("--from", help="The topic that has the messages.")
    ],
    target: Target,
    filters: Filters,
    how: Redrive,
) -> None:
    """The former name of `dead redrive` and `evicted redrive`. It does not ask.

    Example: ringfaust redrive --from dead --id order-17 --to orders
    """
    redrive(target, source, filters, how._replace(yes=True))


@main.command()
def trace(
    *,
    target: Target,
    message_id: Annotated[
        str, typer.Argument(metavar="[ID | TOPIC/PARTITION/OFFSET]", help="The message.")
    ] = "",
    key: Annotated[
        str, typer.Option(help="Instead: the latest messages whose records have this key.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Search since 1h (ago), yesterday, or a time. Default: 1h."
        ),
    ] = "",
    lake: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Search a lake instead of the topics: all of it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say where a message went: what happened to it, in sentences.

    Exit status 1 if no event names it.

    Example: ringfaust trace order-17
    """
    from ringfaust.cli.trace import run

    raise typer.Exit(run(target, message_id, key, since, lake, as_json=as_json))


@main.command()
def console(
    *,
    target: Target,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 6067,
    bind: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Allow changes to those who have the token.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the token. Default: RINGFAUST_CONSOLE_TOKEN, or print a new one.",
        ),
    ] = None,
    read_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with a token that only allows to read. Default: "
            "RINGFAUST_CONSOLE_READ_TOKEN.",
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where browsers reach it through a proxy. Default: web.public_url."
        ),
    ] = None,
) -> None:
    """Serve a web console: see and steer queues, until Ctrl-C or SIGTERM.

    Example: ringfaust console --config config --allow-changes
    """
    from ringfaust.cli.console import run

    run(
        target, bind, port, token_file=token_file, read_token_file=read_token_file,
        public_url=public_url, allow_changes=allow_changes,
    )  # fmt: skip


@main.command()
def mcp(
    *,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Of a console, without its path.")
    ] = "http://127.0.0.1:6067",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with a token of the console. Default: RINGFAUST_CONSOLE_READ_TOKEN.",
        ),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Offer tools that change something, too.")
    ] = False,
) -> None:
    """Serve the HTTP API as tools for a language model: MCP on stdin and stdout.

    Example: ringfaust mcp --token-file read-token
    """
    require_modules(["mcp"], "mcp")
    import asyncio

    from ringfaust.console.access import READ_TOKEN_VARIABLE, read_token
    from ringfaust.console.mcp_server import serve

    token = read_token(token_file, READ_TOKEN_VARIABLE)
    asyncio.run(serve(url, token, allows_changes=allow_changes))


@main.command()
def doctor(*, target: Target, as_json: AsJson = False) -> None:
    """Check brokers, ACLs, topics, groups, clocks, lag, disk, memory, engine and workers.

    It says what to do about what it finds. Exit status 1 if a check fails.

    Example: ringfaust doctor --config config
    """
    from ringfaust.cli.doctor import run

    raise typer.Exit(run(target, as_json=as_json))


@main.command()
def top(*, target: Target) -> None:
    """Show queues and workers live, the fullest or busiest queues first. q ends it.

    It needs the extra top.

    Example: ringfaust top --config config
    """
    require_modules(["textual"], "top")
    from ringfaust.cli.top import run

    run(target)


@main.command()
def run(
    *,
    app: Annotated[str, typer.Argument(metavar="MODULE:ATTRIBUTE", help="Its RingApp.")],
    processes: Annotated[
        int, typer.Option(min=1, max=1_000, help="How many processes. One that ends is restarted.")
    ] = 1,
    health_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port to serve the health on. Default: none."),
    ] = None,
    bind: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to serve it on.")
    ] = "127.0.0.1",
) -> None:
    """Run an app of handlers until Ctrl-C or SIGTERM. A second signal does not wait for handlers.

    Example: ringfaust run shop:app --processes 4
    """
    from ringfaust.app.runner import Address
    from ringfaust.app.runner import run as run_app

    health = None if health_port is None else Address(bind, health_port)
    run_app(app, processes=processes, health=health)


@main.command()
def scenario(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", dir_okay=False, help="Scenario files.")
    ],
    host: Annotated[
        Literal["memory", "faust", "spark"], typer.Option(help="The host to play them on.")
    ] = "memory",
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on files that the host does not support.")
    ] = False,
    bootstrap_servers: OwnServers = None,
) -> None:
    """Play scenario files and report which hold.

    Exit status: 0 if all hold, 1 if one fails, 2 if one is not valid.

    Example: ringfaust scenario tests/scenarios/ring-overflow.yaml --host faust
    """
    if host == "spark":
        require_modules(SPARK_MODULES)
    from ringfaust.cli.scenario import run

    raise typer.Exit(run(files, host, strict, bootstrap_servers))


@main.command()
def demo(bootstrap_servers: OwnServers = None) -> None:
    """Send real flights through rings and account for every one.

    Example: ringfaust demo
    """
    from ringfaust.demo import run

    raise typer.Exit(run(bootstrap_servers))


@spark.command("demo", cls=SparkCommand)
def spark_demo(
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


@main.command()
def broker(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for the topics. Default: delete them when it stops."
        ),
    ] = None,
    kafka: Annotated[KafkaVersion, typer.Option(help="Version of Apache Kafka.")] = DEFAULT_KAFKA,
) -> None:
    """Run a real Kafka broker on this machine, to try things out.

    It listens on 127.0.0.1 until Ctrl-C or SIGTERM.

    Example: ringfaust broker --port 9092 --data-dir kafka-data
    """
    from ringfaust.cli.broker import run

    run(port, data_dir, kafka)


@main.command()
def version() -> None:
    """Print the version, and whether the engine is compiled.

    Example: ringfaust version
    """
    say(f"{__version__} ({compiled.KIND})")
    if compiled.REMEDY:
        say(f"  -> {compiled.REMEDY}")
