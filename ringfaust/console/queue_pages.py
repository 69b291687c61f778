"""One queue: its state, chart, messages, consumers and settings."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import Any

from aiohttp import web
from aiokafka.errors import KafkaError

from ringfaust.client.errors import NoAnswer
from ringfaust.client.inspected import QueueDetails
from ringfaust.console.board import Silence
from ringfaust.console.context import asked, backend_of, one_of, page, required
from ringfaust.core.model import COUNTS, HELD_STATES, Counts, HeldState
from ringfaust.core.settings import QueueSpec, allowed_values, written_name
from ringfaust.times import wall_ms

ROUTES = web.RouteTableDef()
PAGE_MESSAGES = 25
"""Messages of one page."""
_BODY_BYTES = 2_000
"""How much of each body a page of messages fetches."""
_CONSUMERS = 200
_ANSWER_S = 4.0
"""How long the page of a queue waits for its worker before it shows the status of before."""
_DEFAULTS = asdict(QueueSpec())


@ROUTES.get("/queue")
async def queue(request: web.Request) -> web.Response:
    """The page of a queue, with the first page of its messages."""
    state = await _state(request)
    if state["details"] is None:
        return page(request, "queue.jinja", **state)
    return page(request, "queue.jinja", **(state | await _messages(request)))


@ROUTES.get("/queue/state")
async def queue_state(request: web.Request) -> web.Response:
    """The part of the page that changes by itself."""
    state = await _state(request)
    template = "queue_old.jinja" if state["details"] is None else "queue_state.jinja"
    return page(request, template, **state)


@ROUTES.get("/queue/messages")
async def messages(request: web.Request) -> web.Response:
    """A page of messages."""
    return page(request, "messages.jinja", **await _messages(request))


async def _state(request: web.Request) -> dict[str, Any]:
    name = required(request, "name")
    board = backend_of(request).board
    row, look = board.source.queue(name), board.look
    silence = look.silence_of(row.partition) if row is not None and look is not None else None
    details = None
    if silence is None:
        try:
            async with asyncio.timeout(_ANSWER_S if row is not None else None):
                details = await (await backend_of(request).admin()).queue(name)
        except (TimeoutError, NoAnswer, KafkaError):
            if row is None:
                raise
            silence = Silence(row.time_ms, f"its worker has not answered for {_ANSWER_S:.0f} s")
    state: dict[str, Any] = {
        "name": name, "details": details, "row": row, "silence": silence,
        "past": board.past_of(name), "now_ms": wall_ms(),
    }  # fmt: skip
    if details is None:
        return state
    return state | {
        "counts": _counts(details),
        "settings": _settings(details),
        "consumers": details.consumers[:_CONSUMERS],
    }


def _counts(details: QueueDetails) -> Counts:
    return Counts(*(details.counts[name] for name in COUNTS))


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a queue, as the form shows it."""

    name: str
    value: object
    default: object
    allowed: str
    """Which values it may have, in words; empty: that is not known."""

    @property
    def choices(self) -> list[str]:
        """The values that it may have, if they are a few words; otherwise empty."""
        _, one_of, words = self.allowed.partition("one of ")
        return words.split(", ") if one_of else []


def _settings(details: QueueDetails) -> dict[str, list[Setting]]:
    """The settings that differ from the defaults, and the others."""
    rows = [
        Setting(
            written_name(n), value, _DEFAULTS.get(n), allowed_values(n) if n in _DEFAULTS else ""
        )
        for n, value in details.settings.items()
    ]
    return {
        "changed": [row for row in rows if row.value != row.default],
        "default": [row for row in rows if row.value == row.default],
    }


async def _messages(request: web.Request) -> dict[str, Any]:
    name = required(request, "name")
    state: HeldState = one_of(request, "state", *HELD_STATES)  # type: ignore[assignment]
    selector = asked(request, "selector").strip()
    after = asked(request, "after")
    admin = await backend_of(request).admin()
    found = await admin.browse_page(
        name, state=state, selector=selector, after=after, limit=PAGE_MESSAGES,
        body_bytes=_BODY_BYTES,
    )  # fmt: skip
    messages = await backend_of(request).schemas.decode_values(found.messages)
    found = replace(found, messages=tuple(messages))
    return {
        "name": name, "state": state, "selector": selector, "after": after, "found": found,
        "now_ms": wall_ms(),
    }  # fmt: skip
