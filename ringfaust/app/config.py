"""What a worker is told: `queues.yaml` says what queues mean, `worker.yaml` what a process needs.

The first must be equal on all workers of an application, for any of them may come to own any
queue. The second is one process's own affair.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from ringfaust.app.documents import (
    ConfigError,
    Fault,
    Settings,
    check,
    read,
    refuse,
    shipped,
    shown,
    suggestion,
)
from ringfaust.app.routes import Route, conflict
from ringfaust.app.security import Security
from ringfaust.core import limits
from ringfaust.core.address import SEPARATOR, queue_name
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import FIELD_NAMES, QueueSpec
from ringfaust.errors import BadSetting
from ringfaust.wire.record import Role
from ringfaust.wire.route import Route as WireRoute

__all__ = [
    "ConfigError",
    "Fault",
    "QueuesConfig",
    "Route",
    "Security",
    "Web",
    "WorkerConfig",
    "load",
    "load_queues",
    "load_worker",
]

_LONGEST_ROLE = len(".dispatched")


# --- queues.yaml: meaning -----------------------------------------------------------------------


def _pattern(name: str) -> str:
    if not name or len(name) > limits.NAME_CHARS or "\0" in name:
        raise refuse(f"a queue's name has from 1 to {limits.NAME_CHARS} characters, none NUL")
    for word in name.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            raise refuse(
                f"{shown(word)}: * and # each stand for whole words between dots, such as "
                "departures.*"
            )
    if SEPARATOR in name:
        raise refuse(
            f"{shown(name)} is the queue of an address: declare it as addresses."
            f"{name.replace(SEPARATOR, '.subscriptions.', 1)}"
        )
    return name


def _subscription(name: str) -> str:
    if not name or SEPARATOR in name or {"*", "#"} & set(name.split(".")):
        raise refuse(f"{shown(name)} cannot name a queue of an address: patterns and :: are none")
    return _pattern(name)


def _queue_fields(fields: dict[str, object]) -> dict[str, object]:
    compat = {"compat": "artemis"} if fields.get("compat") == "artemis" else {}
    for name, value in fields.items():
        if name not in FIELD_NAMES:
            raise refuse(f"there is no such setting; {suggestion(name, FIELD_NAMES)}", name)
        try:
            QueueSpec().with_fields({name: value, **compat})
        except BadSetting as error:
            raise refuse(f"is {shown(value)}: {error.advice}", name) from None
    return fields


def _nothing_is_empty(value: object) -> object:
    """In YAML `orders:` with nothing behind it is null; it means an entry without fields."""
    return {} if value is None else value


_Pattern = Annotated[str, AfterValidator(_pattern)]
_Fields = Annotated[
    dict[str, object], BeforeValidator(_nothing_is_empty), AfterValidator(_queue_fields)
]
_Table = Annotated[dict[_Pattern, _Fields], BeforeValidator(_nothing_is_empty)]
_Subscriptions = Annotated[
    dict[Annotated[str, AfterValidator(_subscription)], _Fields], BeforeValidator(_nothing_is_empty)
]


class Address(Settings):
    """One of `addresses`: what is sent to it is copied to each of its queues (R70)."""

    routing: Literal["multicast", "anycast"] = "multicast"
    compat: Literal["default", "artemis"] = "default"
    retroactive_count: Annotated[int, Field(ge=0, le=limits.RETAINED)] = 0
    """How many messages it keeps for queues that are made later (R71)."""
    subscriptions: _Subscriptions = {}
    """Its queues that are there from the beginning: fields by name."""

    @model_validator(mode="after")
    def _anycast_has_one(self) -> Self:
        if self.routing == "anycast" and len(self.subscriptions) > 1:
            raise refuse("an anycast address has one queue; multicast has many", "subscriptions")
        return self


_Address = Annotated[Address, BeforeValidator(_nothing_is_empty)]
_Addresses = Annotated[dict[_Pattern, _Address], BeforeValidator(_nothing_is_empty)]


class QueuesConfig(Settings):
    """`queues.yaml`: which queues there are, what they are set to, and what feeds them."""

    routes: Annotated[tuple[Route, ...], Field(strict=False)] = ()
    queues: _Table = {}
    """Fields by queue name; a pattern declares all queues that match."""
    addresses: _Addresses = {}
    """What can be sent to beside queues, by name; a pattern declares all that match."""
    settings: _Table = {}
    """Fields by pattern for queues that are declared elsewhere (R72)."""

    @model_validator(mode="after")
    def _one_route_for_a_topic(self) -> Self:
        seen: set[str] = set()
        for index, route in enumerate(self.routes):
            if route.topic in seen:
                raise refuse(
                    f"topic {route.topic!r} stands in two routes, but a record goes to one queue: "
                    "keep one of them",
                    "routes",
                    index,
                    "topic",
                )
            seen.add(route.topic)
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for name in self.queues:
            if name in self.addresses:
                raise refuse("is an address too, and a send could mean either", "queues", name)
        return self

    @model_validator(mode="after")
    def _queues_of_addresses_have_names(self) -> Self:
        for address, given in self.addresses.items():
            for name in given.subscriptions:
                if len(queue_name(address, name)) > limits.NAME_CHARS:
                    raise refuse(
                        f"{shown(queue_name(address, name))} is too long: a queue's name, with its "
                        f"address and ::, has at most {limits.NAME_CHARS} characters",
                        "addresses",
                        address,
                        "subscriptions",
                        name,
                    )
        return self

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> Self:
        declared = [*self.queues, *self.addresses]
        for index, route in enumerate(self.routes):
            if not any(route.may_lead_to(pattern) for pattern in declared):
                known = suggestion(route.queue, declared) if declared else "there are none"
                raise refuse(
                    f"is {shown(route.queue)}, but no entry of `queues` or `addresses` declares "
                    f"that; {known}",
                    "routes",
                    index,
                    "queue",
                )
        return self

    def split_routes(self, partitions: int) -> tuple[list[WireRoute], list[WireRoute]]:
        """Those whose records are at home already, and those whose records take the hop.

        Args:
            partitions: of the application's topics.
        """
        direct: list[WireRoute] = []
        hopping: list[WireRoute] = []
        for route in self.routes:
            ours = hopping if route.needs_hop(partitions) else direct
            ours.append(WireRoute(route.topic, route.queue))
        return direct, hopping

    def catalog(self) -> Catalog:
        """The declared queues and addresses and their settings, as the engine asks for them."""
        return Catalog(
            self.queues,
            self.settings,
            {name: given.model_dump(exclude_unset=True) for name, given in self.addresses.items()},
        )


# --- worker.yaml: this process ------------------------------------------------------------------


def _application_name(name: str) -> str:
    longest = 249 - _LONGEST_ROLE
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or len(name) > longest:
        raise refuse(
            f"{shown(name)} cannot begin topics' names: use letters, digits and . _ - (the first "
            f"a letter or digit), up to {longest}"
        )
    return name


def _servers(text: str) -> str:
    for server in text.split(","):
        host, _, port = server.strip().rpartition(":")
        if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host) or not _is_port(port):
            raise refuse(
                f"{shown(server)} is no broker's address: write host:port, several with commas "
                "between, such as 127.0.0.1:9092"
            )
    return ",".join(server.strip() for server in text.split(","))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536


def _state_folder(settings: dict[str, Any]) -> Path:
    """The folder for users' state (XDG), with a part for each application."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base, "ringfaust", settings.get("application", "ringfaust"))


