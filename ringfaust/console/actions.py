"""What an operator may change: each form performs an operation of the HTTP API.

`app` has checked the permission before any of this runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiokafka.errors import KafkaError
from pydantic import ValidationError

from ringfaust.client import Admin
from ringfaust.client.errors import ClientError
from ringfaust.console.backend import reason_of
from ringfaust.console.context import SESSION, backend_of, local
from ringfaust.console.operations import OPERATIONS
from ringfaust.console.problems import not_valid
from ringfaust.core.settings import written_name
from ringfaust.errors import BadSetting

ROUTES = web.RouteTableDef()
_BY = "console"
"""Who gives an order, for the log, if a token was used, which knows no names."""

_TYPED = ("to", "most")
"""Fields that somebody types. The page itself has filled in the others."""

Form = Mapping[str, str]


def field(form: Form, name: str) -> str:
    """A field of the form, without blanks around what somebody has typed: names may have them.

    Raises:
        HTTPBadRequest: it is missing or empty.
    """
    value = form.get(name, "")
    if name in _TYPED:
        value = value.strip()
    if not value:
        raise web.HTTPBadRequest(text=f"{name} is empty: fill it in.")
    return value


@dataclass(frozen=True, slots=True)
class Operator:
    """Performs operations for somebody."""

    admin: Admin
    by: str

    async def perform(self, name: str, given: Mapping[str, Any]) -> Any:
        """Check what is given, as the HTTP API does, and perform an operation.

        Raises:
            ValidationError: it is not valid.
            ClientError: it was refused, or nobody answered.
        """
        operation = OPERATIONS[name]
        return await operation.call(self.admin, operation.parameters(**given), self.by)


Act = Callable[[Operator, Form], Awaitable[str]]


def _action(path: str, act: Act) -> None:
    """Let a form do something. `act` returns what was done, in a sentence."""

    @ROUTES.post(path)
    async def handle(request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        operator = Operator(await backend_of(request).admin(), request[SESSION].user or _BY)
        try:
            notice = ("done", await act(operator, form))
        except ValidationError as error:
            notice = ("failed", str(not_valid(error, [*form])))
        except (ClientError, BadSetting, KafkaError) as error:
            notice = ("failed", reason_of(error))
        request[SESSION].notices.append(notice)
        raise web.HTTPSeeOther(local(form.get("back", "")))


# --- forms whose fields are the parameters of an operation ----------------------------------------


def _form(path: str, operation: str, done: str) -> None:
    """Let a form perform an operation. `done`: what was done; it may name parameters."""

    async def act(operator: Operator, form: Form) -> str:
        given = {name: field(form, name) for name in OPERATIONS[operation].parameters.model_fields}
        await operator.perform(operation, given)
        return done.format(**given)

    _action(path, act)


_FORMS = (
    ("/queue/purge", "purge", "All ready messages of {queue} were evicted."),
    ("/queue/delete", "delete_queue", "{queue} was deleted."),
    ("/message/remove", "remove", "Message {message} was removed from {queue}."),
    ("/message/move", "move", "Message {message} was moved from {queue} to {to}."),
    ("/message/deliver-now", "deliver_now", "Message {message} is due now."),
    ("/message/cancel", "cancel_scheduled", "Message {message} was cancelled."),
    (
        "/consumer/close", "close_consumer",
        "Consumer {consumer} was closed; what it held is back in {queue}.",
    ),
    ("/xid/commit", "commit_xid", "Transaction {xid} was committed."),
    ("/xid/rollback", "rollback_xid", "Transaction {xid} was rolled back."),
    ("/partition/retry", "retry_partition", "Partition {partition} is running again."),
    (
        "/partition/skip", "skip_record",
        "{at} was moved to the dead topic; partition {partition} is running again.",
    ),
)  # fmt: skip
for _each in _FORMS:
    _form(*_each)


# --- others ---------------------------------------------------------------------------------------

_PAUSED = {"dispatch": "it hands out no messages", "pulling": "it reads no new messages"}
_RESUMED = {"dispatch": "it hands out messages", "pulling": "it reads new messages"}


def _switch(operation: str, effects: Mapping[str, str]) -> Act:
    async def act(operator: Operator, form: Form) -> str:
        queue, what = field(form, "queue"), field(form, "what")
        await operator.perform(operation, {"queue": queue, "what": what})
        return f"{queue} is {operation}d: {effects[what]}."

    return act


async def _move_oldest(operator: Operator, form: Form) -> str:
    queue, to, most = (field(form, name) for name in ("queue", "to", "most"))
    done = await operator.perform("move_oldest", {"queue": queue, "to": to, "most": most})
    what = "1 message" if done["moved"] == 1 else f"{done['moved']:,} messages"
    return f"Moved {what} from {queue} to {to}."


async def _configure(operator: Operator, form: Form) -> str:
    """Change the settings whose values in the form differ from those that it was shown with."""
    queue = field(form, "queue")
    found = await operator.admin.queue(queue)
    known = {written_name(name): value for name, value in found.settings.items()}
    changed = {
        name: value
        for name, present in known.items()
        if (value := _wanted(form, name, present)) != present
    }
    if not changed:
        return f"No setting of {queue} was changed."
    await operator.perform("configure", {"queue": queue, "settings": changed})
    listed = ", ".join(f"{name} = {_shown(value)}" for name, value in changed.items())
    return f"{queue}: set {listed}."


def _wanted(form: Form, name: str, present: object) -> object:
    """What a setting is to be; `present`: as it is in effect.

    Raises:
        BadSetting: it is not valid, or was changed since the form was shown.
    """
    text, shown = form.get(f"set-{name}"), form.get(f"was-{name}")
    if text is None or (shown is not None and _on_one_line(text) == _on_one_line(shown)):
        return present
    value = _typed(name, text.strip(), present)
    if value == present or shown is None:
        return value
    now = _on_one_line(present) if isinstance(present, str) else present
    if _typed(name, _on_one_line(shown), present) != now:
        changed = f"it was changed to {_shown(present)} meanwhile: look at the page again"
        raise BadSetting(name, text, changed)
    return value


def _on_one_line(text: str) -> str:
    """A text as a field of the form has it, which cannot have line breaks."""
    return text.replace("\r\n", " ").replace("\n", " ").strip()


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


_action("/queue/pause", _switch("pause", _PAUSED))
_action("/queue/resume", _switch("resume", _RESUMED))
_action("/queue/move", _move_oldest)
_action("/queue/set", _configure)
