"""`ringfaust consumer …`: who consumes a queue, and freeing what a stuck consumer holds."""

from __future__ import annotations

from typing import Annotated

import typer

from ringfaust.cli.operate import (
    Application,
    AsJson,
    Brokers,
    Folder,
    QueueName,
    Target,
    Yes,
    age_text,
    confirm,
    print_json,
    print_table,
    with_admin,
)
from ringfaust.cli.parts import group

consumer = group("Look at consumers and close them.")


@consumer.command("ls")
def list_consumers(
    *,
    queue: QueueName,
    as_json: AsJson = False,
    folder: Folder = None,
    bootstrap_servers: Brokers = None,
    application: Application = None,
) -> None:
    """List the consumers of a queue, with what each holds and how long it has been silent.

    Example: ringfaust consumer ls orders
    """
    target = Target(folder, bootstrap_servers, application)
    found = with_admin(target, lambda admin: admin.queue(queue)).consumers
    if as_json:
        print_json(found)
    elif not found:
        print(f"{queue} has no consumers")
    else:
        titles = (
            "consumer", "active", "unsettled", "credit", "priority", "mode", "silent for",
            "session", "selector",
        )  # fmt: skip
        rows = [
            (
                c.consumer, c.active, c.unsettled, c.credit, c.priority, c.ack_mode,
                age_text(c.silent_ms), c.session, c.selector,
            )
            for c in found
        ]  # fmt: skip
        print_table(titles, rows)


@consumer.command("close")
def close(
    *,
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="Name of the consumer.")],
    yes: Yes = False,
    folder: Folder = None,
    bootstrap_servers: Brokers = None,
    application: Application = None,
) -> None:
    """Detach a consumer. What it holds returns to the queue; its own acks come too late.

    Example: ringfaust consumer close orders billing-1 --yes
    """
    confirm(f"This detaches {name} from {queue} and returns what it holds.", yes=yes)
    target = Target(folder, bootstrap_servers, application)
    with_admin(target, lambda admin: admin.close_consumer(queue, name))
    print(f"{name}: detached from {queue}")
