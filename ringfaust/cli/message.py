"""`ringfaust message …`: look at single messages and act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust.cli.operate import (
    AsJson,
    MessageName,
    QueueName,
    Target,
    Yes,
    approve,
    beginning_of,
    changed,
    confirm,
    print_fields,
    print_json,
    print_list,
    say,
    say_text,
    with_admin,
)
from ringfaust.cli.parts import group
from ringfaust.core.model import HeldState
from ringfaust.errors import RingfaustError
from ringfaust.times import age_text, time_text, wall_ms
from ringfaust.visible import text_of

if TYPE_CHECKING:
    from ringfaust.client import Admin
    from ringfaust.client.inspected import Excerpt, MessageDetails

message = group("Look at single messages and act on them.")


class NoMessage(RingfaustError):
    """The queue has no such message. What to do: `ringfaust trace ID` says where it went."""

    def __init__(self, queue: str, message_id: str) -> None:
        super().__init__(
            f"queue {queue} has no message {message_id!r} now; "
            f"`ringfaust trace {message_id}` says where it went"
        )


@message.command("browse")
def browse(
    *,
    target: Target,
    queue: QueueName,
    state: Annotated[HeldState, typer.Option(help="Which messages.")] = "ready",
    selector: Annotated[str, typer.Option(help="Only messages that match this selector.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Most messages to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List messages of a queue in delivery order, with the beginning of their bodies.

    Example: ringfaust message browse orders --selector "region = 'eu'"
    """

    async def read(admin: Admin) -> list[MessageDetails]:
        found: list[MessageDetails] = []
        async for each in admin.browse(queue, state=state, selector=selector):
            found.append(each)
            if len(found) == limit:
                break
        return found

    found = with_admin(target, read)
    now_ms = wall_ms()
    print_list(
        found, ("id", "priority", "age", "bytes", "due", "consumer", "body"),
        lambda each: (
            each.id, each.priority, age_text(now_ms - each.enqueued_ms), each.size_bytes,
            time_text(each.due_ms), each.consumer, beginning_of(each.value),
        ),
        as_json=as_json, text_last=True,
        nothing=f"{queue} has no {state} messages{' that match' if selector else ''}",
    )  # fmt: skip


@message.command("show")
def show(*, target: Target, queue: QueueName, id_: MessageName, as_json: AsJson = False) -> None:
    """Show one message with its headers and body.

    Example: ringfaust message show orders order-17
    """
    found = with_admin(target, lambda admin: admin.message(queue, id_))
    if found is None:
        raise NoMessage(queue, id_)
    if as_json:
        print_json(found)
        return
    pairs: list[tuple[str, object]] = [
        ("id", found.id),
        ("queue", found.queue),
        ("state", found.state),
        ("sequence", found.sequence),
        ("priority", found.priority),
        ("sent", time_text(found.enqueued_ms)),
        ("due", time_text(found.due_ms)),
        ("expires", time_text(found.expires_at_ms)),
        ("group", found.group),
        ("deliveries", found.handovers),
        ("held by", found.consumer),
        ("transaction", found.xid),
        ("bytes", found.size_bytes),
        ("source", found.source),
        ("key", _whole(found.key)),
        *((f"header {name}", _whole(value)) for name, value in found.headers.items()),
    ]  # fmt: skip
    print_fields([(name, value) for name, value in pairs if value not in ("", "-")])
    if found.value is not None:
        say("")
        say_text(text_of(found.value.start))
        if not found.value.is_whole:
            say(f"… {found.value.size_bytes - len(found.value.start):,} more bytes")


def _whole(value: Excerpt | None) -> str:
    return text_of(value.start) if value else ""


@message.command("remove")
def remove(*, target: Target, queue: QueueName, id_: MessageName, yes: Yes = False) -> None:
    """Remove one ready or scheduled message. It is gone: no topic receives it.

    Example: ringfaust message remove orders order-17 --yes
    """
    confirm(f"This removes message {id_} from {queue}.", target.where(), yes=yes)
    with_admin(target, lambda admin: admin.remove(queue, id_))
    changed(target, f"{id_}: removed from {queue}")


@message.command("move")
def move(
    *,
    target: Target,
    queue: QueueName,
    id_: MessageName,
    to: Annotated[str, typer.Argument(metavar="TO", help="Queue to move it to.")],
    yes: Yes = False,
) -> None:
    """Move one ready or scheduled message to another queue of the same partition.

    Example: ringfaust message move orders order-17 orders-parked
    """
    approve(target, yes=yes)
    with_admin(target, lambda admin: admin.move(queue, id_, to))
    changed(target, f"{id_}: moved from {queue} to {to}")


@message.command("deliver-now")
def deliver_now(*, target: Target, queue: QueueName, id_: MessageName, yes: Yes = False) -> None:
    """Make a scheduled message due now.

    Example: ringfaust message deliver-now orders order-18
    """
    approve(target, yes=yes)
    with_admin(target, lambda admin: admin.deliver_now(queue, id_))
    changed(target, f"{id_}: due now")


@message.command("cancel")
def cancel(*, target: Target, queue: QueueName, id_: MessageName, yes: Yes = False) -> None:
    """Cancel a scheduled message: it is removed before it is due.

    Example: ringfaust message cancel orders order-18 --yes
    """
    confirm(f"This cancels message {id_} of {queue}.", target.where(), yes=yes)
    with_admin(target, lambda admin: admin.cancel_scheduled(queue, id_))
    changed(target, f"{id_}: cancelled")
