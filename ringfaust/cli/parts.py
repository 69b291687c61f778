"""What the command lines share: groups, and the options that many commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ringfaust.errors import RingfaustError

_FAILED = 2


class Commands(TyperGroup):
    """Turns the errors that people meet into one message and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except RingfaustError as error:
            typer.secho(f"ringfaust: {error}", err=True)
            raise typer.Exit(_FAILED) from None


def group(about: str, **options: Any) -> typer.Typer:
    """A command that has commands."""
    # Without rich, whose import costs more than all the rest of a start.
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
        help="Folder with queues.yaml and worker.yaml; the shipped example if not given.",
    ),
]
Servers = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,…", help="Brokers; wins over worker.yaml."),
]
OwnServers = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,…", help="Brokers of your own; if not given, one is started for this."
    ),
]
