"""The console as an aiohttp application: its routes, and the checks that every request passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.util import find_spec
from urllib.parse import quote

from aiohttp import web
from aiokafka.errors import KafkaError

from ringfaust.client.errors import BadArgument, NoAnswer, Refused
from ringfaust.config.hosts import REFUSAL, is_our_host
from ringfaust.console import (
    access,
    actions,
    gone_pages,
    live,
    message_pages,
    pages,
    queue_pages,
    sending,
)
from ringfaust.console.api import api_app
from ringfaust.console.backend import Backend, reason_of
from ringfaust.console.context import (
    CONSOLE,
    FORM_TOKEN,
    SESSION,
    Console,
    ConsoleOptions,
    is_fragment,
    page,
)
from ringfaust.console.openapi import API_PREFIX
from ringfaust.console.rendering import ASSETS, ASSETS_PATH, PREFIX
from ringfaust.errors import BadSelector, BadSetting, MissingExtra, RingfaustError

_MOST_BYTES = 65_536
"""Largest form."""
_PUBLIC = ("/login", "/assets/", "/oidc")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def attach_console(app: web.Application, backend: Backend, options: ConsoleOptions) -> None:
    """Mount the console in an application, under /console/."""

    async def to_console(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{PREFIX}/")

    app.router.add_get("/", to_console)
    app.router.add_get(PREFIX, to_console)
    pages = console_app(backend, options)
    app.add_subapp(API_PREFIX, api_app(pages[CONSOLE]))
    app.add_subapp(PREFIX, pages)


def console_app(backend: Backend, options: ConsoleOptions) -> web.Application:
    """The console.

    Raises:
        BadToken: the tokens of both roles are the same.
        ConfigError: the provider's secret cannot be read.
        MissingExtra: there is a provider, and authlib is not installed.
    """
    app = web.Application(middlewares=[_guard])
    app[CONSOLE] = Console(
        backend=backend,
        sessions=access.Sessions(allows_changes=options.allows_changes),
        tokens=access.Tokens(options.token, options.read_token),
        options=options,
    )
    app.on_response_prepare.append(_add_headers)
    app.cleanup_ctx.append(_lifetime)
    app.router.add_static(ASSETS_PATH, ASSETS)
    if options.oidc is not None:
        if missing := [name for name in ("authlib", "httpx2") if not find_spec(name)]:
            raise MissingExtra("web.oidc", missing, "oidc")
        from ringfaust.console import oidc  # noqa: PLC0415 - an extra

        app[oidc.PROVIDER] = oidc.Provider(options.oidc, options.public_url)
        app.add_routes(oidc.ROUTES)
    for routes in (pages, queue_pages, message_pages, gone_pages, actions, sending, live):
        app.add_routes(routes.ROUTES)
    return app


async def _lifetime(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[CONSOLE].backend.close()


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(access.HEADERS)
    if response.status == 200 and ASSETS_PATH in request.path:
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    console = request.config_dict[CONSOLE]
    if not is_our_host(request.host, console.options.bind, console.options.hosts):
        return web.Response(status=421, text=REFUSAL)
    request = request.clone(client_max_size=_MOST_BYTES)
    if (session := console.sessions.of(request)) is not None:
        request[SESSION] = session
    path = request.path.removeprefix(PREFIX)
    is_public = path.startswith(_PUBLIC)
    if console.options.needs_login and session is None and not is_public:
        return _log_in_first(request)
    try:
        if request.method not in ("GET", "HEAD"):
            await _check_change(request, path)
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _failure(request, error.status, error.text or error.reason)
    except Refused as error:
        return _failure(request, 404 if error.reason == "unknown_queue" else 400, str(error))
    except NoAnswer as error:
        return _failure(request, 504, str(error))
    except (BadSelector, BadSetting, BadArgument) as error:
        return _failure(request, 400, str(error))
    except (TimeoutError, RingfaustError, KafkaError, OSError) as error:
        return _failure(request, 502, reason_of(error))


async def _check_change(request: web.Request, path: str) -> None:
    try:
        form = await request.post()
    except (ValueError, LookupError):  # bytes, parts or a charset that are none
        raise web.HTTPBadRequest(text="The form cannot be read: send it as UTF-8.") from None
    public_url = request.config_dict[CONSOLE].options.public_url
    if path == "/login":
        if not access.is_same_origin(request, public_url):
            raise web.HTTPForbidden(text=access.FOREIGN)
        return
    session, given = request.get(SESSION), str(form.get(FORM_TOKEN, ""))
    if reason := access.refusal_of_change(request, session, given, public_url):
        raise web.HTTPForbidden(text=reason)
    if session is not None and session.role != "change" and path != "/logout":
        raise web.HTTPForbidden(text="You may look, but not change anything.")


def _log_in_first(request: web.Request) -> web.StreamResponse:
    if request.method != "GET" or "HX-Request" in request.headers:
        return web.Response(status=401, text="Log in first.\n")
    raise web.HTTPFound(f"{PREFIX}/login?back={quote(request.path_qs, safe='')}")


def _failure(request: web.Request, status: int, text: str) -> web.Response:
    if is_fragment(request):
        return web.Response(status=status, text=text)
    return page(request, "error.jinja", status=status, text=text)
