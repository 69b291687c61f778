"""`worker.yaml`: the settings of one worker process."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from ringfaust.config.documents import ConfigModel, refuse, shown
from ringfaust.config.security import SecurityConfig
from ringfaust.kafka.admin import Brokers
from ringfaust.kafka.names import topic_name

_LONGEST_ROLE = len(".dispatched")


def _application_name(name: str) -> str:
    longest = 249 - _LONGEST_ROLE
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or len(name) > longest:
        raise refuse(
            f"{shown(name)} cannot begin a topic's name: use up to {longest} letters, digits and "
            ". _ -, starting with a letter or digit"
        )
    return name


def _servers(text: str) -> str:
    for server in text.split(","):
        host, _, port = server.strip().rpartition(":")
        if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host) or not _is_port(port):
            raise refuse(
                f"{shown(server)} is not a broker's address: write host:port, such as "
                "127.0.0.1:9092, and separate several with commas"
            )
    return ",".join(server.strip() for server in text.split(","))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536


def _http_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s?#]+[^\s?#]*", text):
        raise refuse(f"{shown(text)} is not an address such as http://registry:8081")
    return text


def _state_folder(settings: dict[str, Any]) -> Path:
    """Return the application's folder within the user's state folder (XDG)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base, "ringfaust", settings.get("application", "ringfaust"))


def _cache_bytes() -> int:
    """An eighth of the memory that this process may use, or 256 MiB if that is more."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    limits = [pages * page_bytes]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no cgroup, or no limit
            limits.append(int(path.read_text()))
    return max(min(limits) // 8, 256 << 20)


_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files with the memory limit of a container: version 2 and version 1."""


def _absolute(path: Path) -> Path:
    if "\0" in str(path):
        raise refuse("contains a NUL character, which a folder's name cannot")
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        text = f"{shown(str(path))} begins with an unknown user: write the path out"
        raise refuse(text) from None


_Folder = Annotated[
    Path,
    Field(strict=False),
    AfterValidator(_absolute),
    WithJsonSchema({"type": ["string", "null"], "format": "path"}),
]


_COMPUTED = ("cache_bytes", "data_dir")
"""Settings whose default depends on the machine; null means that default."""


class WebConfig(ConfigModel):
    """`web`: metrics, health and the console over HTTP."""

    enabled: bool = False
    """Whether the worker serves them."""
    bind: str = "127.0.0.1"
    """Address to listen on. Metrics and health need no password: choose one that only you reach."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 6066
    """Port to listen on."""
    token_file: Annotated[
        Path | None, Field(strict=False), WithJsonSchema({"type": ["string", "null"]})
    ] = None
    """File with the console's token, which allows changes. Without it the console is
    read-only, and if `bind` is not a loopback address, closed."""
    schema_registry: Annotated[str, AfterValidator(_http_url)] | None = None
    """URL of a schema registry. The console then shows Avro and Protobuf values as JSON. Needs
    `ringfaust[console]`."""


class WorkerConfig(ConfigModel):
    """`worker.yaml`: the settings of one worker process.

    Workers of an application may differ in all settings but `application` and `partitions`, which
    name and size the topics that they share, `clock` and `cloud_events`.
    """

    application: Annotated[str, AfterValidator(_application_name)] = "ringfaust"
    """Consumer group, and prefix of our topics and transactional ids."""
    bootstrap_servers: Annotated[str, AfterValidator(_servers)] = "127.0.0.1:9092"
    """`host:port`, separated by commas."""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Partitions of our topics, and of each producer's topic that is read without the hop."""
    replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Copies of each partition of the topics we create. -1: the brokers' default."""
    data_dir: _Folder = Field(default_factory=_state_folder)
    """Folder for RocksDB. Each worker needs its own. Default: `ringfaust/APPLICATION` in
    `$XDG_STATE_HOME` or `~/.local/state`."""
    cache_bytes: Annotated[
        int, Field(ge=1 << 20), WithJsonSchema({"type": ["integer", "null"], "minimum": 1 << 20})
    ] = Field(default_factory=_cache_bytes)
    """Most memory for cached state, over all partitions of this worker. Default: an eighth of the
    memory that the machine or the container has, at least 256 MiB."""
    batch_records: Annotated[int, Field(ge=1, le=100_000)] = 16_000
    """Most records of one partition in one transaction, and up to 4,000 more. A batch is only as
    large as the load makes it."""
    clock: Literal["wall", "log"] = "wall"
    """`log`: time advances only by tick records, for tests."""
    clock_skew_max: Annotated[int, Field(ge=100, le=86_400_000)] = 60_000
    """How far this machine's clock may differ from the brokers', in ms (R115)."""
    tick_ms: Annotated[int, Field(ge=1, le=60_000)] = 50
    """How often the worker checks for due work."""
    on_gap: Literal["continue", "stop"] = "continue"
    """What to do if records were deleted before they were processed (R112)."""
    max_record_bytes: Annotated[int, Field(ge=1_000, le=1_900_000)] = 900_000
    """Largest record accepted. A larger one goes to the dead topic."""
    cloud_events: bool = False
    """Whether evicted and dead records also have the attributes of CloudEvents (`ce_…` headers)."""
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=1_800_000)] = 10_000
    """A worker that is silent for this long loses its partitions to the others."""
    security: SecurityConfig = SecurityConfig()
    web: WebConfig = WebConfig()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much the worker logs."""
    log_format: Literal["text", "json"] = "text"
    """json: an object a line, with `time`, `level`, `logger`, `message` and `error`."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: object) -> object:
        if isinstance(data, dict):
            return {k: v for k, v in data.items() if v is not None or k not in _COMPUTED}
        return data

    @field_validator("replication_factor")
    @classmethod
    def _some_copies(cls, copies: int) -> int:
        if copies == 0:
            raise refuse("0 is not allowed: use 1 or more, or -1 for the brokers' default")
        return copies

    def client_options(self) -> dict[str, Any]:
        """Return keyword arguments for any aiokafka client: the brokers, and security.

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
        """Return the name of our topic with this role, such as `ringfaust.control`."""
        return topic_name(self.application, role)
