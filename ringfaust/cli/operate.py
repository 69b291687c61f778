"""What the operator's commands share: options, the connection, tables, JSON and confirmation."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from ringfaust.errors import RingfaustError

if TYPE_CHECKING:
    from ringfaust.client import Admin
    from ringfaust.client.connection import ConnectOptions
    from ringfaust.config import QueuesConfig, WorkerConfig

T = TypeVar("T")

ANSWER_MS = 20_000
"""How long a command waits for a worker, in ms."""

Folder = Annotated[
    Path | None,
    typer.Option("--config", metavar="DIR", help="Folder with queues.yaml and worker.yaml."),
]
Brokers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", metavar="HOST:PORT,…", help="Kafka brokers. Default: worker.yaml's."
    ),
]
Application = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the application. Default: worker.yaml's."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
MessageName = Annotated[str, typer.Argument(metavar="ID", help="Id of the message.")]


class Target(NamedTuple):
    """Which application a command is about; None: as worker.yaml says."""

    folder: Path | None
    servers: str | None
    application: str | None

    def load(self) -> tuple[WorkerConfig, QueuesConfig]:
        """Read its configuration.

        Raises:
            ConfigError: the configuration cannot be read.
        """
        from ringfaust.config import load  # noqa: PLC0415 - slow to import

        changed = {} if self.application is None else {"application": self.application}
        return load(self.folder, bootstrap_servers=self.servers, **changed)

    def options(self) -> ConnectOptions:
        """How to reach it.

        Raises:
            ConfigError: the configuration or a certificate cannot be read.
        """
        worker, _ = self.load()
        return connect_options(worker)


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


def with_admin(target: Target, act: Callable[[Admin], Awaitable[T]]) -> T:
    """Connect, do something, disconnect, and return the result."""
    import asyncio  # noqa: PLC0415 - slow to import

    async def run() -> T:
        from ringfaust.client import Admin  # noqa: PLC0415 - slow to import

        async with Admin(**target.options()) as admin:
            return await act(admin)

    return asyncio.run(run())


class NotConfirmed(RingfaustError):
    """The user did not confirm, or there is no terminal to ask on. Nothing was changed."""


def confirm(what: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone.

    Raises:
        NotConfirmed: the answer is no, or there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{what} Nothing was changed: add --yes to confirm.")
    if not typer.confirm(f"{what} Go on?"):
        raise NotConfirmed("Nothing was changed.")


# --- printing -------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """Print a value, or a list of them, as JSON. Bytes become text, or base64 behind `base64:`."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(each) for name, each in asdict(value).items()}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return text_of(value) if isinstance(value, bytes) else value


def text_of(raw: bytes) -> str:
    """Bytes for people: text if they are UTF-8, otherwise base64."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        import base64  # noqa: PLC0415 - rare

        return "base64:" + base64.b64encode(raw).decode()


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns in which nothing is wrapped or cut; columns of nothing but zeros are left out.

    Numbers are set flush right. The first column is always shown.
    """
    shown = [
        column
        for column in range(len(titles))
        if not column or any(row[column] not in (0, "", None, "-") for row in rows)
    ]
    cells = [[_cell(row[column]) for column in shown] for row in rows]
    heads = [titles[column] for column in shown]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [
        all(isinstance(row[column], int | float) for row in rows) and bool(rows) for column in shown
    ]
    for line in (heads, *cells):
        parts = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ]
        print("  ".join(parts).rstrip())


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one pair a line."""
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        print(f"{name.ljust(width)}  {_cell(value)}".rstrip())


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def time_text(at_ms: int) -> str:
    """A time for people, in UTC; `-` for 0."""
    if not at_ms:
        return "-"
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00") + "Z"


def age_text(ms: int) -> str:
    """A length of time for people, in two units at most."""
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
