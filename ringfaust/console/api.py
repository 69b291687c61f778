"""The HTTP API: each operation of `Admin` as a route, with the console's roles."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError

from ringfaust.config.hosts import REFUSAL, is_our_host
from ringfaust.config.load import checked_queues
from ringfaust.console import access
from ringfaust.console.access import Role, TooManyWrong
from ringfaust.console.context import CONSOLE, Console
from ringfaust.console.openapi import API_PREFIX, openapi
from ringfaust.console.operations import OPERATIONS, Operation
from ringfaust.console.problems import Problem, not_valid, problem_of
from ringfaust.visible import visible_json

log = logging.getLogger(__name__)

MOST_BYTES = 300_000
"""Largest body of a request: that of an `apply`, whose document has up to 256 KiB."""
_BY = "http-api"
"""Who asks, for the log, if a token was used, which knows no names."""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    role: Role
    name: str


_CALLER = web.RequestKey("caller", Caller)


def api_app(console: Console) -> web.Application:
    """The API, to be mounted at `API_PREFIX`."""
    app = web.Application(middlewares=[_guard])
    app[CONSOLE] = console
    app.on_response_prepare.append(_add_headers)
    app.router.add_get("/openapi.json", _document)
    for operation in OPERATIONS.values():
        method = "GET" if operation.is_read else "POST"
        app.router.add_route(method, operation.path, _handler(operation))
    return app


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(access.HEADERS)


async def _document(_: web.Request) -> web.Response:
    return _json(openapi())


def _handler(operation: Operation) -> _Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        caller = request[_CALLER]
        if not operation.is_read and caller.role != "change":
            raise Problem(403, "not_allowed", "You may read, but not change anything.")
        given = await _given(request, operation)
        try:
            backend = request.config_dict[CONSOLE].backend
            if (document := getattr(given, "document", None)) is not None:
                checked_queues(backend.worker, document)
            admin = await backend.admin()
            found = await operation.call(admin, given, caller.name)
        except Exception as error:
            problem = problem_of(error, given.model_dump())
            if problem.status == 500:
                log.exception("http api: %s failed", operation.name)
            raise problem from error
        if operation.answer is None:
            return web.Response(status=204)
        if found is None:
            raise Problem(404, "not_found", "There is none.")
        return _json(found)

    return handle


def _json(value: Any) -> web.Response:
    return web.Response(text=visible_json(value) + "\n", content_type="application/json")


async def _given(request: web.Request, operation: Operation) -> BaseModel:
    """The parameters: of the address, or of the body."""
    model = operation.parameters
    try:
        if operation.is_read:
            return model.model_validate_strings(_query(request))
        return model.model_validate_json(await _body(request), strict=True)
    except ValidationError as error:
        raise not_valid(error, list(model.model_fields)) from None


def _query(request: web.Request) -> dict[str, str]:
    given = dict(request.query)
    if len(given) != len(request.query):
        raise Problem(400, "not_valid", "A parameter is given more than once: give it once.")
    return given


async def _body(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise Problem(415, "not_valid", "The body must be JSON: Content-Type: application/json.")
    raw = bytearray()
    async for chunk in request.content.iter_chunked(65_536):
        raw += chunk
        if len(raw) > MOST_BYTES:
            raise Problem(413, "not_valid", f"The body has more than {MOST_BYTES:,} bytes.")
    return bytes(raw)


# --- permission -----------------------------------------------------------------------------------


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    console = request.config_dict[CONSOLE]
    try:
        if not is_our_host(request.host, console.options.bind, console.options.hosts):
            raise Problem(421, "not_valid", REFUSAL.strip())
        request[_CALLER] = _caller(request, console)
        return await handler(request)
    except Problem as problem:
        return problem.response()
    except web.HTTPException as error:
        text = f"There is no {request.method} {request.path[:200]}: see {API_PREFIX}/openapi.json."
        kept = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
        return Problem(error.status, "not_valid", text, headers=kept).response()


def _caller(request: web.Request, console: Console) -> Caller:
    """Who asks: by a token, by the session of a browser, or anybody on this machine."""
    if "Authorization" in request.headers:
        return Caller(_role_of_token(request, console), _BY)
    if (session := console.sessions.of(request)) is not None:
        is_read = request.method in ("GET", "HEAD")
        if not is_read and not access.is_same_origin(request, console.options.public_url):
            raise Problem(403, "not_allowed", access.FOREIGN)
        return Caller(session.role, session.user or "console")
    if console.options.needs_login or request.method not in ("GET", "HEAD"):
        raise _unknown("Name a token: Authorization: Bearer TOKEN.")
    return Caller("read", "")


def _role_of_token(request: web.Request, console: Console) -> Role:
    kind, _, token = request.headers["Authorization"].partition(" ")
    if kind.lower() != "bearer":
        raise _unknown("Authorization must be: Bearer TOKEN.")
    try:
        address = access.address_of(request, console.options.proxies)
        role = console.tokens.role_of(token.strip(), address)
    except TooManyWrong as error:
        raise Problem(429, "not_allowed", str(error), headers={"Retry-After": "60"}) from None
    if role is None:
        raise _unknown("That is not a token of this console.")
    return role


def _unknown(text: str) -> Problem:
    return Problem(401, "not_allowed", text, headers={"WWW-Authenticate": "Bearer"})
