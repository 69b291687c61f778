"""One message: what it is, and everything that happened to it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from aiohttp import web

from ringfaust.client.errors import Refused
from ringfaust.client.inspected import MessageDetails
from ringfaust.client.lifecycles import Lifecycle
from ringfaust.client.sentences import answer, sentence
from ringfaust.client.trace import trace
from ringfaust.console.context import asked, backend_of, one_of, page, required, searched
from ringfaust.times import wall_ms

ROUTES = web.RouteTableDef()
_BODY_BYTES = 100_000
_HOURS = ("1", "24", "168")
_MOST_LIFECYCLES = 50
_MOST_EVENTS = 500
"""Most events of one lifecycle that a page shows."""


@dataclass(frozen=True, slots=True)
class Story:
    """A lifecycle in sentences."""

    lifecycle: Lifecycle
    answer: str
    events: tuple[tuple[int, str, str], ...]
    """Time in ms since 1970, kind and sentence."""
    hidden: int
    """How many events are left out."""


@ROUTES.get("/message")
async def message(request: web.Request) -> web.Response:
    """The page of a message, whether it is still in its queue or not."""
    queue, name = asked(request, "queue"), asked(request, "id")
    found: MessageDetails | None = None
    gone = ""
    if queue and name:
        admin = await backend_of(request).admin()
        try:
            held = await admin.message(queue, name, body_bytes=_BODY_BYTES)
            if held is not None:
                (found,) = await backend_of(request).schemas.decode_values([held])
        except Refused as refused:
            gone = refused.text
    return page(
        request, "message.jinja", queue=queue, name=name, found=found, gone=gone,
        kind=one_of(request, "kind", "dead", "evicted"), record=asked(request, "record"),
        hours=one_of(request, "hours", *_HOURS), now_ms=wall_ms(),
    )  # fmt: skip


@ROUTES.get("/message/trace")
async def message_trace(request: web.Request) -> web.Response:
    """What happened to a message, in sentences."""
    name, hours = required(request, "id"), one_of(request, "hours", *_HOURS)
    since_ms = int((time.time() - int(hours) * 3_600) * 1000)
    found = await searched(trace(name, since_ms=since_ms, **backend_of(request).options))
    stories = [_story(each) for each in found.lifecycles[:_MOST_LIFECYCLES]]
    return page(
        request, "trace.jinja", name=name, hours=hours, all_hours=_HOURS, stories=stories,
        found=found, hidden=len(found.lifecycles) - len(stories),
    )  # fmt: skip


def _story(lifecycle: Lifecycle) -> Story:
    shown = lifecycle.events[:_MOST_EVENTS]
    return Story(
        lifecycle,
        answer(lifecycle),
        tuple((each["time_ms"], each["event"], sentence(each)) for each in shown),
        len(lifecycle.events) - len(shown),
    )
