"""`worker.yaml`: the settings of one worker process."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from platformdirs import user_state_path
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ringfaust.config.documents import (
    ConfigModel,
    OptionalFile,
    refuse,
    refuse_all,
    shown,
    without_tilde,
)
from ringfaust.config.oidc import OidcConfig, http_url
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


_HOST = r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?"


def _servers(text: str) -> str:
    for server in text.split(","):
        host, _, port = server.strip().rpartition(":")
        if not re.fullmatch(rf"{_HOST}|\[[0-9A-Fa-f:.]+\]", host) or not _is_port(port):
            raise refuse(
                f"{shown(server)} is not a broker's address: write host:port, such as "
                "127.0.0.1:9092, and separate several with commas"
            )
    return ",".join(server.strip() for server in text.split(","))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536


def _host_names(text: str) -> str:
    names = [name.strip().rstrip(".").lower() for name in text.split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[a-z0-9._-]+", name):
            raise refuse(
                f"{shown(name)} is not the name of a host: write it without port and path, such as "
                "console.example.com, and separate several with commas"
            )
    return ",".join(names)


def _origin(text: str) -> str:
    found = re.fullmatch(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?", text.lower())
    if found is None or not 0 < int((found[3] or ":80")[1:]) < 65_536:
        raise refuse(
            f"{shown(text)} is not an address such as https://rings.example.com: write it with "
            "http or https, and without a path"
        )
    scheme, host, port = found.groups()
    is_default = port == {"http": ":80", "https": ":443"}[scheme]
    return f"{scheme}://{host}{'' if is_default else port or ''}"


def _networks(text: str) -> str:
    networks = [network.strip() for network in text.split(",") if network.strip()]
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise refuse(
                f"{shown(network)} is neither an address nor a network such as 10.1.0.0/16: "
                "separate several with commas"
            ) from None
    return ",".join(networks)


def _state_folder(settings: dict[str, Any]) -> Path:
    """Return the application's folder within the user's state folder (XDG)."""
    return Path(user_state_path("ringfaust"), settings.get("application", "ringfaust"))


def machine_bytes() -> int:
    """The memory of this machine, or of the container or the service if that has less."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    limits = [pages * page_bytes]
    for path in (*_CGROUP_LIMITS, *_own_limits()):
        with suppress(OSError, ValueError):  # no cgroup, or no limit
            limits.append(int(path.read_text()))
    return min(limits)


def _own_limits() -> list[Path]:
    """Files with the limits of a systemd service and its slices (version 2)."""
    with suppress(OSError):
        for line in _OWN_CGROUP.read_text().splitlines():
            if line.startswith("0::/"):
                own = PurePath(line.removeprefix("0::/"))
                return [_CGROUPS / each / "memory.max" for each in (own, *own.parents)]
    return []


