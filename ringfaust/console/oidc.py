"""Logging in through an OpenID Connect provider: the code flow, with PKCE and a nonce.

The browser keeps what its login began with in a cookie, so a flood of logins costs no memory here.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from aiohttp import web
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from httpx2 import HTTPError, InvalidURL
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from yarl import URL

from ringfaust.config.documents import ConfigError, Fault
from ringfaust.config.oidc import OidcConfig, http_url
from ringfaust.console.access import COOKIE, SESSION_S, Role, is_same
from ringfaust.console.context import CONSOLE, SESSION, asked, local, page, set_cookie
from ringfaust.console.rendering import PREFIX
from ringfaust.errors import RingfaustError
from ringfaust.visible import visible

ROUTES = web.RouteTableDef()
LOGIN_COOKIE = "ringfaust-login"
_LOGIN_S = 600
_TIMEOUT_S = 10.0
METADATA_S = 600.0
"""How long the provider's word about itself is believed."""
_LEEWAY_S = 60
_NAME_CHARS = 200
_BACK_CHARS = 1_000
"""Longest address to go back to. Browsers drop cookies of more than 4,096 bytes."""
_UNUSABLE = (HTTPError, InvalidURL, KeyError, ValueError, TypeError)
"""What an answer of the provider can lead to."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
               "EdDSA")  # fmt: skip
"""With a public key only: a token signed with a shared secret or not at all is refused."""


class LoginFailed(RingfaustError):
    """The provider did not let a user in, or its answer is not valid. The text says why."""


class Begun(NamedTuple):
    """What a login began with."""

    state: str
    nonce: str
    verifier: str
    back: str


class Provider:
    """A provider, and the roles that its users have."""

    def __init__(self, config: OidcConfig, public_url: str) -> None:
        """Connect to nothing yet.

        Raises:
            ConfigError: the secret cannot be read.
        """
        self._config = config
        self._issuer = (config.issuer or "").rstrip("/")
        self._callback = f"{public_url}{PREFIX}/oidc/callback"
        self._secret = _read_secret(config)
        self._known: tuple[float, Mapping[str, Any]] = (-math.inf, {})
        """When the provider was asked about itself, and what it said."""

    def _client(self) -> Any:
        return AsyncOAuth2Client(
            self._config.client_id, self._secret, scope=self._config.scope,
            redirect_uri=self._callback, code_challenge_method="S256", timeout=_TIMEOUT_S,
            token_endpoint_auth_method="client_secret_basic" if self._secret else "none",  # noqa: S106
        )  # fmt: skip

    async def address(self, begun: Begun) -> str:
        """Where the browser logs in.

        Raises:
            LoginFailed: the provider does not answer, or is another one.
        """
        async with self._client() as client:
            metadata = await self._metadata(client)
            address, _ = client.create_authorization_url(
                metadata["authorization_endpoint"], state=begun.state, nonce=begun.nonce,
                code_verifier=begun.verifier,
            )  # fmt: skip
        return str(address)

    async def user(self, begun: Begun, code: str) -> tuple[Role, str]:
        """The role and name of the user for whom the provider has given a code.

        Raises:
            LoginFailed: the code or the ID token is not valid, or the user has no role.
        """
        try:
            async with self._client() as client:
                metadata = await self._metadata(client)
                token = await client.fetch_token(
                    metadata["token_endpoint"], code=code, code_verifier=begun.verifier
                )
                keys = await _get(client, metadata["jwks_uri"])
            return self._role(self._claims(token, keys, begun.nonce))
        except (OAuthError, JoseError, *_UNUSABLE) as error:
            raise LoginFailed(f"The login is not valid: {visible(str(error))[:200]}") from None

    async def _metadata(self, client: Any) -> Mapping[str, Any]:
        asked_s, known = self._known
        if (now_s := time.monotonic()) < asked_s + METADATA_S:
            return known
        try:
            found: Mapping[str, Any] = await _get(
                client, f"{self._issuer}/.well-known/openid-configuration"
            )
            named = str(found["issuer"]).rstrip("/")
            for needed in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                http_url(found[needed])
        except _UNUSABLE as error:
            raise LoginFailed(
                f"The provider {self._issuer} cannot be used: {visible(str(error))[:200]}"
            ) from None
        if named != self._issuer:
            raise LoginFailed(f"The provider at {self._issuer} calls itself {visible(named)[:200]}")
        self._known = now_s, found
        return found

    def _claims(self, token: Mapping[str, Any], keys: Any, nonce: str) -> Mapping[str, Any]:
        """The claims of an ID token whose signature, issuer, audience, age and nonce are right."""
        read = jwt.decode(
            token["id_token"], KeySet.import_key_set(keys), algorithms=list(_ALGORITHMS)
        )
        issuers: list[str] = [self._issuer, f"{self._issuer}/"]
        claims = CodeIDToken(
            read.claims, read.header,
            {
                "iss": {"essential": True, "values": issuers},
                "aud": {"essential": True, "value": self._config.client_id},
            },
            {
                "nonce": nonce, "client_id": self._config.client_id,
                "access_token": token.get("access_token"),
            },
        )  # fmt: skip
        claims.validate(leeway=_LEEWAY_S)
        return dict(claims)

    def _role(self, claims: Mapping[str, Any]) -> tuple[Role, str]:
        """The role that the claims give, and the user's name."""
        config = self._config
        names = (claims[each] for each in _NAMES if isinstance(claims.get(each), str))
        name = next(names, "A user without a name")
        user = visible(name)[:_NAME_CHARS]
        given = claims.get(config.claim)
        listed = given if isinstance(given, list) else [given]
        values = {each for each in listed if isinstance(each, str)}
        if config.claim == "email" and claims.get("email_verified") is not True:
            values = set()
        if values & {*config.changers}:
            return "change", user
        if values & {*config.readers} or "*" in config.readers:
            return "read", user
        raise LoginFailed(f"{user} has no role here: {config.claim} names none that web.oidc lists")


