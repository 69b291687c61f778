"""A small OpenID Connect provider on loopback, which signs its tokens with a key of its own."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from aiohttp import BasicAuth, web
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from ringfaust.testing.broker import free_port

CLIENT = "the-console"
SECRET = "the-secret-of-the-console"


class Provider:
    """Lets everybody in, as the user whose claims the test sets."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.key = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256"})
        self.stranger = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256"})
        self.claims: dict[str, Any] = {"sub": "u-1"}
        """Of the user; those of the protocol can be replaced, too. None: left out."""
        self.signs = "own"
        """own, stranger, or shared: with the client's secret."""
        self.calls_itself = self.issuer
        self.authorizes: Any = f"{self.issuer}/authorize"
        self.asked = 0
        """How often for its metadata."""
        self._codes: dict[str, dict[str, str]] = {}

    async def authorize(self, request: web.Request) -> web.StreamResponse:
        asked = dict(request.query)
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        answer = urlencode({"code": code, "state": asked["state"]})
        raise web.HTTPFound(f"{asked['redirect_uri']}?{answer}")

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        asked = self._codes.pop(str(form["code"]), None)
        client = BasicAuth.decode(request.headers["Authorization"])
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or (client.login, client.password) != (CLIENT, SECRET)
            or challenge != asked["code_challenge"]
            or form["redirect_uri"] != asked["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300,
            "nonce": asked["nonce"], **self.claims,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        return web.json_response(
            {"access_token": "a", "token_type": "Bearer", "id_token": self._signed(claims)}
        )

    def _signed(self, claims: dict[str, Any]) -> str:
        if self.signs == "shared":
            return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET))
        key = self.key if self.signs == "own" else self.stranger
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, key)

    async def keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [self.key.as_dict(private=False)]})

    async def metadata(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response(
            {
                "issuer": self.calls_itself,
                "authorization_endpoint": self.authorizes,
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )


@asynccontextmanager
async def provider_on_loopback() -> AsyncIterator[Provider]:
    port = free_port()
    provider = Provider(port)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.metadata)
    app.router.add_get("/authorize", provider.authorize)
    app.router.add_post("/token", provider.token)
    app.router.add_get("/keys", provider.keys)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield provider
    finally:
        await runner.cleanup()
