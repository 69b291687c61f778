"""Contexts: named applications, one of which commands use that name no other.

They are in a file of the user, which has no secrets: a context points to a configuration folder, or
has the addresses of brokers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import yaml
from platformdirs import user_config_path
from pydantic import Field

from ringfaust.config.documents import ConfigModel, read
from ringfaust.config.environment import read_variables, variable
from ringfaust.config.load import load, load_worker_in
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig
from ringfaust.errors import RingfaustError, suggestion

_NAMES = ("bootstrap_servers", "application")
"""Settings that say which application it is."""


class ContextConfig(ConfigModel):
    """One context."""

    config: str | None = None
    """Its folder with queues.yaml and worker.yaml."""
    bootstrap_servers: str | None = None
    application: str | None = None


class Contexts(ConfigModel):
    """The file of the contexts."""

    current: str | None = None
    contexts: dict[str, ContextConfig] = Field(default_factory=dict)


class BadContext(RingfaustError):
    """There is no such context, or there is one already. Nothing was changed."""


class Place(NamedTuple):
    """Which application a command is about, as far as it or a context says."""

    folder: Path | None
    bootstrap_servers: str | None
    application: str | None
    is_named: bool
    """Whether a context, an option or the environment says so. Otherwise the defaults decide."""

    def load(self, **overrides: object) -> tuple[WorkerConfig, QueuesConfig]:
        """Read its configuration.

        Raises:
            ConfigError: the configuration cannot be read.
        """
        return load(
            self.folder, bootstrap_servers=self.bootstrap_servers, application=self.application,
            **overrides,
        )  # fmt: skip

    def load_worker(self) -> WorkerConfig:
        """Read its worker.yaml alone.

        Raises:
            ConfigError: it cannot be read.
        """
        servers, name = self.bootstrap_servers, self.application
        return load_worker_in(self.folder, bootstrap_servers=servers, application=name)


def find_place(
    folder: Path | None, bootstrap_servers: str | None = None, application: str | None = None
) -> Place:
    """What the arguments of a command name. If they and the environment name nothing: the context.

    Raises:
        BadContext: the current context does not exist.
        ConfigError: the file of the contexts is not valid.
    """
    given = (folder, bootstrap_servers, application)
    if any(each is not None for each in given) or any(read_variables().get(n) for n in _NAMES):
        return Place(*given, is_named=True)
    known = read_contexts()
    if known.current is None:
        return Place(None, None, None, is_named=False)
    found = context_of(known, known.current)
    path = None if found.config is None else Path(found.config)
    return Place(path, found.bootstrap_servers, found.application, is_named=True)


def naming_variables() -> list[str]:
    """Return the variables of the environment because of which the context counts for nothing."""
    names = [variable([each]) for each in ("config", *_NAMES)]
    return [each for each in names if os.environ.get(each)]


def contexts_file() -> Path:
    """The file, in the platform's folder for configuration."""
    return user_config_path("ringfaust") / "contexts.yaml"


def read_contexts() -> Contexts:
    """The contexts; none if there is no file.

    Raises:
        ConfigError: the file is not valid.
    """
    path = contexts_file()
    return read(path).model(Contexts) if path.exists() else Contexts()


def context_of(known: Contexts, name: str) -> ContextConfig:
    """Return a context.

    Raises:
        BadContext: there is none with that name.
    """
    if name not in known.contexts:
        more = suggestion(name, known.contexts) if known.contexts else "there are none"
        raise BadContext(f"there is no context {name!r}; {more}. `ringfaust context add` adds one")
    return known.contexts[name]


def write_contexts(known: Contexts) -> None:
    """Replace the file, wholly or not at all."""
    path = contexts_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(yaml.safe_dump(known.model_dump(exclude_none=True), sort_keys=False), "utf-8")
    new.replace(path)
