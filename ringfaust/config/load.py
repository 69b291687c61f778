"""Read both files and check that they go together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from ringfaust.config.documents import ConfigError, Fault, check, read, shipped
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.routes import conflict
from ringfaust.config.worker import WorkerConfig
from ringfaust.protocol.records import Role


def load_queues(path: Path) -> QueuesConfig:
    """Read a `queues.yaml`.

    Raises:
        ConfigError: it cannot be used; all faults are told, with their lines.
    """
    return read(path).model(QueuesConfig)


def load_worker(path: Path | None = None, **overrides: object) -> WorkerConfig:
    """Read a `worker.yaml`; without one, everything is at its default.

    Args:
        path: the file; one that is given has to be there.
        overrides: settings of the command line, which win over the file; None: not given.

    Raises:
        ConfigError: it cannot be used; all faults are told, with their lines.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    alone = check(WorkerConfig, given, "command line")
    return read(path).model(WorkerConfig, given) if path else alone


def load(folder: Path | None = None, **overrides: object) -> tuple[WorkerConfig, QueuesConfig]:
    """Read both files and see that they go together.

    Args:
        folder: has `queues.yaml` and, unless all of it is at its default, `worker.yaml`; without
            it the shipped ones.
        overrides: as for `load_worker`.

    Raises:
        ConfigError: they cannot be used.
    """
    folder = folder or shipped("config")
    queues_path, worker_path = folder / "queues.yaml", folder / "worker.yaml"
    if not folder.is_dir():
        raise ConfigError(folder, [Fault("", "is no folder; it should hold queues.yaml")])
    queues = load_queues(queues_path)
    worker = load_worker(worker_path if worker_path.exists() else None, **overrides)
    faults = [*_own_topics(worker, queues), *_split_queues(worker, queues)]
    if faults:
        raise ConfigError(queues_path, faults)
    return worker, queues


def _own_topics(worker: WorkerConfig, queues: QueuesConfig) -> Iterator[Fault]:
    """Routes that would feed the application its own output (R42)."""
    ours = {worker.topic(role) for role in Role}
    for index, route in enumerate(queues.routes):
        if route.topic in ours:
            yield Fault(
                f"routes.{index}.topic",
                f"{route.topic} is a topic of this application's own, which would feed itself: "
                "read it with another application, or name yours otherwise in worker.yaml",
            )


def _split_queues(worker: WorkerConfig, queues: QueuesConfig) -> Iterator[Fault]:
    """Pairs of routes that could put one queue's records into two partitions."""
    for (_, one), (index, other) in combinations(enumerate(queues.routes), 2):
        if conflict(one, other, worker.partitions):
            yield Fault(
                f"routes.{index}.hop",
                f"{one.topic} ({one.queue}) and {other.topic} ({other.queue}) can name the same "
                "queue, but would put it into different partitions: give both hop: always, or "
                "their queues different names",
            )
