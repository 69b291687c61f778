"""Dead and evicted messages: search them, and send a selection to the queues they were in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from aiohttp import web
from aiokafka.errors import KafkaError
from multidict import MultiDict, MultiMapping

from ringfaust.console.backend import reason_of
from ringfaust.console.context import SESSION, asked, backend_of, one_of, page, required, searched
from ringfaust.console.redriving import (
    MOST_REDRIVEN,
    AllBefore,
    GoneMessage,
    Kind,
    Position,
    Preview,
    Wanted,
)
from ringfaust.console.rendering import url
from ringfaust.errors import RingfaustError
from ringfaust.protocol.dead import DeadFilter
from ringfaust.redrive.reader import Cursor

ROUTES = web.RouteTableDef()
PAGE_GONE = 50
"""Messages of a page, and the most that are selected at once."""
_WHOLE_BYTES = 100_000
"""How much of its body the page of a message shows."""
_AGES = 200
_DIGITS = 15
"""Of the largest time, offset or partition that an address may have."""
_HOURS = ("24", "1", "168", "all")


@ROUTES.get("/dead")
async def dead(request: web.Request) -> web.Response:
    """The latest dead messages."""
    return await _gone(request, "dead")


@ROUTES.get("/evicted")
async def evicted(request: web.Request) -> web.Response:
    """The latest evicted messages."""
    return await _gone(request, "evicted")


async def _gone(request: web.Request, kind: Kind) -> web.Response:
    given = {name: asked(request, name).strip() for name in _FILTERS}
    hours, before = one_of(request, "hours", *_HOURS), asked(request, "before")
    since_ms = 0 if hours == "all" else _ms_ago(int(hours))
    place = _cursor(before) if before else None
    redriver = backend_of(request).redriver
    found = await searched(redriver.latest(kind, PAGE_GONE, _filter(given, since_ms), place))
    found = await backend_of(request).schemas.decode_values(found)
    filters: dict[str, Any] = {"kind": kind, **given}
    return page(
        request, "gone.jinja", **filters, found=found, hours=hours, all_hours=_HOURS,
        before=before, older=_text(found[-1].cursor) if len(found) == PAGE_GONE else "",
        all_that_match=filters | {"since": since_ms, "all": _after(found[0])} if found else {},
    )  # fmt: skip


def _text(cursor: Cursor) -> str:
    return ".".join(map(str, cursor))


def _after(newest: GoneMessage) -> str:
    """The place just after a message."""
    cursor = newest.cursor
    return _text(cursor._replace(partition=cursor.partition + 1))


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ValueError
    return int(text)


def _cursor(text: str) -> Cursor:
    try:
        time_ms, offset, partition = map(_whole, text.split("."))
    except ValueError:
        example = "a time, an offset and a partition are needed, such as 1764259200000.17.0"
        raise web.HTTPBadRequest(text=f"{text[:80]!r}: {example}.") from None
    return Cursor(time_ms, offset, partition)


def _ms_ago(hours: int) -> int:
    return int((time.time() - hours * 3_600) * 1000)


@ROUTES.get("/message/gone")
async def gone_message(request: web.Request) -> web.Response:
    """What is left of a message that is dead or evicted: body, headers, and a redrive."""
    queue, name = asked(request, "queue"), required(request, "id")
    redriver = backend_of(request).redriver
    found: dict[str, GoneMessage] = {}
    if record := asked(request, "record"):
        kind: Kind = one_of(request, "kind", "dead", "evicted")  # type: ignore[assignment]
        (position,) = _positions([record])
        if (one := await redriver.at(kind, position, _WHOLE_BYTES)) is not None:
            found[kind] = one
    else:
        kinds: tuple[Kind, Kind] = ("dead", "evicted")
        for kind in kinds:
            wanted = DeadFilter(ids=[name], queue=queue)
            for each in await searched(redriver.latest(kind, 1, wanted)):
                whole = await redriver.at(kind, each.position, _WHOLE_BYTES)
                found[kind] = whole or each
    values = await backend_of(request).schemas.decode_values([*found.values()])
    return page(
        request, "gone_message.jinja", name=name, queue=queue,
        found=dict(zip(found, values, strict=True)),
    )  # fmt: skip


@ROUTES.get("/evicted/ages")
async def ages(request: web.Request) -> web.Response:
    """How old messages are when they are evicted: the latest 200 of the last day."""
    wanted = DeadFilter(since_ms=_ms_ago(24))
    found = await searched(backend_of(request).redriver.latest("evicted", _AGES, wanted))
    each = sorted(message.age_ms for message in found)
    middle = int(median(each)) if each else 0
    return page(request, "ages.jinja", ages=each, median=middle)


@ROUTES.get("/redrive")
async def preview(request: web.Request) -> web.Response:
    """What a redrive of the selected messages would do."""
    kind: Kind = one_of(request, "kind", "dead", "evicted")  # type: ignore[assignment]
    wanted = _wanted(request.query)
    backend = backend_of(request)

    async def plan() -> Preview:
        return await backend.redriver.preview(kind, wanted, await backend.admin())

    planned = await searched(plan())
    fields = [(name, value) for name, value in request.query.items() if name in _FIELDS]
    return page(
        request, "redrive.jinja", kind=kind, plan=planned, fields=fields,
        shown=planned.sent[:PAGE_GONE], most=MOST_REDRIVEN,
    )  # fmt: skip


@ROUTES.post("/redrive")
async def redrive(request: web.Request) -> web.StreamResponse:
    """Send the selected messages to the queues they were in."""
    form = await request.post()
    kind: Kind = "evicted" if form.get("kind") == "evicted" else "dead"
    wanted = _wanted(MultiDict((name, str(value)) for name, value in form.items()))
    backend = backend_of(request)
    try:
        sent = await backend.redriver.send(kind, wanted, await backend.admin())
        what = "1 message was" if sent == 1 else f"{sent:,} messages were"
        notice = ("done", f"{what} sent to the queue that it was in.")
    except (RingfaustError, KafkaError) as error:
        notice = ("failed", reason_of(error))
    request[SESSION].notices.append(notice)
    raise web.HTTPSeeOther(url(f"/{kind}"))


_FILTERS = ("queue", "reason", "selector", "id")
_FIELDS = ("record", *_FILTERS, "since", "all")
"""What says which messages are to be redriven."""


def _wanted(fields: MultiMapping[str]) -> Wanted:
    """Which messages are meant: some records, or all that match and are not newer than `all`.

    Raises:
        HTTPBadRequest: a field is something else.
    """
    if not (until := fields.get("all", "")):
        return _positions(fields.getall("record", []))
    since = fields.get("since", "0")
    try:
        since_ms = _whole(since)
    except ValueError:
        text = f"since = {since[:80]!r}: ms since 1970 are needed."
        raise web.HTTPBadRequest(text=text) from None
    given = {name: fields.get(name, "").strip() for name in _FILTERS}
    return AllBefore(_filter(given, since_ms), _cursor(until))


def _filter(given: Mapping[str, str], since_ms: int) -> DeadFilter:
    return DeadFilter(
        ids=[given["id"]] if given["id"] else [], queue=given["queue"], reason=given["reason"],
        selector=given["selector"], since_ms=since_ms,
    )  # fmt: skip


def _positions(records: list[str]) -> list[Position]:
    """Read `partition:offset` of each selected record.

    Raises:
        HTTPBadRequest: none is selected, too many are, or one is something else.
    """
    if not 0 < len(records) <= PAGE_GONE:
        raise web.HTTPBadRequest(text=f"Select 1 to {PAGE_GONE} messages.")
    try:
        parts = [each.split(":") for each in records]
        return [(_whole(partition), _whole(offset)) for partition, offset in parts]
    except ValueError:
        text = "record: partition:offset is needed, such as 0:17."
        raise web.HTTPBadRequest(text=text) from None
