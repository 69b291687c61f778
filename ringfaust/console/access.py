"""Who may see and change what: tokens, sessions, and the checks of every request.

No other web site may read or act through an operator's browser: the `Host` header must name this
machine (DNS rebinding), and a change needs a session, the session's own form token, and an `Origin`
that is this console (cross-site request forgery).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from ringfaust.errors import RingfaustError

COOKIE = "ringfaust-console"
TOKEN_VARIABLE = "RINGFAUST_CONSOLE_TOKEN"  # noqa: S105 - its name, not the token
SHORTEST_TOKEN = 16
"""Fewest characters of a token that an operator chooses."""
SESSION_S = 12 * 3600
MOST_SESSIONS = 100
_FAILURES = 20
"""Wrong tokens a minute, after which none is looked at until the minute is over."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer. `Cache-Control` of the vendored files differs."""


class BadToken(RingfaustError):
    """The console's token cannot be read, or is too short. The text says what to do."""


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def read_token(file: Path | None) -> str:
    """Return the operator's own token, from a file or the environment; empty if there is none.

    Raises:
        BadToken: it cannot be read, or is too short.
    """
    if file is None:
        where, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            return ""
    else:
        where = str(file)
        try:
            token = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise BadToken(f"{where}: the console's token cannot be read: {reason}") from None
    if len(token) < SHORTEST_TOKEN:
        raise BadToken(
            f"{where}: the console's token has {len(token)} characters: use {SHORTEST_TOKEN} or "
            "more, such as the output of `openssl rand -hex 24`"
        )
    return token


@dataclass(slots=True)
class Session:
    """A browser that has given the token."""

    id: str
    form_token: str
    """What every form of this session carries."""
    ends_s: float
    notices: list[tuple[str, str]] = field(default_factory=list)
    """Kind (`done` or `failed`) and text of what the next page says."""


class Sessions:
    """The sessions, at most 100: the oldest gives way."""

    def __init__(self, token: str) -> None:
        """`token`: empty if nobody can log in."""
        self._token = token.encode()
        self._open: dict[str, Session] = {}
        self._failed: list[float] = []

    @property
    def exist(self) -> bool:
        """Whether it is possible to log in."""
        return bool(self._token)

    def log_in(self, token: str) -> Session | None:
        """Open a session; None if the token is wrong, or too many were."""
        now_s = time.monotonic()
        self._failed = [at for at in self._failed if at > now_s - 60]
        if not self._token or len(self._failed) >= _FAILURES:
            return None
        if not secrets.compare_digest(token.encode(), self._token):
            self._failed.append(now_s)
            return None
        while len(self._open) >= MOST_SESSIONS:
            del self._open[next(iter(self._open))]
        session = Session(secrets.token_urlsafe(24), secrets.token_urlsafe(24), now_s + SESSION_S)
        self._open[session.id] = session
        return session

    def log_out(self, session: Session) -> None:
        """End a session."""
        self._open.pop(session.id, None)

    def of(self, request: web.Request) -> Session | None:
        """The session of a request; None: it has none, or it has ended."""
        session = self._open.get(request.cookies.get(COOKIE, ""))
        if session is None or session.ends_s < time.monotonic():
            return None
        return session


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(bind.strip("[]")).is_loopback
    except ValueError:
        return bind == "localhost"


def is_our_host(host: str, bind: str) -> bool:
    """Whether a `Host` header names this machine.

    A web site can make its own name resolve to our address. It cannot do so with an address itself,
    with `localhost`, or with the name of this machine.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {"localhost", bind.lower(), socket.gethostname().lower()}
    return True


def refusal_of_change(request: web.Request, session: Session | None, form_token: str) -> str:
    """Why a request may not change anything; empty: it may."""
    if not is_same_origin(request):
        return "The request does not come from a page of this console."
    if session is None:
        return "This needs permission: log in with the console's token first."
    if not secrets.compare_digest(form_token.encode(), session.form_token.encode()):
        return "The form is out of date: reload the page and try again."
    return ""


def is_same_origin(request: web.Request) -> bool:
    """Whether a page of this console has made the request. Browsers always say so for a POST."""
    origin = request.headers.get("Origin", "")
    parts = urlsplit(origin) if origin.startswith(("http://", "https://")) else None
    return parts is not None and parts.netloc.lower() == request.host.lower()
