"""What the operator's commands share: options, the connection, tables, JSON and confirmation."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from ringfaust.cli.parts import where
from ringfaust.errors import RingfaustError
from ringfaust.visible import plain, text_of, visible, visible_json

if TYPE_CHECKING:
    from ringfaust.client import Admin, StatusReader
    from ringfaust.client.connection import ConnectOptions
    from ringfaust.client.inspected import Excerpt
    from ringfaust.config import QueuesConfig, WorkerConfig
    from ringfaust.config.contexts import Place

T = TypeVar("T")

_LINE_CHARS = 80
_LEAST_CHARS = 12
"""Tables fit into lines of this length, unless names are long. Free text has at least this much."""

ANSWER_MS = 20_000
"""How long a command waits for a worker, in ms."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Pattern = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]", help="Words separated by dots: * is one word, # any number of them."
    ),
]
MessageName = Annotated[str, typer.Argument(metavar="ID", help="Id of the message.")]


class Target(NamedTuple):
    """Which application a command is about. The fields are its options; see `with_options`."""

    folder: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="DIR",
            envvar="RINGFAUST_CONFIG",
            help="Folder with queues.yaml and worker.yaml.",
        ),
    ] = None
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="Kafka brokers. Default: worker.yaml's."),
    ] = None
    application: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the application. Default: worker.yaml's."),
    ] = None

    def load(self) -> tuple[WorkerConfig, QueuesConfig]:
        """Read its configuration.

        Raises:
            ConfigError: the configuration cannot be read.
        """
        return self.place().load()

    def place(self) -> Place:
        """What the options name, or else the context."""
        from ringfaust.config.contexts import find_place  # noqa: PLC0415 - slow to import

        return find_place(*self)

    def where(self) -> str:
        """Which application it is, and where, for people."""
        worker, _ = self.load()
        return where(worker)


def connect_options(worker: WorkerConfig) -> ConnectOptions:
    """How to reach the application, including the security settings of worker.yaml.

    Raises:
        ConfigError: a certificate or the password cannot be read.
    """
    return {
        "bootstrap_servers": worker.bootstrap_servers,
        "application": worker.application,
        "client_options": worker.security.client_options(),
        "timeout_ms": ANSWER_MS,
    }


def with_admin(
    target: Target, act: Callable[[Admin], Awaitable[T]], *, needs_worker: bool = True
) -> T:
    """Connect, do something, disconnect, and return the result.

    Args:
        target: names the application.
        act: what to do.
        needs_worker: whether `act` can succeed only while a worker runs.

    Raises:
        BrokerUnreachable: no broker answers.
        NoWorker: no worker lives, so nothing was asked.
    """
    return with_application(
        target.load()[0], lambda admin, _: act(admin), needs_worker=needs_worker
    )


def with_application(
    config: WorkerConfig,
    act: Callable[[Admin, WorkerConfig], Awaitable[T]],
    *,
    needs_worker: bool = True,
) -> T:
    """As `with_admin`; `act` also gets the configuration, with a bootstrap server that answers."""
    import asyncio  # noqa: PLC0415 - slow to import

    async def run() -> T:
        from ringfaust.cli.reach import check_worker, reached, started  # noqa: PLC0415
        from ringfaust.client import Admin  # noqa: PLC0415 - slow to import

        worker = await reached(config)
        async with started(Admin(**connect_options(worker)), worker) as admin:
            if needs_worker:
                await check_worker(worker)
            return await act(admin, worker)

    return asyncio.run(run())


def with_status(target: Target, look: Callable[[StatusReader], T]) -> T:
    """Read what the workers have published, and return what `look` makes of it."""
    import asyncio  # noqa: PLC0415 - slow to import

    async def run() -> T:
        from ringfaust.cli.reach import reached, started  # noqa: PLC0415 - slow to import
        from ringfaust.client import StatusReader  # noqa: PLC0415 - slow to import

        worker = await reached(target.load()[0])
        async with started(StatusReader(**connect_options(worker)), worker) as status:
            return look(status)

    return asyncio.run(run())


class NotConfirmed(RingfaustError):
    """The user did not confirm, or there is no terminal to ask on. Nothing was changed."""


