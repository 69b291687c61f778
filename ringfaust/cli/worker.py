"""`ringfaust worker`: run one, or list those that run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ringfaust.cli.operate import AsJson, Target, print_json, print_table, say, with_status
from ringfaust.cli.parts import ConfigFolder, Servers, group
from ringfaust.times import age_text, wall_ms

if TYPE_CHECKING:
    from ringfaust.client import WorkerStatus

MOST_PROCESSES = 64
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
worker = group(
    "Run a worker, or list the workers of an application.\n\n"
    "Example: ringfaust worker --config config",
    no_args_is_help=False,
)


@worker.callback(invoke_without_command=True)
def run_worker(
    *,
    context: typer.Context,
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
    processes: Annotated[
        int, typer.Option(min=1, max=MOST_PROCESSES, help="How many workers, with one log.")
    ] = 1,
    supervised: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM.

    With --processes, several: a worker uses little more than one core. One that ends is started
    again. They share `cache_bytes` and `memory_bytes`, and serve their pages on one port if
    `web.enabled` is true.

    Example: ringfaust worker --config config --processes 4
    """
    if context.invoked_subcommand is not None:
        sources = map(context.get_parameter_source, context.params)
        if any(each and each.name == "COMMANDLINE" for each in sources):
            context.fail(f"write options behind {context.invoked_subcommand}: here they are lost")
        return
    from ringfaust.config.contexts import find_place  # noqa: PLC0415 - slow to import

    place = find_place(folder, bootstrap_servers)
    worker_config, queues_config = place.load(
        data_dir=data_dir, log_level=log_level, log_format=log_format
    )
    attach = None
    if worker_config.web.enabled and supervised is None:
        from ringfaust.cli.console import worker_pages  # noqa: PLC0415 - slow to import

        attach = worker_pages(worker_config, queues_config)
    if processes > 1:
        from ringfaust.worker.processes import run_processes  # noqa: PLC0415 - slow to import

        options = _given(place.folder, log_level, log_format)
        raise typer.Exit(run_processes(processes, worker_config, options, attach))
    from ringfaust.worker.app import run  # noqa: PLC0415 - slow to import

    run(worker_config, queues_config, attach, supervised)


def _given(
    folder: Path | None, log_level: LogLevel | None, log_format: LogFormat | None
) -> list[str]:
    """The options for each process, as the command line has them."""
    found = {"--config": folder, "--log-level": log_level, "--log-format": log_format}
    return [part for name, value in found.items() if value for part in (name, str(value))]


@worker.command("ls")
def list_workers(*, target: Target, as_json: AsJson = False) -> None:
    """List workers: whether they are ready, their partitions and how far they lag.

    It asks no worker, but reads what they publish: a worker that was killed is listed as silent.

    Example: ringfaust worker ls
    """
    found = with_status(target, lambda status: status.workers())
    now_ms = wall_ms()
    if as_json:
        print_json([asdict(each) | {"is_stale": each.is_stale(now_ms)} for each in found])
        return
    if not found:
        say("no worker has published its status")
        return
    print_table(
        (
            "worker", "partitions", "standbys", "state", "lag", "queues", "version", "level",
            "up for",
        ),
        [
            (
                each.worker, ranges(each.partitions) or "none", standbys_text(each),
                state_text(each, now_ms),
                sum(each.lag.values()), each.queues, each.version,
                ranges({*each.level.values()}) or "-",
                _up_for(now_ms - each.started_ms),
            )
            for each in found
        ],
    )  # fmt: skip


def _up_for(ms: int) -> str:
    """Its larger unit alone, so that a line has at most 80 characters."""
    return " ".join(age_text(ms).split()[:2])


def standbys_text(status: WorkerStatus) -> str:
    """The partitions that a worker follows, and how far it is behind."""
    found = status.standbys
    if not found:
        return "none"
    behind = sum(each or 0 for each in found.values())
    unknown = [number for number, each in found.items() if each is None]
    more = [f"{behind:,} records behind"] if behind else []
    more += [f"{ranges(unknown)} not read yet"] if unknown else []
    return f"{ranges(found)} ({', '.join(more)})" if more else ranges(found)


def state_text(status: WorkerStatus, now_ms: int) -> str:
    """A worker's state in a few words."""
    if status.is_stale(now_ms):
        return f"silent for {age_text(now_ms - status.time_ms)}"
    if status.is_ready:
        return "ready"
    if status.stopped:
        return f"stopped: {', '.join(each.partition for each in status.stopped)}"
    left = sum(status.recovering.values())
    return f"recovering, {left:,} records left" if left else "not ready"


def partitions_text(numbers: Collection[int]) -> str:
    """The partitions, for a sentence: partition 3, or partitions 0-3,7."""
    return f"partition{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: 0-3,7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ",".join("-".join(map(str, each)) for each in found)
