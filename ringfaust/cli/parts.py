"""What the commands share: error reporting, groups, and common options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ringfaust.errors import RingfaustError

_FAILED = 2


class ErrorReportingGroup(TyperGroup):
    """A group that prints an expected error as one message and exits with status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user named."""
        try:
            return super().invoke(ctx)
        except RingfaustError as error:
            text = str(error)
        except OSError as error:
            # An error about a file is the user's to solve; any other is a bug.
            if error.filename is None:
                raise
            text = f"{error.filename}: {error.strerror}"
        except Exception as error:
            # Loaded only by commands that connect, and slow to import.
            aiokafka = sys.modules.get("aiokafka.errors")
            if aiokafka is None or not isinstance(error, aiokafka.KafkaError):
                raise
            text = f"the Kafka brokers failed: {type(error).__name__}; try again"
        typer.secho(f"ringfaust: {text}", err=True)
        raise typer.Exit(_FAILED) from None


def group(about: str, **options: Any) -> typer.Typer:
    """Create a command group with `about` as its help text."""
    # Without rich, whose import takes longer than everything else at startup.
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **options,
    )


ConfigFolder = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="DIR",
        help="Folder with queues.yaml and worker.yaml. Default: the shipped example.",
    ),
]
Servers = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,…", help="Kafka brokers. Overrides worker.yaml."),
]
OwnServers = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,…", help="Kafka brokers to use. Default: start one for this command."
    ),
]