def confirm(what: str, at: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone.

    Args:
        what: what will happen, as a sentence.
        at: to which application; see `where`.
        yes: do not ask.

    Raises:
        NotConfirmed: the answer is no, or there is no terminal to ask on.
    """
    if yes:
        return
    if not is_terminal():
        raise NotConfirmed(
            f"{what} That is in the {at}. Nothing was changed: add --yes to confirm."
        )
    # To stderr: what a command prints may be JSON or bodies, in a file or a pipe.
    print(
        visible(f"{what} That is in the {at}. Go on? [y/N]: "), end="", file=sys.stderr, flush=True
    )
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotConfirmed("Nothing was changed.")


def is_terminal() -> bool:
    """Whether there is someone to ask."""
    return sys.stdin.isatty()


def approve(target: Target, *, yes: bool) -> None:
    """Ask before a change of an application that nothing names.

    Raises:
        NotConfirmed: the answer is no, or there is no terminal to ask on.
    """
    if not yes and not target.place().is_named:
        confirm(
            "This changes something, and no --config or context says where: choose one with "
            "`ringfaust context use NAME`.",
            target.where(),
            yes=False,
        )


def changed(target: Target, what: str) -> None:
    """Say what was changed, and where."""
    say(f"{what} ({target.where()})")


def operator() -> str:
    """Who runs this command, for the log: the user and the machine."""
    user = "unknown"
    with suppress(OSError, KeyError):  # there is no such user, in a container for example
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"[:200]


# --- printing -------------------------------------------------------------------------------------


def say(*lines: str, to_errors: bool = False) -> None:
    """Print lines, at once, or to stderr. Line breaks in them are escaped, too."""
    for line in lines:
        print(visible(line), file=sys.stderr if to_errors else sys.stdout, flush=True)


def say_text(text: str) -> None:
    """Print a text of several lines, such as a body."""
    print(visible(text, keeps_lines=True), flush=True)


def print_json(value: Any) -> None:
    """Print a value, or a list of them, as JSON. Bytes become text, or base64 behind `base64:`."""
    print(visible_json(plain(value), indent=2))


def print_json_line(value: Any) -> None:
    """Print a value as JSON on one line, at once."""
    print(visible_json(plain(value)), flush=True)


def beginning_of(value: Excerpt | None) -> str:
    """The beginning of a body as text."""
    return "" if value is None else text_of(value.start)


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[object]], *, text_last: bool = False
) -> None:
    """Print columns in which no name is wrapped or cut; columns of nothing but zeros are left out.

    Numbers are set flush right. The first column is always shown.

    Args:
        titles: of the columns.
        rows: their cells.
        text_last: the last column is free text, which is cut so that lines have 80 characters.
    """
    shown = [
        column
        for column in range(len(titles))
        if not column or any(row[column] not in (0, "", None, "-") for row in rows)
    ]
    cells = [[_cell(row[column]) for column in shown] for row in rows]
    heads = [titles[column] for column in shown]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if text_last and shown[-1] == len(titles) - 1:
        room = max(_LINE_CHARS - sum(widths[:-1]) - 2 * len(widths[:-1]), _LEAST_CHARS)
        for row in cells:
            row[-1] = row[-1] if len(row[-1]) <= room else row[-1][: room - 1] + "…"
    right = [
        all(isinstance(row[column], int | float) for row in rows) and bool(rows) for column in shown
    ]
    for line in (heads, *cells):
        parts = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ]
        say("  ".join(parts).rstrip())


def print_list(
    found: Sequence[T],
    titles: Sequence[str],
    row: Callable[[T], Sequence[object]],
    *,
    as_json: bool,
    nothing: str,
    text_last: bool = False,
) -> None:
    """Print what was found as a table of rows, or as JSON.

    Args:
        found: what was found.
        titles: of the columns.
        row: returns the cells of one.
        as_json: print JSON instead.
        nothing: what to say instead of an empty table.
        text_last: as for `print_table`.
    """
    if as_json:
        print_json(found)
    elif found:
        print_table(titles, [row(each) for each in found], text_last=text_last)
    else:
        say(nothing)


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one pair a line."""
    shown = [(visible(name), _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name.ljust(width)}  {value}".rstrip())


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return visible(str(value))