def _absolute(path: Path) -> Path:
    if "\0" in str(path):
        raise refuse("holds a NUL character, which no folder's name can")
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise refuse(f"{shown(str(path))} begins with a user nobody knows: write it out") from None


_Folder = Annotated[Path, Field(strict=False), AfterValidator(_absolute)]


class Web(Settings):
    """The worker's own web page and metrics."""

    enabled: bool = False
    bind: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 6066


class WorkerConfig(Settings):
    """`worker.yaml`: what one worker process needs to know. Workers may differ in it.

    Only `application` and `partitions` are the same for all, for they name and size the topics
    that the workers share.
    """

    application: Annotated[str, AfterValidator(_application_name)] = "ringfaust"
    """Consumer group, and the beginning of the names of our topics and transactional ids."""
    bootstrap_servers: Annotated[str, AfterValidator(_servers)] = "127.0.0.1:9092"
    """`host:port`, several with commas between."""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Partitions of our topics, and of each producer's topic that is read without a hop."""
    replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Copies of each partition of the topics we make; -1: what the brokers are set to."""
    data_dir: _Folder = Field(default_factory=_state_folder)
    """Where RocksDB lives, absolute; each worker needs one of its own."""
    cache_bytes: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    """Bound of the state that is held in memory, over all partitions of this worker."""
    batch_records: Annotated[int, Field(ge=1, le=100_000)] = 4000
    """Most records of one partition in one transaction."""
    clock: Literal["wall", "log"] = "wall"
    """`log`: time comes from tick records alone, for tests."""
    tick_ms: Annotated[int, Field(ge=1, le=60_000)] = 50
    """How often due work is looked for."""
    max_record_bytes: Annotated[int, Field(ge=1_000, le=1_900_000)] = 900_000
    """Largest record taken in; a larger one goes to the dead topic."""
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=1_800_000)] = 10_000
    """A worker that is silent for so long loses its partitions to the others."""
    security: Security = Security()
    web: Web = Web()
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: object) -> object:
        if isinstance(data, dict) and data.get("data_dir", "") is None:
            return {name: value for name, value in data.items() if name != "data_dir"}
        return data

    @field_validator("replication_factor")
    @classmethod
    def _some_copies(cls, copies: int) -> int:
        if copies == 0:
            raise refuse("is 0: use 1 or more, or -1 for what the brokers are set to")
        return copies

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments for any aiokafka client: where the brokers are, and security.

        Raises:
            ConfigError: see `Security.client_options`.
        """
        return {"bootstrap_servers": self.bootstrap_servers, **self.security.client_options()}

    def topic(self, role: str) -> str:
        """Name of our topic of this role, such as `ringfaust.control`."""
        return f"{self.application}.{role}"


# --- reading ------------------------------------------------------------------------------------


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
