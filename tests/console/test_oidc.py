"""Logging in through a provider: roles by a claim, and every way in which a token can be wrong."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar

from ringfaust.config import ConfigError, WebConfig
from ringfaust.config.documents import check
from ringfaust.console.access import COOKIE
from ringfaust.console.oidc import LOGIN_COOKIE, METADATA_S
from tests.console.harness import Console, console_of, queue_row
from tests.console.provider import CLIENT, SECRET, Provider, provider_on_loopback

PUBLIC = "http://rings.example"
ROLES = {"claim": "groups", "change": "ring-admins, ops", "read": "ring-readers"}


@dataclass
class Login:
    """A console behind a provider, and a browser."""

    console: Console
    provider: Provider
    browser: ClientSession

    async def get(self, url: str) -> ClientResponse:
        return await self.browser.get(url, allow_redirects=False)

    async def come_back(self, back: str = "") -> str:
        """Log in at the provider. Returns the address to which it sends the browser back."""
        begun = await self.get(f"{self.console.origin}/console/oidc?back={back}")
        assert begun.status == 302, await begun.text()
        answer = await self.get(begun.headers["Location"])
        return answer.headers["Location"].replace(PUBLIC, self.console.origin)

    async def log_in(self, back: str = "") -> ClientResponse:
        return await self.get(await self.come_back(back))


@asynccontextmanager
async def login_of(
    tmp_path: Path, roles: Mapping[str, str] = ROLES, public_url: str = PUBLIC
) -> AsyncIterator[Login]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    async with provider_on_loopback() as provider:
        oidc = {
            "issuer": provider.issuer, "client_id": CLIENT, "client_secret_file": str(secret),
            **roles,
        }  # fmt: skip
        async with (
            console_of(
                [queue_row("orders")], token="", public_url=public_url, oidc=oidc
            ) as console,
            ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser,
        ):
            yield Login(console, provider, browser)


@pytest.fixture
async def login(tmp_path: Path) -> AsyncIterator[Login]:
    async with login_of(tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["others", "ring-admins"], "changes allowed"), ("ops", "changes allowed"),
        (["ring-readers"], "read-only"), (["ring-readers", "ops"], "changes allowed"),
    ],
)  # fmt: skip
async def test_the_claim_decides_about_the_role(login: Login, groups: Any, role: str) -> None:
    login.provider.claims = {"sub": "u-1", "preferred_username": "ann", "groups": groups}
    assert (await login.get(f"{login.console.origin}/console/")).status == 302
    answer = await login.log_in("/console/queue?name=orders")
    text = await answer.text()
    assert answer.status == 200, text
    assert "You are ann." in text
    assert answer.headers["Refresh"] == "0; url=/console/queue?name=orders"
    page = await login.get(f"{login.console.origin}/console/queue?name=orders")
    text = await page.text()
    assert f">{role}</span>" in text
    found = re.search(r'name="form-token" value="([^"]+)"', text)
    assert found is not None
    answer = await login.browser.post(
        f"{login.console.origin}/console/partition/retry", allow_redirects=False,
        data={"form-token": found[1], "partition": "1", "by": "somebody else"},
        headers={"Origin": PUBLIC},
    )  # fmt: skip
    assert answer.status == (303 if role == "changes allowed" else 403)
    if role == "changes allowed":
        login.console.backend.fake.retry_partition.assert_called_once_with("1", by="ann")


async def test_the_cookies_are_for_the_console_alone(tmp_path: Path) -> None:
    async with login_of(tmp_path, public_url="https://rings.example") as login:
        begun = await login.get(f"{login.console.origin}/console/oidc")
        assert begun.headers["Location"].startswith(f"{login.provider.issuer}/authorize?")
        assert (
            "redirect_uri=https%3A%2F%2Frings.example%2Fconsole%2Foidc%2Fcallback"
            in (begun.headers["Location"])
        )
        for part in (LOGIN_COOKIE, "HttpOnly", "Secure", "SameSite=Lax", "Path=/console"):
            assert part in begun.headers["Set-Cookie"]


async def test_the_session_is_strict_and_what_the_login_began_with_is_forgotten(
    login: Login,
) -> None:
    login.provider.claims |= {"groups": ["ops"]}
    cookies = (await login.log_in()).headers.getall("Set-Cookie")
    [session] = [each for each in cookies if each.startswith(COOKIE)]
    assert "SameSite=Strict" in session
    assert [each for each in cookies if each.startswith(LOGIN_COOKIE) and "Max-Age=0" in each]


HOUR_AGO = int(time.time()) - 3_600
WRONG: dict[str, dict[str, Any]] = {
    "another-issuer": {"iss": "https://evil.example"},
    "another-audience": {"aud": "another-client"},
    "no-audience": {"aud": None},
    "for-two-and-not-us": {"aud": ["a", "b"]},
    "issued-for-another": {"azp": "another-client"},
    "expired": {"iat": HOUR_AGO, "exp": HOUR_AGO + 300},
    "without-end": {"exp": None},
    "not-yet": {"nbf": HOUR_AGO + 7_200},
    "another-nonce": {"nonce": "replayed"},
    "no-nonce": {"nonce": None},
    "nobody": {"sub": None},
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_token_that_is_wrong_lets_nobody_in(login: Login, wrong: str) -> None:
    login.provider.claims = {"sub": "u-1", "groups": ["ops"], **WRONG[wrong]}
    await _refused(login, "The login is not valid")


@pytest.mark.parametrize("signs", ["stranger", "shared"])
async def test_a_token_that_the_provider_did_not_sign_lets_nobody_in(
    login: Login, signs: str
) -> None:
    login.provider.claims |= {"groups": ["ops"]}
    login.provider.signs = signs
    await _refused(login, "The login is not valid")


async def _refused(login: Login, text: str) -> None:
    answer = await login.log_in()
    assert answer.status == 403
    assert text in await answer.text()
    assert COOKIE not in answer.headers.get("Set-Cookie", "")
    assert (await login.get(f"{login.console.origin}/console/")).status == 302


@pytest.mark.parametrize(
    "groups", [["others"], "ring-admins-2", [], None, 7, {"ops": 1}, [["ops"]]]
)
async def test_who_has_no_role_is_not_let_in(login: Login, groups: Any) -> None:
    login.provider.claims |= {"groups": groups, "name": "Ann"}
    await _refused(login, "u-1 has no role here")


async def test_a_login_of_another_browser_is_refused(login: Login) -> None:
    login.provider.claims |= {"groups": ["ops"]}
    back = await login.come_back()
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as victim:
        answer = await victim.get(back, allow_redirects=False)
        assert answer.status == 403
        assert "was not begun in this browser" in await answer.text()
    cookie = {"Cookie": f"{LOGIN_COOKIE}=a.b.c.%2Fconsole%2F"}
    async with ClientSession(headers=cookie) as victim:
        assert (await victim.get(back, allow_redirects=False)).status == 403
    reader, writer = await asyncio.open_connection("127.0.0.1", login.console.client.port)
    writer.write(b"GET /console/oidc/callback?state=a HTTP/1.1\r\nHost: localhost\r\n")
    writer.write(b"Cookie: %s=\xff.b.c.d\r\nConnection: close\r\n\r\n" % LOGIN_COOKIE.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 403")  # bytes that are no text
    writer.close()


async def test_a_code_counts_once(login: Login) -> None:
    login.provider.claims |= {"groups": ["ops"]}
    back = await login.come_back()
    kept = {each.key: each.value for each in login.browser.cookie_jar}
    assert (await login.get(back)).status == 200
    async with ClientSession(cookies=kept, cookie_jar=CookieJar(unsafe=True)) as again:
        assert (await again.get(back, allow_redirects=False)).status == 403


async def test_what_the_provider_says_is_shown_escaped(login: Login) -> None:
    back = await login.come_back()
    state = re.search(r"state=([^&]+)", back)
    assert state is not None
    answer = await login.get(
        f"{login.console.origin}/console/oidc/callback?state={state[1]}"
        "&error=access_denied&error_description=%3Cb%3Eno"
    )
    assert answer.status == 403
    text = await answer.text()
    assert "The provider says: &lt;b&gt;no" in text


async def test_pages_of_a_login_do_not_ask_the_provider_each_time(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    login.provider.claims |= {"groups": ["ops"]}
    for _ in range(2):
        assert (await login.log_in()).status == 200
    assert login.provider.asked == 1
    later_s = time.monotonic() + METADATA_S
    monkeypatch.setattr("ringfaust.console.oidc.time.monotonic", lambda: later_s)
    assert (await login.get(f"{login.console.origin}/console/oidc")).status == 302
    assert login.provider.asked == 2


async def test_a_provider_that_is_another_or_down_is_named(login: Login) -> None:
    login.provider.calls_itself = "https://evil.example"
    answer = await login.get(f"{login.console.origin}/console/oidc")
    assert answer.status == 403
    assert "calls itself https://evil.example" in await answer.text()
    login.provider.calls_itself, login.provider.authorizes = login.provider.issuer, "javascript:x"
    answer = await login.get(f"{login.console.origin}/console/oidc")
    assert answer.status == 403
    assert "cannot be used" in await answer.text()
    login.provider.authorizes = "http://☃.example:x"
    answer = await login.get(f"{login.console.origin}/console/oidc")
    assert answer.status == 403
    assert "cannot be used" in await answer.text()


async def test_a_long_way_back_does_not_break_the_login(login: Login) -> None:
    login.provider.claims |= {"groups": ["ops"]}
    answer = await login.log_in("/console/" + "x" * 3_000)
    assert (answer.status, answer.headers["Refresh"]) == (200, "0; url=/console/")


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"email": "ann@example.com", "email_verified": True}, 200),
        ({"email": "ann@example.com", "email_verified": False}, 403),
        ({"email": "ann@example.com"}, 403),
        ({"email": "bob@example.com", "email_verified": True}, 403),
    ],
)
async def test_a_list_of_users(tmp_path: Path, claims: dict[str, Any], status: int) -> None:
    async with login_of(tmp_path, {"claim": "email", "read": "ann@example.com"}) as login:
        login.provider.claims |= claims
        assert (await login.log_in()).status == status


async def test_everyone_may_read_if_it_says_so(tmp_path: Path) -> None:
    async with login_of(tmp_path, {"read": "*"}) as login:
        assert (await login.log_in()).status == 200
        page = await login.get(f"{login.console.origin}/console/login")
        assert "read-only" in await page.text()


@pytest.mark.parametrize(
    ("oidc", "text"),
    [
        ({}, "oidc.client_id: is required with an issuer"),
        ({"client_id": "c"}, "oidc.read: with neither read nor change"),
        ({"client_id": "c", "read": "x", "scope": "email"}, "oidc.scope: 'email' lacks openid"),
        ({"client_id": "c", "read": "x"}, "public_url: is required with oidc"),
        *(
            ({"issuer": issuer, "client_id": "c", "read": "x"}, "oidc.issuer: must be an address")
            for issuer in (
                "https://login:99999",
                "https://login:x/a",
                "https://[login",
                "http://a:0",
            )
        ),
    ],
)
def test_a_provider_needs_all_of_its_settings(oidc: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check(WebConfig, {"oidc": {"issuer": "https://login.example", **oidc}}, "worker.yaml")


async def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    oidc = {"issuer": "https://l", "client_id": "c", "read": "*",
            "client_secret_file": str(tmp_path / "none")}  # fmt: skip
    with pytest.raises(ConfigError, match="oidc.client_secret_file: .* cannot be read: No such"):
        async with console_of([], public_url="https://a.example", oidc=oidc):
            pass