_NAMES = ("preferred_username", "email", "sub")
"""Claims that name a user, the clearest first."""


async def _get(client: Any, address: str) -> Any:
    answer = await client.request("GET", address, withhold_token=True)
    answer.raise_for_status()
    return answer.json()


PROVIDER = web.AppKey("provider", Provider)


def _read_secret(config: OidcConfig) -> str:
    file = config.client_secret_file
    if file is None:
        return ""
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        fault = Fault("web.oidc.client_secret_file", f"{file} cannot be read: {reason}")
        raise ConfigError("worker.yaml", [fault]) from None


# --- pages ----------------------------------------------------------------------------------------


@ROUTES.get("/oidc")
async def begin(request: web.Request) -> web.StreamResponse:
    """Send a browser to the provider."""
    provider = _provider(request)
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    back = asked(request, "back")
    begun = Begun(state, nonce, verifier, local(back if len(back) <= _BACK_CHARS else ""))
    try:
        response = web.HTTPFound(URL(await provider.address(begun), encoded=True))
    except LoginFailed as error:
        return _failed(request, str(error))
    # The provider's page sends the browser back, which is a request from another site: Lax.
    kept = ".".join([*begun[:3], quote(begun.back, safe="")])
    set_cookie(request, response, LOGIN_COOKIE, kept, _LOGIN_S, samesite="Lax")
    raise response


@ROUTES.get("/oidc/callback")
async def finish(request: web.Request) -> web.StreamResponse:
    """Open a session for a browser that comes back from the provider."""
    provider, begun = _provider(request), _begun(request)
    if begun is None or not is_same(begun.state, asked(request, "state")):
        return _failed(request, "This login was not begun in this browser: begin again.")
    if error := asked(request, "error"):
        said = asked(request, "error_description") or error
        return _failed(request, f"The provider says: {visible(said)[:200]}")
    try:
        role, user = await provider.user(begun, asked(request, "code"))
    except LoginFailed as failed:
        return _failed(request, str(failed))
    session = request.config_dict[CONSOLE].sessions.open(role, user)
    request[SESSION] = session
    # A redirect would belong to the provider's request, so the browser would not send the new
    # cookie, which is Strict. A page that moves on is the console's own.
    response = page(request, "logged_in.jinja", back=begun.back, user=user)
    response.headers["Refresh"] = f"0; url={URL(begun.back)}"
    set_cookie(request, response, COOKIE, session.id, SESSION_S)
    response.del_cookie(LOGIN_COOKIE, path=PREFIX)
    return response


def _provider(request: web.Request) -> Provider:
    return request.config_dict[PROVIDER]


def _begun(request: web.Request) -> Begun | None:
    """What the browser's login began with."""
    match request.cookies.get(LOGIN_COOKIE, "").split(".", 3):
        case [state, nonce, verifier, back]:
            return Begun(state, nonce, verifier, local(unquote(back)))
        case _:
            return None


def _failed(request: web.Request, text: str) -> web.Response:
    return page(request, "login.jinja", status=403, back=f"{PREFIX}/", wrong=text)
