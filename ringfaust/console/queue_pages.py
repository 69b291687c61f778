"""One queue: its state, chart, messages, consumers and settings."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from aiohttp import web

from ringfaust.client.inspected import QueueDetails
from ringfaust.console.context import asked, backend_of, one_of, page, required
from ringfaust.core.model import COUNTS, HELD_STATES, Counts, HeldState
from ringfaust.core.settings import QueueSpec, written_name

ROUTES = web.RouteTableDef()
PAGE_MESSAGES = 25
"""Messages of one page."""
_BODY_BYTES = 2_000
"""How much of each body a page of messages fetches."""
_CONSUMERS = 200
_DEFAULTS = asdict(QueueSpec())


@ROUTES.get("/queue")
async def queue(request: web.Request) -> web.Response:
    """The page of a queue, with the first page of its messages."""
    return page(request, "queue.jinja", **(await _state(request) | await _messages(request)))


@ROUTES.get("/queue/state")
async def queue_state(request: web.Request) -> web.Response:
    """The part of the page that changes by itself."""
    return page(request, "queue_state.jinja", **await _state(request))


@ROUTES.get("/queue/messages")
async def messages(request: web.Request) -> web.Response:
    """A page of messages."""
    return page(request, "messages.jinja", **await _messages(request))


async def _state(request: web.Request) -> dict[str, Any]:
    name = required(request, "name")
    backend = backend_of(request)
    details = await (await backend.admin()).queue(name)
    return {
        "name": name,
        "details": details,
        "counts": _counts(details),
        "row": backend.board.source.queue(name),
        "past": backend.board.past_of(name),
        "settings": _settings(details),
        "consumers": details.consumers[:_CONSUMERS],
        "now_ms": int(time.time() * 1000),
    }


def _counts(details: QueueDetails) -> Counts:
    return Counts(*(details.counts[name] for name in COUNTS))


def _settings(details: QueueDetails) -> dict[str, list[tuple[str, object, object]]]:
    """Name, value and default of each setting, those that differ from the defaults first."""
    rows = [(written_name(n), value, _DEFAULTS.get(n)) for n, value in details.settings.items()]
    return {
        "changed": [row for row in rows if row[1] != row[2]],
        "default": [row for row in rows if row[1] == row[2]],
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
        "now_ms": int(time.time() * 1000),
    }  # fmt: skip
