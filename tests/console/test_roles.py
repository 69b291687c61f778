"""Who may only look, and a console that is reached through a TLS proxy."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from aiohttp import ClientSession, DummyCookieJar, TCPConnector, web

from ringfaust.config import ConfigError, WebConfig
from ringfaust.config.documents import check
from ringfaust.console.access import BadToken, Tokens
from ringfaust.testing.broker import free_port
from tests.chaos.harness import command, environment
from tests.console.harness import READ_TOKEN, TOKEN, Console, console_of, queue_row


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    async with console_of([queue_row("orders")], read_token=READ_TOKEN) as running:
        yield running


async def test_with_a_token_for_reading_even_this_machine_needs_one(console: Console) -> None:
    assert (await console.get("/")).status == 302
    assert (await console.post("/login", {"token": READ_TOKEN})).status == 303
    assert "orders" in await console.text("/queue?name=orders")


async def test_who_may_read_changes_nothing_and_is_offered_no_change(console: Console) -> None:
    await console.log_in(READ_TOKEN)
    text = await console.text("/queue?name=orders")
    assert "read-only" in text
    assert re.search(r"<button[^>]* disabled [^>]*>Purge", text)
    for path in ("/queue/purge", "/redrive"):
        answer = await console.post(path, {"queue": "orders"})
        assert answer.status == 403
        assert "You may look, but not change anything." in await answer.text()
    console.backend.fake.purge.assert_not_called()
    assert (await console.post("/logout", {})).status == 303
    assert (await console.get("/")).status == 302


async def test_both_tokens_have_their_role(console: Console) -> None:
    await console.log_in(TOKEN)
    assert (await console.post("/queue/purge", {"queue": "orders"})).status == 303
    console.backend.fake.purge.assert_called_once_with("orders")


def test_the_tokens_differ() -> None:
    with pytest.raises(BadToken, match="make two"):
        Tokens(TOKEN, TOKEN)


@pytest.mark.parametrize("settings", [{"proxies": "10.0.0.1"}, {"public_url": "https://a.example"}])
async def test_what_a_proxy_lets_in_needs_permission_to_read(settings: dict[str, str]) -> None:
    async with console_of([], **settings) as console:
        assert (await console.get("/")).status == 302


@pytest.mark.parametrize(
    "text",
    [
        "rings.example.com", "ftp://a", "https://a/path", "https://a?b", "https://u@a", "x",
        "https://a:65536", "https://a:0",
    ],
)  # fmt: skip
def test_a_public_address_is_scheme_host_and_port(text: str) -> None:
    with pytest.raises(ConfigError, match="public_url: .* such as https://rings.example.com"):
        check(WebConfig, {"public_url": text}, "worker.yaml")


@pytest.mark.parametrize("origin", ["http://a.example", "https://b.example", "https://a.example:1"])
async def test_at_the_public_address_only_its_own_origin_counts(origin: str) -> None:
    async with console_of([], public_url="https://a.example") as console:
        headers = {"Host": "a.example", "Origin": origin}
        answer = await console.client.post(
            "/console/login", data={"token": TOKEN}, headers=headers, allow_redirects=False
        )
        assert answer.status == 403


@dataclass
class Behind:
    """A console, a proxy before it that ends TLS, and how a browser trusts the proxy."""

    console: Console
    public: str
    trust: ssl.SSLContext

    def browser(self) -> ClientSession:
        return ClientSession(
            headers={"Origin": self.public}, connector=TCPConnector(ssl=self.trust)
        )


@pytest.fixture(params=["passes-the-host-on", "replaces-the-host"])
async def behind(request: pytest.FixtureRequest) -> AsyncIterator[Behind]:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    port = free_port()
    public = f"https://localhost:{port}"
    async with (
        console_of([queue_row("orders")], proxies="127.0.0.1", public_url=public) as console,
        ClientSession(cookie_jar=DummyCookieJar()) as onward,
    ):

        async def pass_on(asked: web.Request) -> web.Response:
            known = ("Origin", "Cookie", "Content-Type")
            headers = {name: asked.headers[name] for name in known if name in asked.headers}
            claimed = asked.headers.getall("X-Forwarded-For", [])
            headers["X-Forwarded-For"] = ", ".join([*claimed, asked.headers["Test-From"]])
            if request.param == "passes-the-host-on":
                headers["Host"] = asked.headers["Host"]
            async with onward.request(
                asked.method, f"{console.origin}{asked.path_qs}", headers=headers,
                data=await asked.read(), allow_redirects=False,
            ) as answer:  # fmt: skip
                kept = {n: v for n, v in answer.headers.items() if n in ("Set-Cookie", "Location")}
                body = await answer.read()
                return web.Response(status=answer.status, body=body, headers=kept)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        yield Behind(console, public, trust)
        await runner.cleanup()


async def test_behind_a_proxy_that_ends_tls_one_logs_in_and_changes(behind: Behind) -> None:
    async with behind.browser() as browser:
        console, here = f"{behind.public}/console", {"Test-From": "192.0.2.1"}
        async with browser.get(f"{console}/", headers=here, allow_redirects=False) as answer:
            assert answer.headers["Location"] == "/console/login?back=/console/"
        async with browser.post(
            f"{console}/login", data={"token": TOKEN}, headers=here, allow_redirects=False
        ) as answer:
            assert answer.status == 303, await answer.text()
            for attribute in ("Secure", "HttpOnly", "SameSite=Strict"):
                assert attribute in answer.headers["Set-Cookie"]
        async with browser.get(f"{console}/", headers=here) as answer:
            text = await answer.text()
            assert "changes allowed" in text
        found = re.search(r'name="form-token" value="([^"]+)"', text)
        assert found is not None
        form = {"form-token": found[1], "queue": "orders"}
        for origin, status in (("https://evil.example", 403), (behind.public, 303)):
            async with browser.post(
                f"{console}/queue/purge", data=form, headers=here | {"Origin": origin},
                allow_redirects=False,
            ) as answer:  # fmt: skip
                assert answer.status == status
    behind.console.backend.fake.purge.assert_called_once_with("orders")


async def test_behind_a_proxy_only_what_the_proxy_says_of_an_address_counts(
    behind: Behind,
) -> None:
    async with behind.browser() as browser:

        async def log_in(token: str, *, from_address: str, claimed: str) -> int:
            headers = {"Test-From": from_address, "X-Forwarded-For": claimed}
            async with browser.post(
                f"{behind.public}/console/login", data={"token": token}, headers=headers,
                allow_redirects=False,
            ) as answer:  # fmt: skip
                return answer.status

        for number in range(20):
            claimed = f"198.51.100.{number}"
            assert await log_in("wrong", from_address="192.0.2.1", claimed=claimed) == 403
        assert await log_in(TOKEN, from_address="192.0.2.1", claimed="198.51.100.99") == 403
        assert await log_in(TOKEN, from_address="192.0.2.2", claimed="192.0.2.1") == 303


@contextmanager
def _started(*options: str) -> Iterator[tuple[str, str]]:
    """`ringfaust console` in a process of its own: where it is, and what it says at first."""
    port = free_port()
    process = subprocess.Popen(
        command("console", "--bootstrap-servers", "127.0.0.1:1", "--port", str(port), *options),
        env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("console of"):
                break
        yield f"http://127.0.0.1:{port}/console", said
    finally:
        process.terminate()
        process.wait(30)


async def test_beyond_this_machine_a_console_that_only_reads_makes_a_token() -> None:
    with _started("--bind", "0.0.0.0") as (console, said):
        token = re.search(r"^token for reading: (\S{16,})$", said, re.MULTILINE)
        assert token is not None, said
        async with ClientSession() as browser:
            origin = {"Origin": console.removesuffix("/console")}
            for given, status in (("wrong", 403), (token[1], 303)):
                async with browser.post(
                    f"{console}/login", data={"token": given}, headers=origin,
                    allow_redirects=False,
                ) as answer:  # fmt: skip
                    assert answer.status == status


def test_the_command_takes_a_token_file_for_each_role(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(READ_TOKEN)
    with _started("--read-token-file", str(file), "--public-url", "https://rings.example") as (
        _, said,
    ):  # fmt: skip
        assert said == "console of ringfaust: https://rings.example/console/\n"
