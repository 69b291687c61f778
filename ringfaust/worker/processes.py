"""Several workers of one machine, as processes of one program with one port and one log."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from logging.config import dictConfig
from pathlib import Path

from ringfaust.config import WorkerConfig
from ringfaust.config.documents import check
from ringfaust.config.environment import variable
from ringfaust.supervisor import Supervisor
from ringfaust.worker.logs import logging_config
from ringfaust.worker.observe.processes import processes_app
from ringfaust.worker.observe.web import AttachPages, served

SUPERVISED = "--supervised"
"""Option of a process: the socket on which it serves its pages. It ends when its input does."""

STOP_S = 50.0
"""How long a worker may take to stop: less than the 60 s that deploy/ gives all of them. If it is
killed, it loses nothing."""


def run_processes(
    count: int, worker: WorkerConfig, options: Sequence[str], attach: AttachPages | None
) -> int:
    """Run workers until SIGTERM or SIGINT. One that ends is started again.

    They share `cache_bytes` and `memory_bytes`. The first has `data_dir`, each other one a folder
    in it.

    Args:
        count: how many workers.
        worker: worker.yaml.
        options: of the command line, for each of them.
        attach: adds pages to those for all of them.

    Returns:
        The exit status; see `Supervisor.run`.

    Raises:
        CannotListen: the address or the port cannot be used.
        ConfigError: one share of the memory is too small.
    """
    environment = os.environ | _share(worker, count)
    dictConfig(logging_config(worker.log_level, worker.log_format))
    with tempfile.TemporaryDirectory(prefix="ringfaust-") as folder:
        sockets = [Path(folder) / str(number) for number in range(count)]
        supervisor = Supervisor(
            [
                ["-m", "ringfaust", "worker", *options, "--data-dir",
                 str(_data_dir(worker.data_dir, number)), SUPERVISED, str(socket)]
                for number, socket in enumerate(sockets)
            ],
            STOP_S,
            environment,
        )  # fmt: skip
        return asyncio.run(_run(supervisor, worker, sockets, attach))


async def _run(
    supervisor: Supervisor,
    worker: WorkerConfig,
    sockets: Sequence[Path],
    attach: AttachPages | None,
) -> int:
    async with AsyncExitStack() as opened:
        if worker.web.enabled:
            pages = processes_app(sockets, worker.web)
            if attach is not None:
                attach(pages)
            await opened.enter_async_context(served(pages, worker.web.bind, worker.web.port))
        return await supervisor.run()


def _data_dir(folder: Path, number: int) -> Path:
    """The first process continues what a single worker has stored."""
    return folder / f"process-{number}" if number else folder


def _share(worker: WorkerConfig, count: int) -> dict[str, str]:
    """What the processes share, as variables, and which application it is.

    One that is started again later must not follow another context, which is current then.

    Raises:
        ConfigError: a share is too small.
    """
    shared = {"cache_bytes": worker.cache_bytes, "memory_bytes": worker.memory_bytes}
    parts = {name: total // count for name, total in shared.items()}
    check(WorkerConfig, parts, f"worker.yaml, shared by {count} processes,")
    settings = {name: str(part) for name, part in parts.items()}
    settings |= {"application": worker.application, "bootstrap_servers": worker.bootstrap_servers}
    return {variable([name]): text for name, text in settings.items()}
