"""Load `queues.yaml` and `worker.yaml`, and check them against each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfaust.config.documents import ConfigError, ConfigErrors, Fault, check, read, shipped
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.sources import Origin, WorkerSources
from ringfaust.config.worker import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.protocol.route_checks import faults_together


def load_queues(path: Path) -> QueuesConfig:
    """Load a `queues.yaml`.

    Raises:
        ConfigError: the file is not valid; it lists every mistake with its line.
    """
    return read(path).model(QueuesConfig)


def load_worker(path: Path | None = None, **overrides: object) -> WorkerConfig:
    """Load a `worker.yaml`, and what the environment sets. Otherwise settings have their defaults.

    Args:
        path: the file, which must exist.
        overrides: settings from the command line, which win over variables and file. None means
            not given.

    Raises:
        ConfigError: a setting is not valid; it lists every mistake with its line or variable.
    """
    return WorkerSources(path, overrides).config()


def origins(folder: Path | None = None, **overrides: object) -> list[Origin]:
    """Return every setting of a worker, and where its value comes from.

    Args:
        folder: as for `load`.
        overrides: as for `load_worker`.

    Raises:
        ConfigError: a setting is not valid.
    """
    return list(WorkerSources(_worker_path(_existing(folder)), overrides).origins())


def load(folder: Path | None = None, **overrides: object) -> tuple[WorkerConfig, QueuesConfig]:
    """Load both files and check them against each other.

    Args:
        folder: contains `queues.yaml` and optionally `worker.yaml`. None: the shipped folder.
        overrides: as for `load_worker`.

    Raises:
        ConfigError: a file is not valid, or the two contradict each other.
    """
    folder = _existing(folder)
    queues_path = folder / "queues.yaml"
    errors: list[ConfigError] = []
    try:
        worker = load_worker_in(folder, **overrides)
    except ConfigError as error:
        errors.append(error)
    try:
        queues = load_queues(queues_path)
    except ConfigError as error:
        errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors)
    _check_together(worker, queues, queues_path)
    return worker, queues


def load_worker_in(folder: Path | None, **overrides: object) -> WorkerConfig:
    """Load the `worker.yaml` of a folder, whatever its `queues.yaml` is like; see `load`."""
    return load_worker(_worker_path(_existing(folder)), **overrides)


def checked_queues(worker: WorkerConfig, document: Mapping[Any, Any]) -> QueuesConfig:
    """Check what a `queues.yaml` would contain, as `load` does.

    Raises:
        ConfigError: it is not valid.
    """
    queues = check(QueuesConfig, document, "document")
    _check_together(worker, queues, "document")
    return queues


def _check_together(worker: WorkerConfig, queues: QueuesConfig, source: Path | str) -> None:
    routes = [each.checked() for each in queues.routes]
    ours = {worker.topic(role) for role in Role}
    if found := [Fault(*each) for each in faults_together(routes, ours, worker.partitions)]:
        raise ConfigError(source, found)


def _existing(folder: Path | None) -> Path:
    """The folder, which must exist. None: the shipped one."""
    folder = folder or shipped("config")
    if not folder.is_dir():
        raise ConfigError(folder, [Fault("", "not a folder; it should contain queues.yaml")])
    return folder


def _worker_path(folder: Path) -> Path | None:
    path = folder / "worker.yaml"
    return path if path.exists() else None
