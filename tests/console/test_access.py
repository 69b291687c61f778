"""Who may see and change what, and what every answer says to the browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientResponse, ClientSession, TCPConnector
from aiohttp.test_utils import make_mocked_request

from ringfaust.config.hosts import is_our_host
from ringfaust.console.access import (
    MOST_ADDRESSES,
    MOST_SESSIONS,
    BadToken,
    Sessions,
    Tokens,
    TooManyWrong,
    address_of,
    is_loopback,
    read_token,
)
from tests.console.harness import HOSTILE, TOKEN, Console, console_of, queue_row

PAGES = (
    "/",
    "/queues",
    "/queue?name=orders",
    "/transactions",
    "/configuration",
    "/message",
    "/login",
)


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    async with console_of([queue_row("orders")]) as running:
        running.backend.fake.xids.return_value = []
        yield running


@pytest.mark.parametrize("path", [*PAGES, "/nowhere", "/queue", "/queues?page=x"])
async def test_every_answer_is_locked_down(console: Console, path: str) -> None:
    answer = await console.get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_no_inline_code_and_loads_nothing_from_elsewhere(
    console: Console, path: str
) -> None:
    text = await console.text(path)
    assert "<style" not in text
    assert " style=" not in text
    assert " onclick=" not in text
    assert "<script>" not in text
    assert "://" not in text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:6067", 200), ("127.0.0.1", 200), ("[::1]:6067", 200), ("192.168.0.7:80", 200),
        ("evil.example", 421), ("localhost.evil.example", 421), ("evil.example:6067", 421),
        ("127.0.0.1.evil.example", 421), ("[", 421),
    ],
)  # fmt: skip
async def test_only_our_own_names_are_answered(console: Console, host: str, status: int) -> None:
    assert (await console.get("/", Host=host)).status == status
    assert is_our_host(host, "127.0.0.1", ()) == (status == 200)


async def test_nothing_changes_without_the_token(console: Console) -> None:
    answer = await console.post("/queue/purge", {"queue": "orders"})
    assert answer.status == 403
    assert "log in" in await answer.text()
    console.backend.fake.purge.assert_not_called()


async def test_a_wrong_token_opens_no_session(console: Console) -> None:
    answer = await console.log_in("a-token-for-the-test?")
    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers
    assert (await console.post("/queue/purge", {"queue": "orders"})).status == 403


async def test_the_cookie_is_for_this_console_alone(console: Console) -> None:
    answer = await console.log_in()
    assert answer.status == 303
    cookie = answer.headers["Set-Cookie"]
    for attribute in ("HttpOnly", "SameSite=Strict", "Path=/console"):
        assert attribute in cookie
    assert TOKEN not in cookie
    assert TOKEN not in answer.headers["Location"]


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "http://127.0.0.1:1"])
async def test_a_form_of_another_site_changes_nothing(console: Console, origin: str) -> None:
    await console.log_in()
    answer = await console.post("/queue/purge", {"queue": "orders"}, origin)
    assert answer.status == 403
    assert (await console.post("/login", {"token": TOKEN}, origin)).status == 403
    console.backend.fake.purge.assert_not_called()


async def test_a_form_without_the_sessions_own_token_changes_nothing(console: Console) -> None:
    await console.log_in()
    console.form_token = "guessed"
    assert (await console.post("/queue/purge", {"queue": "orders"})).status == 403
    console.backend.fake.purge.assert_not_called()


async def test_after_logging_out_nothing_changes(console: Console) -> None:
    await console.log_in()
    assert "changes allowed" in await console.text("/")
    assert (await console.post("/logout", {})).status == 303
    assert "read-only" in await console.text("/")
    assert (await console.post("/queue/purge", {"queue": "orders"})).status == 403


async def test_after_logging_in_one_returns_to_a_page_of_the_console_only(
    console: Console,
) -> None:
    for back, to in (
        ("/console/queue?name=a", "/console/queue?name=a"), ("//evil.example", "/console/"),
        ("http://evil.example/console/", "/console/"), ("", "/console/"),
    ):  # fmt: skip
        answer = await console.post("/login", {"token": TOKEN, "back": back})
        assert answer.headers["Location"] == to


async def test_without_a_token_nobody_can_log_in() -> None:
    async with console_of([], token="") as console:
        assert (await console.log_in("")).status == 403
        assert "read-only" in await console.text("/login")


async def test_beyond_this_machine_even_reading_needs_the_token() -> None:
    async with console_of([queue_row("orders")], bind="0.0.0.0") as console:
        answer = await console.get("/queue?name=orders")
        assert answer.status == 302
        assert answer.headers["Location"] == "/console/login?back=/console/queue?name%3Dorders"
        assert (await console.get("/live")).status == 302
        assert (await console.get("/queues", **{"HX-Request": "true"})).status == 401
        assert (await console.post("/queue/purge", {"queue": "orders"})).status == 401
        await console.post("/login", {"token": TOKEN})
        assert "orders" in await console.text("/queue?name=orders")


async def test_who_has_logged_out_gets_no_more_events() -> None:
    async with console_of([queue_row("a")], bind="0.0.0.0") as console:
        await console.log_in()
        board = console.backend.board
        async with console.client.get("/console/live?queue=a") as answer:
            await console.post("/logout", {})
            while not board._watched:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            await board.look_now()
            async with asyncio.timeout(30):
                assert await answer.content.read() == b""


async def test_names_and_errors_are_escaped(console: Console) -> None:
    text = await console.text(f"/queue?name={HOSTILE}")
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    answer = await console.get(f"/queues?sort={HOSTILE}")
    assert answer.status == 400
    assert HOSTILE not in await answer.text()


async def test_what_is_too_long_is_refused(console: Console) -> None:
    assert (await console.get(f"/queue?name={'x' * 4_001}")).status == 400
    await console.log_in()
    answer = await console.post("/queue/purge", {"queue": "x" * 70_000})
    assert answer.status == 413
    for path in ("/queue/purge", "/login"):  # in chunks, whose sum no header tells
        assert (await _post_raw(console, path, _chunks(b"queue=" + b"x" * 70_000))).status == 413


async def _chunks(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _post_raw(
    console: Console, path: str, body: bytes | AsyncIterator[bytes], **headers: str
) -> ClientResponse:
    given = {"Origin": console.origin, "Content-Type": "application/x-www-form-urlencoded"}
    return await console.client.post(f"/console{path}", data=body, headers=given | headers)


@pytest.mark.parametrize("path", ["/queue/purge", "/login"])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"token=\xff", "application/x-www-form-urlencoded"),
        (b"token=%ff", "application/x-www-form-urlencoded;charset=none"),
        (b"token=a", "application/x-www-form-urlencoded;charset=utf-7"),
        (b"--a\r\n\r\nx\r\n--a--\r\n", "multipart/form-data;boundary=a"),
        (b"", "multipart/form-data"),
    ],
)
async def test_a_form_that_cannot_be_read_is_refused(
    console: Console, path: str, body: bytes, kind: str
) -> None:
    answer = await _post_raw(console, path, body, **{"Content-Type": kind})
    assert answer.status in (400, 403)


async def _log_in(console: Console, token: str, *, from_address: str) -> int:
    """Log in from another address of this machine. Returns the status."""
    connector = TCPConnector(local_addr=(from_address, 0))
    async with (
        ClientSession(connector=connector) as client,
        client.post(
            f"{console.origin}/console/login", data={"token": token},
            headers={"Origin": console.origin}, allow_redirects=False,
        ) as answer,
    ):  # fmt: skip
        return answer.status


async def test_wrong_tokens_lock_out_only_the_address_they_come_from(console: Console) -> None:
    for number in range(20):
        assert await _log_in(console, f"wrong-{number}", from_address="127.0.0.2") == 403
    assert await _log_in(console, TOKEN, from_address="127.0.0.2") == 403
    assert await _log_in(console, TOKEN, from_address="127.0.0.1") == 303


async def test_behind_a_proxy_wrong_tokens_count_for_whom_it_names() -> None:
    async with console_of([], proxies="127.0.0.0/8") as console:

        async def log_in(token: str, forwarded: str) -> int:
            headers = {"Origin": console.origin, "X-Forwarded-For": forwarded}
            answer = await console.client.post(
                "/console/login", data={"token": token}, headers=headers, allow_redirects=False
            )
            return answer.status

        for number in range(20):
            assert await log_in("wrong", f"10.0.0.{number}, 192.0.2.1") == 403
        assert await log_in(TOKEN, "192.0.2.1, 127.0.0.7") == 403
        assert await log_in(TOKEN, "192.0.2.2") == 303
        assert await log_in(TOKEN, "nonsense") == 303


async def test_nobody_else_is_believed_about_an_address(console: Console) -> None:
    for number in range(20):
        await console.client.post(
            "/console/login", data={"token": "wrong"},
            headers={"Origin": console.origin, "X-Forwarded-For": f"192.0.2.{number}"},
        )  # fmt: skip
    assert (await console.log_in()).status == 403


@pytest.mark.parametrize(
    ("remote", "who"),
    [
        ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"), ("2001:db8::ff:1", "2001:db8::/64"), ("", "None"),
    ],
)  # fmt: skip
def test_an_address_is_what_one_machine_cannot_change(remote: str, who: str) -> None:
    request = make_mocked_request("POST", "/").clone(remote=remote)
    assert address_of(request, ()) == who


def test_remembered_addresses_are_bounded() -> None:
    tokens = Tokens(TOKEN)
    for number in range(2 * MOST_ADDRESSES):
        for _ in range(20):
            assert tokens.role_of("wrong", str(number)) is None
        with pytest.raises(TooManyWrong, match="wait a minute"):
            tokens.role_of(TOKEN, str(number))
    assert len(tokens._failed) == MOST_ADDRESSES
    assert all(len(failed) == 20 for failed in tokens._failed.values())


def test_sessions_are_bounded() -> None:
    sessions = Sessions()
    for _ in range(2 * MOST_SESSIONS):
        sessions.open("read")
    assert len(sessions._open) == MOST_SESSIONS


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://rings.example.com", "rings.example.com"),
        ("https://rings.example.com", "rings.example.com:443"),
        ("https://rings.example.com:8443", "rings.example.com:8443"),
        ("https://Rings.example.com", "rings.EXAMPLE.com"),
    ],
)
async def test_a_proxy_that_ends_tls_and_passes_the_host_on_is_served(
    origin: str, host: str
) -> None:
    async with console_of([queue_row("orders")], hosts="rings.example.com,other") as console:
        assert (await console.get("/", Host=host)).status == 200
        headers = {"Host": host, "Origin": origin}
        answer = await console.client.post(
            "/console/login", data={"token": TOKEN}, headers=headers, allow_redirects=False
        )
        assert answer.status == 303
        assert "Secure" in answer.headers["Set-Cookie"]
        headers["Origin"] = "https://other"
        assert (await console.client.post("/console/login", headers=headers)).status == 403
        assert (await console.get("/", Host="evil.example")).status == 421


def test_a_token_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    with pytest.raises(BadToken, match="cannot be read: No such file"):
        read_token(file)
    file.write_text("short\n")
    with pytest.raises(BadToken, match="has 5 characters: use 16 or more"):
        read_token(file)
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN
    monkeypatch.delenv("RINGFAUST_CONSOLE_TOKEN", raising=False)
    assert read_token(None) == ""
    monkeypatch.setenv("RINGFAUST_CONSOLE_TOKEN", TOKEN)
    assert read_token(None) == TOKEN


def test_what_only_this_machine_can_reach() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com")))
