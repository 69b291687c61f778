"""What an operator may change. `app` has checked the permission before any of this runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiokafka.errors import KafkaError

from ringfaust.client import Admin
from ringfaust.client.errors import ClientError
from ringfaust.client.inspected import Pausable
from ringfaust.console.backend import reason_of
from ringfaust.console.context import SESSION, backend_of
from ringfaust.console.operations import MOST_MOVED
from ringfaust.console.rendering import PREFIX
from ringfaust.core.settings import written_name
from ringfaust.errors import BadSetting

ROUTES = web.RouteTableDef()
_BY = "console"
"""Who gives an order, for the log, if a token was used, which knows no names."""

Form = Mapping[str, str]
Act = Callable[[Admin, Form], Awaitable[str]]


def _action(path: str) -> Callable[[Act], Act]:
    """Make a function the handler of a form. It returns what was done, in a sentence."""

    def register(act: Act) -> Act:
        @ROUTES.post(path)
        async def handle(request: web.Request) -> web.StreamResponse:
            form = {name: str(value) for name, value in (await request.post()).items()}
            form["by"] = request[SESSION].user or _BY
            try:
                notice = ("done", await act(await backend_of(request).admin(), form))
            except (ClientError, BadSetting, KafkaError) as error:
                notice = ("failed", reason_of(error))
            request[SESSION].notices.append(notice)
            back = form.get("back", "")
            raise web.HTTPSeeOther(back if back.startswith(f"{PREFIX}/") else f"{PREFIX}/")

        return act

    return register


def field(form: Form, name: str) -> str:
    """A field of the form.

    Raises:
        HTTPBadRequest: it is missing or empty.
    """
    value = form.get(name, "")
    if not value.strip():
        raise web.HTTPBadRequest(text=f"{name} is empty: fill it in.")
    return value


# --- queues ---------------------------------------------------------------------------------------


def _pausable(form: Form) -> Pausable:
    return "pulling" if form.get("what") == "pulling" else "dispatch"


@_action("/queue/pause")
async def pause(admin: Admin, form: Form) -> str:
    """Hand out nothing, or read nothing new."""
    queue, what = field(form, "queue"), _pausable(form)
    await admin.pause(queue, what)
    return f"{queue} is paused: {_PAUSED[what]}."


@_action("/queue/resume")
async def resume(admin: Admin, form: Form) -> str:
    """Undo `pause`."""
    queue, what = field(form, "queue"), _pausable(form)
    await admin.resume(queue, what)
    return f"{queue} is resumed: {_RESUMED[what]}."


_PAUSED: Mapping[Pausable, str] = {
    "dispatch": "it hands out no messages", "pulling": "it reads no new messages",
}  # fmt: skip
_RESUMED: Mapping[Pausable, str] = {
    "dispatch": "it hands out messages", "pulling": "it reads new messages",
}  # fmt: skip


@_action("/queue/purge")
async def purge(admin: Admin, form: Form) -> str:
    """Evict all ready messages."""
    queue = field(form, "queue")
    await admin.purge(queue)
    return f"All ready messages of {queue} were evicted."


@_action("/queue/delete")
async def delete(admin: Admin, form: Form) -> str:
    """Delete a queue."""
    queue = field(form, "queue")
    await admin.delete_queue(queue)
    return f"{queue} was deleted."


@_action("/queue/set")
async def configure(admin: Admin, form: Form) -> str:
    """Change the settings whose values in the form differ from those in effect."""
    queue = field(form, "queue")
    known = {written_name(n): value for n, value in (await admin.queue(queue)).settings.items()}
    changed = {
        name: value
        for name, given in known.items()
        if (text := form.get(f"set-{name}")) is not None
        and (value := _typed(name, text.strip(), given)) != given
    }
    if not changed:
        return f"No setting of {queue} was changed."
    await admin.configure(queue, changed)
    listed = ", ".join(f"{name} = {_shown(value)}" for name, value in changed.items())
    return f"{queue}: set {listed}."


def _typed(name: str, text: str, like: object) -> object:
    """A value of the same type as the one in effect."""
    if isinstance(like, bool):
        if text not in ("true", "false"):
            raise BadSetting(name, text, "true or false")
        return text == "true"
    if isinstance(like, int | float):
        try:
            return type(like)(text)
        except ValueError:
            kind = "a whole number" if isinstance(like, int) else "a number"
            raise BadSetting(name, text, f"{kind} is needed") from None
    return text


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "(empty)"


@_action("/queue/move")
async def move_all(admin: Admin, form: Form) -> str:
    """Move the oldest ready messages of a queue to another one of its partition."""
    queue, to = field(form, "queue"), field(form, "to").strip()
    text = field(form, "most").strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_MOVED):
        raise BadSetting("messages", text, f"a whole number from 1 to {MOST_MOVED:,} is needed")
    moved = 0
    async for so_far in admin.move_oldest(queue, to, int(text)):
        moved = so_far
    what = "1 message" if moved == 1 else f"{moved:,} messages"
    return f"Moved {what} from {queue} to {to}."


# --- messages, consumers, transactions ------------------------------------------------------------


@_action("/message/remove")
async def remove(admin: Admin, form: Form) -> str:
    """Remove a message."""
    queue, message = field(form, "queue"), field(form, "id")
    await admin.remove(queue, message)
    return f"Message {message} was removed from {queue}."


@_action("/message/move")
async def move(admin: Admin, form: Form) -> str:
    """Move a message to another queue of the partition."""
    queue, message, to = field(form, "queue"), field(form, "id"), field(form, "to").strip()
    await admin.move(queue, message, to)
    return f"Message {message} was moved from {queue} to {to}."


@_action("/message/deliver-now")
async def deliver_now(admin: Admin, form: Form) -> str:
    """Make a scheduled message due."""
    queue, message = field(form, "queue"), field(form, "id")
    await admin.deliver_now(queue, message)
    return f"Message {message} is due now."


@_action("/message/cancel")
async def cancel(admin: Admin, form: Form) -> str:
    """Cancel a scheduled message."""
    queue, message = field(form, "queue"), field(form, "id")
    await admin.cancel_scheduled(queue, message)
    return f"Message {message} was cancelled."


@_action("/consumer/close")
async def close_consumer(admin: Admin, form: Form) -> str:
    """Detach a consumer."""
    queue, consumer = field(form, "queue"), field(form, "consumer")
    await admin.close_consumer(queue, consumer)
    return f"Consumer {consumer} was closed; what it held is back in {queue}."


@_action("/xid/commit")
async def commit_xid(admin: Admin, form: Form) -> str:
    """Commit a prepared transaction."""
    xid = field(form, "xid")
    await admin.commit_xid(xid)
    return f"Transaction {xid} was committed."


@_action("/xid/rollback")
async def rollback_xid(admin: Admin, form: Form) -> str:
    """Roll back a transaction."""
    xid = field(form, "xid")
    await admin.rollback_xid(xid)
    return f"Transaction {xid} was rolled back."


# --- partitions that have stopped -----------------------------------------------------------------


@_action("/partition/retry")
async def retry_partition(admin: Admin, form: Form) -> str:
    """Have a partition that has stopped try again (R123)."""
    partition = field(form, "partition")
    await admin.retry_partition(partition, by=form["by"])
    return f"Partition {partition} is running again."


@_action("/partition/skip")
async def skip_record(admin: Admin, form: Form) -> str:
    """Move the record at which a partition has stopped to the dead topic (R123)."""
    partition, at = field(form, "partition"), field(form, "at")
    await admin.skip_record(partition, at, by=form["by"])
    return f"{at} was moved to the dead topic; partition {partition} is running again."
