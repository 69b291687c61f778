"""`ringfaust consumer …`: who consumes a queue, and freeing what a stuck consumer holds."""

from __future__ import annotations

from typing import Annotated

import typer

from ringfaust.cli.operate import (
    AsJson,
    QueueName,
    Target,
    Yes,
    changed,
    confirm,
    print_list,
    with_admin,
)
from ringfaust.cli.parts import group
from ringfaust.times import age_text

consumer = group("Look at consumers and close them.")


@consumer.command("ls")
def list_consumers(*, target: Target, queue: QueueName, as_json: AsJson = False) -> None:
    """List the consumers of a queue, with what each holds and how long it has been silent.

    Example: ringfaust consumer ls orders
    """
    homes = with_admin(target, lambda admin: admin.homes(queue))
    found = [consumer for each in homes for consumer in each.consumers]
    print_list(
        found,
        (
            "consumer", "active", "unsettled", "credit", "priority", "mode", "silent for",
            "session", "selector",
        ),
        lambda c: (
            c.consumer, c.active, c.unsettled, c.credit, c.priority, c.ack_mode,
            age_text(c.silent_ms), c.session, c.selector,
        ),
        as_json=as_json, nothing=f"{queue} has no consumers",
    )  # fmt: skip


@consumer.command("close")
def close(
    *,
    target: Target,
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="Name of the consumer.")],
    yes: Yes = False,
) -> None:
    """Detach a consumer. What it holds returns to the queue; its own acks come too late.

    Example: ringfaust consumer close orders billing-1 --yes
    """
    confirm(
        f"This detaches {name} from {queue} and returns what it holds.", target.where(), yes=yes
    )
    with_admin(target, lambda admin: admin.close_consumer(queue, name))
    changed(target, f"{name}: detached from {queue}")
