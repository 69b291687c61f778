"""What the pages share: the console's parts, the session of a request, and full pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from aiohttp import web

from ringfaust.config.oidc import OidcConfig
from ringfaust.console.access import BrowserSession, Network, Sessions, Tokens, is_loopback
from ringfaust.console.backend import Backend
from ringfaust.console.rendering import PREFIX, render
from ringfaust.times import wall_ms

SESSION = web.RequestKey("session", BrowserSession)
"""Key of a request: its session. Requests without one lack it."""
FORM_TOKEN = "form-token"  # noqa: S105 - the name of a field
_LONGEST = 4_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """Who may use the console."""

    bind: str = "127.0.0.1"
    """Where it listens. Beyond this machine, reading needs the token, too."""
    hosts: Collection[str] = ()
    """Names that it answers to, besides those of `is_our_host`."""
    proxies: Collection[Network] = ()
    """Those whose `X-Forwarded-For` is believed."""
    public_url: str = ""
    """The origin by which browsers reach it, such as https://rings.example.com; empty: `bind`."""
    token: str = ""
    """It allows changes; if it is empty, nobody may make any with a token."""
    read_token: str = ""
    """It allows to read."""
    oidc: OidcConfig | None = None
    """A provider through which users log in; it needs `public_url`."""
    allows_changes: bool = True
    """If not, nobody may make any: whom the provider allows them may read."""

    @property
    def needs_login(self) -> bool:
        """Whether reading needs permission: others than this machine's users can reach it."""
        return bool(
            not is_loopback(self.bind) or self.proxies or self.public_url or self.read_token
            or self.oidc
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Console:
    """The parts of a console."""

    backend: Backend
    sessions: Sessions
    tokens: Tokens
    options: ConsoleOptions
    listeners: int = 0
    """Pages that are kept current now."""


CONSOLE = web.AppKey("console", Console)


_SEARCH_S = 20.0
_TOO_LONG = f"The search took more than {_SEARCH_S:.0f} s: search a shorter time."
_searching = asyncio.Semaphore(2)
"""Searches of topics that run at a time: each reads as fast as it can."""


async def searched(work: Awaitable[T]) -> T:
    """Return what a search of topics finds, which waits until at most one other runs.

    Raises:
        HTTPGatewayTimeout: it takes too long.
    """
    try:
        async with asyncio.timeout(_SEARCH_S), _searching:
            return await work
    except TimeoutError:
        raise web.HTTPGatewayTimeout(text=_TOO_LONG) from None


def backend_of(request: web.Request) -> Backend:
    """The connections."""
    return request.config_dict[CONSOLE].backend


def asked(request: web.Request, name: str) -> str:
    """A parameter of the address; empty if it is missing.

    Raises:
        HTTPBadRequest: it is too long.
    """
    return _short(name, request.query.get(name, ""))


def required(request: web.Request, name: str) -> str:
    """A parameter of the address.

    Raises:
        HTTPBadRequest: it is missing or too long.
    """
    if not (value := asked(request, name)):
        raise web.HTTPBadRequest(text=f"The address lacks {name}.")
    return value


def _short(name: str, value: str) -> str:
    if len(value) > _LONGEST:
        raise web.HTTPBadRequest(text=f"{name} is longer than {_LONGEST:,} characters.")
    return value


def whole(request: web.Request, name: str, default: int) -> int:
    """A parameter that is a whole number.

    Raises:
        HTTPBadRequest: it is something else.
    """
    text = asked(request, name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise web.HTTPBadRequest(text=f"{name} = {text[:80]!r}: a whole number is needed.")
    return int(text)


def one_of(request: web.Request, name: str, *names: str) -> str:
    """A parameter that is one of some words, by default the first.

    Raises:
        HTTPBadRequest: it is none of them.
    """
    value = asked(request, name) or names[0]
    if value not in names:
        raise web.HTTPBadRequest(text=f"{name} = {value[:80]!r}: use one of {', '.join(names)}.")
    return value


def local(back: str) -> str:
    """Where to go next: only to a page of this console."""
    return back if back.startswith(f"{PREFIX}/") else f"{PREFIX}/"


def set_cookie(
    request: web.Request,
    response: web.StreamResponse,
    name: str,
    value: str,
    max_age_s: int,
    *,
    samesite: Literal["Strict", "Lax"] = "Strict",
) -> None:
    """Give a browser a cookie, which scripts cannot read, for pages of the console only.

    Where the browser itself uses TLS, it never sends it without.
    """
    origin = request.headers.get("Origin") or request.config_dict[CONSOLE].options.public_url
    response.set_cookie(
        name, value, max_age=max_age_s, path=PREFIX, httponly=True, samesite=samesite,
        secure=request.secure or origin.startswith("https:"),
    )  # fmt: skip


def is_fragment(request: web.Request) -> bool:
    """Whether htmx asks for a part of a page."""
    return "HX-Request" in request.headers and "HX-History-Restore-Request" not in request.headers


def page(request: web.Request, template: str, *, status: int = 200, **values: Any) -> web.Response:
    """Fill in a template, with what every page needs."""
    console = request.config_dict[CONSOLE]
    session: BrowserSession | None = request.get(SESSION)
    has_provider = console.options.oidc is not None
    notices: list[tuple[str, str]] = []
    if session is not None and not is_fragment(request):
        notices, session.notices = session.notices, []
    common = {
        "application": console.backend.worker.application,
        "can_change": session is not None and session.role == "change",
        "can_log_in": console.tokens.exist or has_provider,
        "has_provider": has_provider,
        "has_token": console.tokens.exist,
        "is_logged_in": session is not None,
        "form_token": session.form_token if session is not None else "",
        "here": request.path_qs if request.method == "GET" else f"{PREFIX}/",
        "path": request.path.removeprefix(PREFIX),
        "notices": notices,
        "brokers": console.backend.worker.bootstrap_servers,
        "silence": look.silence if (look := console.backend.latest) is not None else None,
        "now_ms": wall_ms(),
        "trouble": console.backend.trouble,
        "is_fragment": is_fragment(request),
        "status": status,
    }
    text = render(template, common | values)
    return web.Response(status=status, text=text, content_type="text/html")
