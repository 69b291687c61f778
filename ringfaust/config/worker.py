"""`worker.yaml`: what one worker process needs to know. Workers may differ in it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from ringfaust.config.documents import ConfigModel, refuse, shown
from ringfaust.config.security import SecurityConfig
from ringfaust.kafka.admin import Brokers
from ringfaust.kafka.names import topic_name

_LONGEST_ROLE = len(".dispatched")


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


class WebConfig(ConfigModel):
    """The worker's own web page and metrics."""

    enabled: bool = False
    bind: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 6066


class WorkerConfig(ConfigModel):
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
    security: SecurityConfig = SecurityConfig()
    web: WebConfig = WebConfig()
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
            ConfigError: see `SecurityConfig.client_options`.
        """
        return {"bootstrap_servers": self.bootstrap_servers, **self.security.client_options()}

    def brokers(self) -> Brokers:
        """Return what `kafka.admin` needs to connect.

        Raises:
            ConfigError: see `SecurityConfig.client_options`.
        """
        return Brokers(
            application=self.application,
            servers=self.bootstrap_servers,
            security=self.security.description,
            client_options=self.client_options(),
        )

    def topic(self, role: str) -> str:
        """Name of our topic of this role, such as `ringfaust.control`."""
        return topic_name(self.application, role)
