"""`ringfaust import`: take over the configuration and the messages of another broker."""

# ruff: noqa: PLC0415 - each command imports what it needs when it runs

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ringfaust.cli.operate import Target, Yes, approve, changed, print_json, say
from ringfaust.cli.parts import ConfigFolder, Servers, group
from ringfaust.errors import RingfaustError

if TYPE_CHECKING:
    from ringfaust.importers.imported import Imported, ImportFinding

importing = group("Take over the configuration and the messages of another broker.")
_To = Annotated[
    Path, typer.Option("--to", metavar="DIR", help="Folder for queues.yaml and worker.yaml.")
]

Report = Literal["text", "json"]
_Report = Annotated[
    Report, typer.Option(metavar="text|json", help="Print each setting as a line, or as JSON.")
]


class NothingToImport(RingfaustError):
    """The command line names no file, or no folder; nothing was done."""


@importing.command("rabbitmq")
def rabbitmq(
    definitions: Annotated[
        Path, typer.Argument(metavar="DEFINITIONS.JSON", exists=True, dir_okay=False)
    ],
    to: _To,
    report: _Report = "text",
) -> None:
    """Write queues.yaml for what `rabbitmqctl export_definitions` exported.

    Prints a line for each setting: taken over, changed, or no equivalent.

    Example: ringfaust import rabbitmq definitions.json --to config.new
    """
    from ringfaust.importers.rabbitmq import import_rabbitmq

    _import(import_rabbitmq, definitions, to, report)


@importing.command("openmq")
def openmq(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    to: _To,
    report: _Report = "text",
) -> None:
    """Write queues.yaml for a config.properties of Open MQ, or a script with imqcmd.

    Prints a line for each setting: taken over, changed, or no equivalent.

    Example: ringfaust import openmq config.properties --to config.new
    """
    from ringfaust.importers.openmq import import_openmq

    _import(import_openmq, file, to, report)


def _import(read: Callable[[Path], Imported], source: Path, to: Path, report: Report) -> None:
    from ringfaust.importers.imported import CannotImport
    from ringfaust.importers.write import write

    try:
        imported = read(source)
        with imported.kept_when_refused():
            files = write(imported, to)
    except CannotImport as refused:
        _print(refused.findings, report)
        raise
    _print(imported.findings, report)
    if report == "text":
        counts = Counter(str(finding.verdict) for finding in imported.findings)
        said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts))
        say(f"{said or 'no settings'}; wrote " + ", ".join(map(str, files)))


def _print(findings: list[ImportFinding], report: Report) -> None:
    if report == "json":
        print_json(findings)
    else:
        say(*map(str, findings))


@importing.command("artemis")
def artemis(
    *,
    broker_xml: Annotated[
        Path | None, typer.Argument(metavar="[BROKER.XML]", exists=True, dir_okay=False)
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Folder for queues.yaml and worker.yaml."),
    ] = None,
    report: _Report = "text",
    messages: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPORT.XML",
            exists=True,
            dir_okay=False,
            help="Instead: write the messages of `artemis data exp` to the topics of their queues.",
        ),
    ] = None,
    folder: ConfigFolder = None,
    bootstrap_servers: Servers = None,
    yes: Yes = False,
) -> None:
    """Write queues.yaml for a broker.xml of ActiveMQ Artemis or AMQ Broker, or move its messages.

    Prints a line for each setting: taken over, changed, or no equivalent. Messages keep their
    order, priority, id, properties and times. If it is killed, run it again: it writes the rest.
    Exit status 1 if a message was left out because it is too large.

    Example: ringfaust import artemis broker.xml --to config.new
    """
    if messages is not None and broker_xml is None and to is None:
        target = Target(folder, bootstrap_servers)
        approve(target, yes=yes)
        raise typer.Exit(_move(messages, target))
    if broker_xml is None or to is None or messages is not None:
        raise NothingToImport(
            "name a broker.xml and --to DIR, or --messages EXPORT.XML and --config DIR"
        )
    from ringfaust.importers.artemis import import_artemis

    _import(import_artemis, broker_xml, to, report)


def _move(messages: Path, target: Target) -> int:
    import asyncio

    from ringfaust.importers.send_stored import import_messages

    worker, queues = target.load()
    progress = asyncio.run(import_messages(messages, worker, queues))
    earlier = f"; {progress.before:,} before" if progress.before else ""
    changed(target, f"{progress.written:,} messages written{earlier}")
    if progress.oversized:
        say(
            f"{progress.oversized:,} messages are larger than max_record_bytes "
            f"({worker.max_record_bytes:,}), and were left out",
            to_errors=True,
        )
    return 1 if progress.oversized else 0
