"""Dead and evicted messages: search them, and send a selection to the queues they were in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from statistics import median

from aiohttp import web
from aiokafka.errors import KafkaError

from ringfaust.console.backend import reason_of
from ringfaust.console.context import SESSION, asked, backend_of, one_of, page
from ringfaust.console.redriving import GoneMessage, Kind, Position
from ringfaust.console.rendering import url
from ringfaust.errors import RingfaustError

ROUTES = web.RouteTableDef()
PAGE_GONE = 50
"""Messages of a page, and the most that are redriven at once."""
_AGES = 200
_SEARCH_S = 20.0
_HOURS = ("24", "1", "168", "all")
_searching = asyncio.Semaphore(2)
"""Searches that run at a time: each reads as fast as it can."""


@ROUTES.get("/dead")
async def dead(request: web.Request) -> web.Response:
    """The latest dead messages."""
    return await _gone(request, "dead")


@ROUTES.get("/evicted")
async def evicted(request: web.Request) -> web.Response:
    """The latest evicted messages."""
    return await _gone(request, "evicted")


async def _gone(request: web.Request, kind: Kind) -> web.Response:
    queue, reason, selector, message = (
        asked(request, name).strip() for name in ("queue", "reason", "selector", "id")
    )
    hours = one_of(request, "hours", *_HOURS)
    found = await _search(
        backend_of(request).redriver.latest(
            kind, PAGE_GONE, ids=[message] if message else [], queue=queue, reason=reason,
            selector=selector, since_ms=0 if hours == "all" else _ms_ago(int(hours)),
        )
    )  # fmt: skip
    found = await backend_of(request).schemas.decode_values(found)
    return page(
        request, "gone.jinja", kind=kind, found=found, hours=hours, all_hours=_HOURS,
        most=PAGE_GONE, queue=queue, reason=reason, selector=selector, id=message,
    )  # fmt: skip


def _ms_ago(hours: int) -> int:
    return int((time.time() - hours * 3_600) * 1000)


async def _search(latest: Awaitable[list[GoneMessage]]) -> list[GoneMessage]:
    try:
        async with asyncio.timeout(_SEARCH_S), _searching:
            return await latest
    except TimeoutError:
        text = f"The search took more than {_SEARCH_S:.0f} s: search a shorter time."
        raise web.HTTPGatewayTimeout(text=text) from None


@ROUTES.get("/evicted/ages")
async def ages(request: web.Request) -> web.Response:
    """How old messages are when they are evicted: the latest 200 of the last day."""
    latest = backend_of(request).redriver.latest
    found = await _search(latest("evicted", _AGES, since_ms=_ms_ago(24)))
    each = sorted(message.age_ms for message in found)
    middle = int(median(each)) if each else 0
    return page(request, "ages.jinja", ages=each, median=middle)


@ROUTES.get("/redrive")
async def preview(request: web.Request) -> web.Response:
    """What a redrive of the selected messages would do."""
    kind: Kind = one_of(request, "kind", "dead", "evicted")  # type: ignore[assignment]
    records = request.query.getall("record", [])
    backend = backend_of(request)
    planned = await backend.redriver.preview(kind, _positions(records), await backend.admin())
    return page(request, "redrive.jinja", kind=kind, plan=planned, records=records)


@ROUTES.post("/redrive")
async def redrive(request: web.Request) -> web.StreamResponse:
    """Send the selected messages to the queues they were in."""
    form = await request.post()
    kind: Kind = "evicted" if form.get("kind") == "evicted" else "dead"
    positions = _positions([str(each) for each in form.getall("record", [])])
    backend = backend_of(request)
    try:
        sent = await backend.redriver.send(kind, positions, await backend.admin())
        what = "1 message was" if sent == 1 else f"{sent:,} messages were"
        notice = ("done", f"{what} sent to the queue that it was in.")
    except (RingfaustError, KafkaError) as error:
        notice = ("failed", reason_of(error))
    request[SESSION].notices.append(notice)
    raise web.HTTPSeeOther(url(f"/{kind}"))


def _positions(records: list[str]) -> list[Position]:
    """Read `partition:offset` of each selected record.

    Raises:
        HTTPBadRequest: none is selected, too many are, or one is something else.
    """
    if not 0 < len(records) <= PAGE_GONE:
        raise web.HTTPBadRequest(text=f"Select 1 to {PAGE_GONE} messages.")
    try:
        parts = [each.split(":") for each in records]
        return [(int(partition), int(offset)) for partition, offset in parts]
    except ValueError:
        text = "record: partition:offset is needed, such as 0:17."
        raise web.HTTPBadRequest(text=text) from None
