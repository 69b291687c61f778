"""`ringfaust config`: check the configuration, and show which settings a worker gets."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs, to start fast

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringfaust.cli.operate import AsJson, print_json, print_table, say
from ringfaust.cli.parts import ConfigFolder, Servers, group
from ringfaust.errors import RingfaustError

if TYPE_CHECKING:
    from ringfaust.config import QueuesConfig, WorkerConfig

config = group("Check the configuration, and show where each setting comes from.")


@dataclass(frozen=True, slots=True)
class CheckedRoute:
    """A route of queues.yaml."""

    topic: str
    queue: str
    through_hop: bool
    """Whether records are copied to the partition of their queue."""


@dataclass(frozen=True, slots=True)
class CheckedConfig:
    """A configuration that is valid."""

    queues_file: str
    worker_file: str
    worker_file_exists: bool
    """If it does not exist, every setting has its default."""
    application: str
    queues: int
    addresses: int
    settings: int
    variables: list[str]
    """Environment variables that set something."""
    fingerprint: str
    """Equal on all workers of an application."""
    routes: list[CheckedRoute]
    warnings: list[str]
    """Queues whose messages are ordered by arrival alone, and how to avoid it."""
    log: str
    """How the file compares with what was applied, or why it was not compared."""
    differences: list[str]
    """What `apply` would change."""


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting of a worker."""

    name: str
    """Path of the setting, such as `web.port`."""
    source: str
    """`default`, a file and its line, a variable, `command line`, or `context`."""
    value: bool | int | str | None
    """The user and password in a URL are replaced by `***`."""


@config.command("check")
def config_check(*, folder: ConfigFolder = None, as_json: AsJson = False) -> None:
    """Check queues.yaml, worker.yaml and the settings in the environment.

    Reports every mistake with its file, its line and a suggestion. If brokers answer, it also names
    the differences from the configuration that was applied.

    Example: ringfaust config check --config config
    """
    checked = _checked(folder)
    _warn_of_variables()
    if as_json:
        print_json(checked)
    else:
        _print_checked(checked)


def _checked(folder: Path | None) -> CheckedConfig:
    from ringfaust.cli.topics import order_warnings
    from ringfaust.config import origins
    from ringfaust.config.agreement import fingerprint
    from ringfaust.config.contexts import find_place
    from ringfaust.config.documents import shipped

    place = find_place(folder)
    worker_config, queues = place.load()
    where = place.folder or shipped("config")
    path = where / "worker.yaml"
    sources = [each.source for each in origins(place.folder)]
    log, found = _compared(worker_config, queues)
    return CheckedConfig(
        queues_file=str(where / "queues.yaml"),
        worker_file=str(path),
        worker_file_exists=path.exists(),
        application=worker_config.application,
        queues=len(queues.queues),
        addresses=len(queues.addresses),
        settings=len(queues.settings),
        variables=[each for each in sources if each.startswith("RINGFAUST_")],
        fingerprint=fingerprint(worker_config, queues),
        routes=[
            CheckedRoute(each.topic, each.queue, each.needs_hop(worker_config.partitions))
            for each in queues.routes
        ],
        warnings=order_warnings(worker_config, queues),
        log=log,
        differences=found,
    )


def _compared(worker: WorkerConfig, queues: QueuesConfig) -> tuple[str, list[str]]:
    """How the file compares with the log, and the differences."""
    import asyncio

    from aiokafka.errors import KafkaError

    from ringfaust.cli.reach import reached
    from ringfaust.config.applied import InUse, configuration_in_use

    async def look() -> InUse:
        return await configuration_in_use(await reached(worker), queues)

    try:
        used = asyncio.run(look())
    except (RingfaustError, KafkaError, OSError, TimeoutError) as error:
        return f"not compared with the log: {' '.join(str(error).split())}", []
    if not used.revision:
        return "nothing was applied yet: workers use their queues.yaml", []
    found = [str(each) for each in used.differences]
    how = "differs from" if found else "is as"
    return f"{how} revision {used.revision}, which is in effect", found


def _print_checked(checked: CheckedConfig) -> None:
    from ringfaust.cli.topics import warn_of_order

    say(
        f"{checked.queues_file} is valid: routes {len(checked.routes)}, queues {checked.queues}, "
        f"addresses {checked.addresses}, settings {checked.settings}"
    )
    exists = checked.worker_file_exists
    state = "is valid" if exists else "does not exist, so every setting has its default"
    say(f"{checked.worker_file} {state}: application {checked.application}")
    if checked.variables:
        say(f"from the environment: {', '.join(checked.variables)}")
    settings = "queues.yaml, partitions, clock and cloud_events"
    say(f"fingerprint of {settings}: {checked.fingerprint}")
    for route in checked.routes:
        how = "through the hop" if route.through_hop else "directly"
        say(f"  {route.topic} -> {route.queue}, {how}")
    say(f"queues.yaml: {checked.log}")
    for difference in checked.differences:
        say(f"  {difference}")
    warn_of_order(checked.warnings)


@config.command("show")
def config_show(
    *, folder: ConfigFolder = None, bootstrap_servers: Servers = None, as_json: AsJson = False
) -> None:
    """Show every setting of a worker, and where its value comes from.

    The command line wins over the environment, that over worker.yaml, and that over the defaults.

    Example: ringfaust config show --config config
    """
    from ringfaust.config import origins
    from ringfaust.config.contexts import find_place

    place = find_place(folder, bootstrap_servers)
    found = origins(
        place.folder, bootstrap_servers=place.bootstrap_servers, application=place.application
    )
    given = "context" if bootstrap_servers is None else "command line"
    shown = [
        ShownSetting(
            each.name, given if each.source == "command line" else each.source, _shown(each.value)
        )
        for each in found
    ]
    _warn_of_variables()
    if as_json:
        print_json(shown)
        return
    print_table(
        ("setting", "from", "value"),
        [(each.name, each.source, _text(each.value)) for each in shown],
    )


def _warn_of_variables() -> None:
    from ringfaust.config.environment import misspelled_variables

    for sentence in misspelled_variables():
        say(f"warning: {sentence}", to_errors=True)


def _shown(value: object) -> bool | int | str | None:
    if value is None or isinstance(value, bool | int):
        return value
    return re.sub(r"^(https?://).*@", r"\1***@", str(value))


def _text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
