"""`ringfaust import`: take over the configuration and the messages of another broker."""

# ruff: noqa: PLC0415 - each command imports what it needs when it runs

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust.cli.operate import say
from ringfaust.cli.parts import ConfigFolder, Servers, group
from ringfaust.errors import RingfaustError

if TYPE_CHECKING:
    from ringfaust.importers.imported import Imported

importing = group("Take over the configuration and the messages of another broker.")
_To = Annotated[
    Path, typer.Option("--to", metavar="DIR", help="Folder for queues.yaml and worker.yaml.")
]


class NothingToImport(RingfaustError):
    """The command line names no file, or no folder; nothing was done."""


@importing.command("rabbitmq")
def rabbitmq(
    definitions: Annotated[
        Path, typer.Argument(metavar="DEFINITIONS.JSON", exists=True, dir_okay=False)
    ],
    to: _To,
) -> None:
    """Write queues.yaml for what `rabbitmqctl export_definitions` exported.

    Prints a line for each setting: taken over, changed, or no equivalent.

    Example: ringfaust import rabbitmq definitions.json --to config.new
    """
    from ringfaust.importers.rabbitmq import import_rabbitmq

    _write(import_rabbitmq(definitions), to)


@importing.command("openmq")
def openmq(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)], to: _To
) -> None:
    """Write queues.yaml for a config.properties of Open MQ, or a script with imqcmd.

    Prints a line for each setting: taken over, changed, or no equivalent.

    Example: ringfaust import openmq config.properties --to config.new
    """
    from ringfaust.importers.openmq import import_openmq

    _write(import_openmq(file), to)


def _write(imported: Imported, to: Path) -> None:
    from ringfaust.importers.write import write

    for finding in imported.findings:
        say(str(finding))
    files = write(imported, to)
    counts = Counter(str(finding.verdict) for finding in imported.findings)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts))
    say(f"{said or 'no settings'}; wrote " + ", ".join(map(str, files)))


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
) -> None:
    """Write queues.yaml for a broker.xml of ActiveMQ Artemis or AMQ Broker, or move its messages.

    Prints a line for each setting: taken over, changed, or no equivalent. Messages keep their
    order, priority, id, properties and times. If it is killed, run it again: it writes the rest.

    Example: ringfaust import artemis broker.xml --to config.new
    """
    if messages is not None and broker_xml is None and to is None:
        raise typer.Exit(_move(messages, folder, bootstrap_servers))
    if broker_xml is None or to is None or messages is not None:
        raise NothingToImport(
            "what? Name a broker.xml and --to DIR, or --messages EXPORT.XML and --config DIR"
        )
    from ringfaust.importers.artemis import import_artemis

    _write(import_artemis(broker_xml), to)


def _move(messages: Path, folder: Path | None, servers: str | None) -> int:
    import asyncio

    from ringfaust.config import load
    from ringfaust.importers.send_stored import import_messages

    worker, queues = load(folder, bootstrap_servers=servers)
    progress = asyncio.run(import_messages(messages, worker, queues))
    earlier = f"; {progress.before:,} before" if progress.before else ""
    say(f"{progress.written:,} messages written{earlier}")
    if progress.oversized:
        say(
            f"{progress.oversized:,} messages are larger than max_record_bytes "
            f"({worker.max_record_bytes:,}), and were left out",
            to_errors=True,
        )
    return 1 if progress.oversized else 0
