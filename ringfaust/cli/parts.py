"""What the commands share: error reporting, groups, and common options."""

from __future__ import annotations

import errno
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ringfaust.errors import MissingExtra, RingfaustError
from ringfaust.times import length_ms, moment_ms, wall_ms
from ringfaust.visible import visible

if TYPE_CHECKING:
    from ringfaust.config import QueuesConfig, WorkerConfig

Act = TypeVar("Act", bound=Callable[..., None])

_FAILED = 2
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
"""Errors of a write, which name no file."""


class ErrorReportingGroup(TyperGroup):
    """A group that prints an expected error as one message and exits with status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user named."""
        try:
            return super().invoke(ctx)
        except RingfaustError as error:
            text = str(error)
        except UnicodeEncodeError as error:
            # An argument that is not UTF-8, or a terminal that cannot show what it should.
            wrong = error.object[error.start : error.end]
            text = f"{wrong!r} cannot be written as {error.encoding}: use UTF-8"
        except TimeoutError:
            text = "no answer in time: check that the brokers run, and try again"
        except OSError as error:
            # An error about a file or a full disk is the user's to solve; any other is a bug.
            if error.filename is None and error.errno not in _DISK_ERRORS:
                raise
            text = f"{error.filename or 'the disk'}: {error.strerror}"
        except Exception as error:
            # Loaded only by commands that connect, and slow to import.
            aiokafka = sys.modules.get("aiokafka.errors")
            if aiokafka is None or not isinstance(error, aiokafka.KafkaError):
                raise
            text = f"the Kafka brokers failed: {type(error).__name__}; try again"
            if isinstance(error, aiokafka.KafkaConnectionError):
                text = (
                    "no Kafka broker answers: check bootstrap_servers in worker.yaml or "
                    "--bootstrap-servers, and `security`"
                )
            elif isinstance(error, aiokafka.MessageSizeTooLargeError):
                text = "a message is larger than 1 MiB, or than its topic takes: max.message.bytes"
        typer.secho(f"ringfaust: {visible(text, keeps_lines=True)}", err=True)
        raise typer.Exit(_FAILED) from None


class BadTime(RingfaustError):
    """A time on the command line cannot be read. The text shows how to write one."""


def read_time(option: str, text: str) -> int:
    """Parse a time from the command line into ms since 1970; see `times.moment_ms`.

    Raises:
        BadTime: the text is not a time.
    """
    try:
        return moment_ms(text, wall_ms())
    except ValueError as error:
        raise BadTime(f"{option}: {error}") from None


def read_length(option: str, text: str) -> int:
    """Parse a length of time from the command line into ms.

    Raises:
        BadTime: the text is not a length of time with its unit.
    """
    try:
        return length_ms(text)
    except ValueError as error:
        raise BadTime(f"{option}: {error}") from None


SPARK_MODULES = (
    "pyspark", "delta", "deltalake", "duckdb", "matplotlib", "numpy", "pandas",
    "google.protobuf", "pyarrow",
)  # fmt: skip
"""The top-level modules of the packages of the extra `spark`, in the order of pyproject.toml."""


def require_modules(names: Sequence[str], extra: str = "spark") -> None:
    """Check that modules of an extra are installed, without importing them.

    Raises:
        MissingExtra: some are not.
    """
    if missing := [name for name in names if not _is_installed(name)]:
        raise MissingExtra("This command", missing, extra)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # the package around it is missing
        return False


class SparkCommand(TyperCommand):
    """A command that needs the extra `spark`. Its help does not."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, if the extra is installed."""
        require_modules(SPARK_MODULES)
        return super().invoke(ctx)


def with_options(act: Callable[..., None]) -> Callable[..., None]:
    """Let several options of a command arrive as one argument.

    An argument whose type is a `NamedTuple`, such as `target: Target`, becomes one option for each
    of its fields.
    """
    parameters = inspect.signature(act, eval_str=True).parameters
    tuples: dict[str, Any] = {
        name: each.annotation
        for name, each in parameters.items()
        if hasattr(each.annotation, "_field_defaults")
    }
    if not tuples:
        return act
    kept = [each for name, each in parameters.items() if name not in tuples]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(
            name,
            keyword,
            default=kind._field_defaults.get(name, inspect.Parameter.empty),
            annotation=hint,
        )
        for kind in tuples.values()
        for name, hint in get_type_hints(kind, include_extras=True).items()
    ]

    @wraps(act)
    def command(**given: Any) -> None:
        built = {
            name: kind(**{field: given.pop(field) for field in kind._fields})
            for name, kind in tuples.items()
        }
        act(**built, **given)

    command.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (*kept, *added)}
    return command


class Group(typer.Typer):
    """A group whose commands take named tuples; see `with_options`."""

    def command(self, *about: Any, **options: Any) -> Callable[[Act], Act]:
        """Register the decorated function, which stays as it is."""
        register = super().command(*about, **options)

        def add(act: Act) -> Act:
            register(with_options(act))
            return act

        return add


def group(about: str, **options: Any) -> Group:
    """Create a command group with `about` as its help text."""
    # Without rich, whose import takes longer than everything else at startup.
    return Group(
        help=about,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **{"no_args_is_help": True, **options},
    )


ConfigFolder = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="DIR",
        envvar="RINGFAUST_CONFIG",
        help="Folder with queues.yaml and worker.yaml. Default: the context's."
        " Without a context: the shipped example.",
    ),
]
Servers = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,…", help="Kafka brokers. Overrides worker.yaml.")
]


class ConfigFiles(NamedTuple):
    """Which configuration a command uses. The fields are its options; see `with_options`."""

    folder: ConfigFolder = None
    bootstrap_servers: Servers = None

    def load(self) -> tuple[WorkerConfig, QueuesConfig]:
        """Read it.

        Raises:
            ConfigError: the configuration cannot be read.
        """
        from ringfaust.config.contexts import find_place  # noqa: PLC0415 - slow to import

        return find_place(*self).load()


def where(worker: WorkerConfig) -> str:
    """Which application it is, and where, for people."""
    return f"application {worker.application} at {worker.bootstrap_servers}"


OwnServers = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,…", help="Kafka brokers to use. Default: start one for this command."
    ),
]
