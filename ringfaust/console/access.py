"""Who may see and change what: roles, tokens, sessions, and the checks of every request.

No other web site may read or act through an operator's browser: the `Host` header must name this
machine (`config.hosts`), and a change needs a session, the session's own form token, and an
`Origin` that is this console (cross-site request forgery).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aiohttp import web

from ringfaust.errors import RingfaustError

COOKIE = "ringfaust-console"
FOREIGN = "The request does not come from a page of this console."
TOKEN_VARIABLE = "RINGFAUST_CONSOLE_TOKEN"  # noqa: S105 - its name, not the token
READ_TOKEN_VARIABLE = "RINGFAUST_CONSOLE_READ_TOKEN"  # noqa: S105 - its name, not the token
SHORTEST_TOKEN = 16
"""Fewest characters of a token that an operator chooses."""
SESSION_S = 12 * 3600
MOST_SESSIONS = 100
_FAILURES = 20
"""Wrong tokens a minute from one address, after which none of its is looked at until the minute is
over."""
MOST_ADDRESSES = 1_000
"""Addresses whose wrong tokens are remembered. The one with the oldest last one gives way."""
_IPV6_PREFIX = 64
"""Bits of an IPv6 address that tell who it is: the others are free to choose for one machine."""

Role = Literal["read", "change"]
"""What somebody may do. Who may change may also read."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

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


def read_token(file: Path | None, variable: str = TOKEN_VARIABLE) -> str:
    """Return the operator's own token, from a file or the environment; empty if there is none.

    Raises:
        BadToken: it cannot be read, or is too short.
    """
    if file is None:
        where, token = variable, os.environ.get(variable, "").strip()
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


class TooManyWrong(RingfaustError):
    """Too many wrong tokens came from an address: none of its is looked at for up to a minute."""


class Tokens:
    """The tokens of both roles. Each address has its own count of wrong ones."""

    def __init__(self, change: str, read: str = "") -> None:
        """`change`, `read`: empty if there is none.

        Raises:
            BadToken: both are the same, so the one that may only read could change.
        """
        if change and change == read:
            raise BadToken("the token that may only read is also the one for changes: make two")
        roles: tuple[tuple[Role, str], ...] = (("change", change), ("read", read))
        self._tokens = [(role, token) for role, token in roles if token]
        self._failed: dict[str, list[float]] = {}
        """By address: when its wrong tokens came. The latest to fail comes last."""

    @property
    def exist(self) -> bool:
        """Whether there is any."""
        return bool(self._tokens)

    def role_of(self, token: str, address: str) -> Role | None:
        """What a token allows; None if it is wrong.

        Raises:
            TooManyWrong: too many from that address were.
        """
        now_s = time.monotonic()
        failed = [at for at in self._failed.get(address, ()) if at > now_s - 60]
        if len(failed) >= _FAILURES:
            raise TooManyWrong("There were too many wrong tokens from this address: wait a minute.")
        for role, known in self._tokens:
            if is_same(token, known):
                return role
        self._failed.pop(address, None)
        if len(self._failed) >= MOST_ADDRESSES:
            del self._failed[next(iter(self._failed))]
        self._failed[address] = [*failed, now_s]
        return None


@dataclass(slots=True, kw_only=True)
class BrowserSession:
    """A browser whose user has logged in."""

    id: str
    role: Role
    user: str
    """Who it is, by the provider's word; empty: somebody with a token."""
    form_token: str
    """What every form of this session carries."""
    ends_s: float
    notices: list[tuple[str, str]] = field(default_factory=list)
    """Kind (`done` or `failed`) and text of what the next page says."""


class Sessions:
    """The sessions, at most 100: the oldest gives way."""

    def __init__(self, *, allows_changes: bool = True) -> None:
        """`allows_changes`: if not, every session may only read."""
        self._allows_changes = allows_changes
        self._open: dict[str, BrowserSession] = {}

    def open(self, role: Role, user: str = "") -> BrowserSession:
        """Open a session."""
        role = role if self._allows_changes else "read"
        while len(self._open) >= MOST_SESSIONS:
            del self._open[next(iter(self._open))]
        session = BrowserSession(
            id=secrets.token_urlsafe(24), role=role, user=user,
            form_token=secrets.token_urlsafe(24), ends_s=time.monotonic() + SESSION_S,
        )  # fmt: skip
        self._open[session.id] = session
        return session

    def log_out(self, session: BrowserSession) -> None:
        """End a session."""
        self._open.pop(session.id, None)

    def of(self, request: web.Request) -> BrowserSession | None:
        """The session of a request; None: it has none, or it has ended."""
        session = self._open.get(request.cookies.get(COOKIE, ""))
        if session is None or session.ends_s < time.monotonic():
            return None
        return session


def is_same(given: str, secret: str) -> bool:
    """Compare a secret with what a request has, which may be no text; how long tells nothing."""
    return secrets.compare_digest(given.encode(errors="replace"), secret.encode())


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(bind.strip("[]")).is_loopback
    except ValueError:
        return bind == "localhost"


def address_of(request: web.Request, proxies: Collection[Network]) -> str:
    """Whom a request comes from: the last in its `X-Forwarded-For` who is no proxy of ours."""
    forwarded = ",".join(request.headers.getall("X-Forwarded-For", [])).split(",")
    found = _address(request.remote or "")
    while found is not None and forwarded and any(found in proxy for proxy in proxies):
        before = _address(forwarded.pop().strip())
        if before is None:
            break
        found = before
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
    return str(found)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def refusal_of_change(
    request: web.Request, session: BrowserSession | None, form_token: str, public_url: str
) -> str:
    """Why a request may not send a form; empty: it may."""
    if not is_same_origin(request, public_url):
        return FOREIGN
    if session is None:
        return "This needs permission: log in first."
    if not is_same(form_token, session.form_token):
        return "The form is out of date: reload the page and try again."
    return ""


def is_same_origin(request: web.Request, public_url: str) -> bool:
    """Whether a page of this console has made the request. Browsers always say so for a POST.

    Behind a proxy that ends TLS, the origin is `https` and the request itself is not; and the proxy
    may have replaced the `Host`.

    Args:
        request: the request.
        public_url: the origin by which browsers reach the console; empty: it is not known.
    """
    origin = request.headers.get("Origin", "").lower()
    scheme, _, netloc = origin.partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    if port is None:
        return False
    if origin.removesuffix(port) == public_url:
        return True
    here = request.host.lower().removesuffix(port)
    is_public = here == public_url.partition("://")[2]  # there only its own scheme counts
    return netloc.removesuffix(port) == here and not is_public


_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
"""By scheme: the port that browsers leave out, and some proxies write."""