def _cache_bytes() -> int:
    return max(machine_bytes() // 8, 256 << 20)


def _memory_bytes() -> int:
    return machine_bytes() * 3 // 4


_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_CGROUP_LIMITS = (_CGROUPS / "memory.max", _CGROUPS / "memory" / "memory.limit_in_bytes")
"""Files with the memory limit of a container: version 2 and version 1."""


_Folder = Annotated[
    Path,
    Field(strict=False),
    AfterValidator(lambda path: without_tilde(path).absolute()),
    WithJsonSchema({"type": ["string", "null"], "format": "path"}),
]


_COMPUTED = ("cache_bytes", "data_dir", "memory_bytes")
"""Settings whose default depends on the machine; null means that default."""


OLD_NAMES = {"clock_skew_max": "clock_skew_max_ms"}
"""Settings by names that they had, which are still accepted."""


def with_new_names(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what is given under the present names; what is given under both stays as it is."""
    renamed = {old: new for old, new in OLD_NAMES.items() if new not in given}
    return {renamed.get(name, name): value for name, value in given.items()}


class WebConfig(ConfigModel):
    """`web`: metrics, health and the console over HTTP."""

    enabled: bool = False
    """Whether the worker serves them."""
    bind: str = "127.0.0.1"
    """Address to listen on. Metrics and health need no password: choose one that only you reach."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 6066
    """Port to listen on."""
    hosts: Annotated[str, AfterValidator(_host_names)] = ""
    """Names by which browsers, Prometheus or a proxy reach the pages, separated by commas. They
    answer to no others but addresses, `localhost` and the machine's own name."""
    proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Addresses or networks of the proxies before the console, separated by commas: whom they name
    in `X-Forwarded-For` is whom wrong tokens are counted for. Nobody else is believed."""
    public_url: Annotated[str, AfterValidator(_origin)] | None = None
    """Where browsers reach the console, if a proxy is before it: https://rings.example.com. It is
    one of the `hosts`, too."""
    token_file: OptionalFile = None
    """File with the console's token that allows changes. Without it the console is read-only."""
    read_token_file: OptionalFile = None
    """File with the console's token that allows to read. With it, or where others can reach the
    console (`bind` is not a loopback address; `proxies` or `public_url`), reading needs a token."""
    schema_registry: Annotated[str, AfterValidator(http_url)] | None = None
    """URL of a schema registry. The console then shows Avro and Protobuf values as JSON. Needs
    `ringfaust[console]`."""
    oidc: OidcConfig = OidcConfig()

    @model_validator(mode="after")
    def _provider_knows_us(self) -> Self:
        if self.oidc.issuer and not self.public_url:
            raise refuse(
                "is required with oidc: where the provider sends users back to", "public_url"
            )
        return self

    @property
    def host_names(self) -> frozenset[str]:
        """The names in `hosts`, and that in `public_url`."""
        public = urlsplit(self.public_url or "").hostname or ""
        return frozenset(filter(None, [*self.hosts.split(","), public]))

    @property
    def proxy_networks(self) -> Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """The networks in `proxies`."""
        return [ipaddress.ip_network(each) for each in self.proxies.split(",") if each]


def _with_old_names(schema: dict[str, Any]) -> None:
    found = schema["properties"]
    found.update({old: {**found[new], "deprecated": True} for old, new in OLD_NAMES.items()})


class WorkerConfig(ConfigModel):
    """`worker.yaml`: the settings of one worker process.

    Workers of an application may differ in all settings but `application` and `partitions`, which
    name and size the topics that they share, `clock` and `cloud_events`.
    """

    model_config = ConfigDict(json_schema_extra=_with_old_names)

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
    """Most memory for cached state, over all partitions of this worker; `--processes` share it.
    Default: an eighth of the memory that the machine, container or systemd service has, at least
    256 MiB."""
    memory_bytes: Annotated[
        int, Field(ge=64 << 20), WithJsonSchema({"type": ["integer", "null"], "minimum": 64 << 20})
    ] = Field(default_factory=_memory_bytes)
    """Most memory of this process; `--processes` share it. While a process has more, it reads only
    commands, and each input once a second. Default: three quarters of the memory that the machine,
    container or systemd service has."""
    batch_records: Annotated[int, Field(ge=1, le=100_000)] = 16_000
    """Most records of one partition in one transaction, and up to 8,000 more. A batch is only as
    large as the load makes it."""
    clock: Literal["wall", "log"] = "wall"
    """`log`: time advances only by tick records, for tests."""
    clock_skew_max_ms: Annotated[int, Field(ge=100, le=86_400_000)] = 60_000
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
    """A worker that sends no heartbeat for this long loses its partitions to the others, in ms."""
    failover_after_ms: Annotated[int, Field(ge=1_000, le=1_800_000)] = 3_000
    """One that gives the others no sign of life for this long loses them, too, in ms (R126). If two
    workers have different values, the larger one counts between them."""
    standby: Annotated[int, Field(ge=0, le=1)] = 1
    """1: this worker keeps copies of partitions that other workers serve, to take them over without
    a delay. They take as much of its disk as the partitions do (R127). 0: it keeps none."""
    security: SecurityConfig = SecurityConfig()
    web: WebConfig = WebConfig()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much the worker logs."""
    log_format: Literal["text", "json"] = "text"
    """json: an object a line, with `time`, `level`, `logger`, `message` and `error`."""

    @model_validator(mode="before")
    @classmethod
    def _as_the_fields_are(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        refuse_all(
            refuse(f"is also given as {new}: remove one of them", old)
            for old, new in OLD_NAMES.items()
            if {old, new} <= data.keys()
        )
        given = with_new_names(data).items()
        return {k: v for k, v in given if v is not None or k not in _COMPUTED}

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
