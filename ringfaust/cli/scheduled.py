"""`ringfaust scheduled …`: messages that wait for their delivery time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust.cli.operate import AsJson, Pattern, Target, beginning_of, print_list, with_admin
from ringfaust.cli.parts import group
from ringfaust.times import age_text, time_text, wall_ms

if TYPE_CHECKING:
    from ringfaust.client import Admin
    from ringfaust.client.inspected import MessageDetails

scheduled = group("Look at scheduled messages.")
_PAGE = 1_000
"""Messages of a page."""


@scheduled.command("ls")
def list_scheduled(
    *,
    target: Target,
    pattern: Pattern = "#",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most messages to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List scheduled messages, the next due first.

    `message deliver-now` and `message cancel` act on one of them.

    Example: ringfaust scheduled ls 'orders.#'
    """

    async def read(admin: Admin) -> list[MessageDetails]:
        found: list[MessageDetails] = []
        for queue in await admin.queues(pattern):
            after = "" if queue.counts["scheduled"] else None
            left = limit
            while after is not None and left > 0:
                page = await admin.browse_page(
                    queue.queue, state="scheduled", after=after, partition=queue.partition,
                    limit=min(left, _PAGE),
                )  # fmt: skip
                found += page.messages
                after, left = page.after, left - len(page.messages)
            found = sorted(found, key=lambda each: each.due_ms)[:limit]
        return found

    found = with_admin(target, read)
    now_ms = wall_ms()
    print_list(
        found, ("id", "queue", "due", "due in", "priority", "body"),
        lambda each: (
            each.id, each.queue, time_text(each.due_ms, timespec="seconds"),
            age_text(max(each.due_ms - now_ms, 0)), each.priority, beginning_of(each.value),
        ),
        as_json=as_json, text_last=True,
        nothing="no scheduled message matches" if pattern != "#" else "no message is scheduled",
    )  # fmt: skip
