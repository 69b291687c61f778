"""`ringfaust config`: check the configuration, and show which settings a worker gets."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs, to start fast

from __future__ import annotations

import sys

import typer

from ringfaust.cli.operate import print_table
from ringfaust.cli.parts import ConfigFolder, Servers, group

config = group("Check the configuration, and show where each setting comes from.")


@config.command("check")
def config_check(folder: ConfigFolder = None) -> None:
    """Check queues.yaml, worker.yaml and the settings in the environment.

    Reports every mistake with its file, its line and a suggestion.

    Example: ringfaust config check --config config
    """
    from ringfaust.config import load, origins
    from ringfaust.config.agreement import fingerprint
    from ringfaust.config.documents import shipped

    worker_config, queues = load(folder)
    where = folder or shipped("config")
    typer.echo(
        f"{where / 'queues.yaml'} is valid: routes {len(queues.routes)}, queues "
        f"{len(queues.queues)}, "
        f"addresses {len(queues.addresses)}, settings {len(queues.settings)}"
    )
    path = where / "worker.yaml"
    state = "is valid" if path.exists() else "does not exist, so every setting has its default"
    typer.echo(f"{path} {state}: application {worker_config.application}")
    names = [each.source for each in origins(folder) if each.source.startswith("RINGFAUST_")]
    if names:
        typer.echo(f"from the environment: {', '.join(names)}")
    _warn_of_variables()
    typer.echo(f"fingerprint, equal on all workers: {fingerprint(worker_config, queues)}")
    for route in queues.routes:
        how = "through the hop" if route.needs_hop(worker_config.partitions) else "directly"
        typer.echo(f"  {route.topic} -> {route.queue}, {how}")
    from ringfaust.cli.topics import warn_of_order

    warn_of_order(worker_config, queues)


@config.command("show")
def config_show(folder: ConfigFolder = None, bootstrap_servers: Servers = None) -> None:
    """Show every setting of a worker, and where its value comes from.

    The command line wins over the environment, that over worker.yaml, and that over the defaults.

    Example: ringfaust config show --config config
    """
    from ringfaust.config import origins

    found = origins(folder, bootstrap_servers=bootstrap_servers)
    print_table(
        ("setting", "from", "value"),
        [(each.name, each.source, _text(each.value)) for each in found],
    )
    _warn_of_variables()


def _warn_of_variables() -> None:
    from ringfaust.config.environment import misspelled_variables

    for sentence in misspelled_variables():
        print(f"warning: {sentence}", file=sys.stderr)


def _text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
