"""The overview, transactions, the configuration, and logging in."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ringfaust.client.trace import pending_in
from ringfaust.console.access import COOKIE, SESSION_S, TooManyWrong, address_of
from ringfaust.console.board import FILTERS, SORTS, Look
from ringfaust.console.context import (
    CONSOLE,
    SESSION,
    asked,
    backend_of,
    local,
    one_of,
    page,
    required,
    searched,
    set_cookie,
    whole,
)
from ringfaust.console.rendering import PREFIX
from ringfaust.times import wall_ms

ROUTES = web.RouteTableDef()
_DAY_MS = 86_400_000
_SKEW_MS = 300_000
"""How far the clocks of workers may differ: a record has its producer's time."""
_FIRST_LOOK_S = 5.0
"""How long the first page waits until the status topic has been read."""


async def look_of(request: web.Request) -> Look | None:
    """The latest look; None while the status topic cannot be read, or is still being read."""
    backend = backend_of(request)
    board = backend.board
    if backend.trouble:
        return board.look
    try:
        async with asyncio.timeout(_FIRST_LOOK_S):
            return await board.first_look()
    except TimeoutError:
        return None


@ROUTES.get("/")
async def overview(request: web.Request) -> web.Response:
    """The application: totals, workers, and a page of queues."""
    look = await look_of(request)
    return page(
        request, "overview.jinja", look=look, past=backend_of(request).board.past,
        **await _queues(request, look),
    )  # fmt: skip


@ROUTES.get("/overview/state")
async def overview_state(request: web.Request) -> web.Response:
    """The part of the overview above the queues."""
    return page(request, "overview_state.jinja", look=await look_of(request))


@ROUTES.get("/overview/workers")
async def overview_workers(request: web.Request) -> web.Response:
    """The part of the overview below the queues."""
    return page(request, "overview_workers.jinja", look=await look_of(request))


@ROUTES.get("/queues")
async def queues(request: web.Request) -> web.Response:
    """A page of queues: only the table if htmx asks for it."""
    look = await look_of(request)
    template = "queues.jinja" if "HX-Request" in request.headers else "overview.jinja"
    past = backend_of(request).board.past
    return page(request, template, look=look, past=past, **await _queues(request, look))


async def _queues(request: web.Request, look: Look | None) -> dict[str, Any]:
    search = asked(request, "search").strip()
    show = one_of(request, "show", *FILTERS)
    sort = one_of(request, "sort", *SORTS)
    order = one_of(request, "order", "up", "down")
    found = None
    if look is not None:
        found = await asyncio.to_thread(
            look.page, search=search, show=show, sort=sort, is_descending=order == "down",
            number=whole(request, "page", 1),
        )  # fmt: skip
    return {"found": found, "search": search, "show": show, "sort": sort, "order": order}


@ROUTES.get("/configuration")
async def configuration(request: web.Request) -> web.Response:
    """Which revision the partitions use, who has applied it, and those before (R128)."""
    admin = await backend_of(request).admin()
    used, revisions = await asyncio.gather(admin.configuration(), admin.history())
    newest = max(used.values(), key=lambda each: each.revision, default=None)
    behind = [
        (number, each.revision)
        for number, each in used.items()
        if newest and each.revision != newest.revision
    ]
    return page(request, "configuration.jinja", newest=newest, behind=behind, revisions=revisions)


@ROUTES.get("/transactions")
async def transactions(request: web.Request) -> web.Response:
    """The undecided distributed transactions."""
    admin = await backend_of(request).admin()
    return page(request, "transactions.jinja", xids=await admin.xids())


@ROUTES.get("/transactions/contents")
async def transaction_contents(request: web.Request) -> web.Response:
    """The messages that a transaction sends or acks, by the events."""
    xid, began_ms = required(request, "xid"), whole(request, "began", 0)
    since_ms = max((began_ms or wall_ms() - _DAY_MS) - _SKEW_MS, 0)
    found = await searched(pending_in(xid, since_ms=since_ms, **backend_of(request).options))
    events = [each for each in found if each["time_ms"] >= began_ms]
    return page(request, "transaction_contents.jinja", events=events)


# --- permission -----------------------------------------------------------------------------------


@ROUTES.get("/login")
async def login_page(request: web.Request) -> web.Response:
    """The form for the token."""
    return page(request, "login.jinja", back=local(asked(request, "back")), wrong="")


@ROUTES.post("/login")
async def login(request: web.Request) -> web.StreamResponse:
    """Give a browser a session."""
    form = await request.post()
    back = local(str(form.get("back", "")))
    console = request.config_dict[CONSOLE]
    address = address_of(request, console.options.proxies)
    role, wrong = None, "That is not a token of this console."
    try:
        role = console.tokens.role_of(str(form.get("token", "")), address)
    except TooManyWrong as error:
        wrong = str(error)
    if role is None:
        return page(request, "login.jinja", status=403, back=back, wrong=wrong)
    session = console.sessions.open(role)
    response = web.HTTPSeeOther(back)
    set_cookie(request, response, COOKIE, session.id, SESSION_S)
    raise response


@ROUTES.post("/logout")
async def logout(request: web.Request) -> web.StreamResponse:
    """End the session."""
    session = request[SESSION]
    request.config_dict[CONSOLE].sessions.log_out(session)
    response = web.HTTPSeeOther(f"{PREFIX}/")
    response.del_cookie(COOKIE, path=PREFIX)
    raise response
