"""Values that a schema registry describes, with a small registry that the test starts."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ringfaust.client.inspected import Excerpt, MessagePage
from ringfaust.console import schemas as module
from ringfaust.console.schemas import Schemas
from ringfaust.errors import MissingExtra
from tests.console.harness import console_of, message_row

fastavro = pytest.importorskip("fastavro")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
ORDER = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "seal", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
CHAIN = {"type": "record", "name": "C", "fields": [{"name": "next", "type": ["null", "C"]}]}
CLAIM = b"\x80\x80\x80\x80\x80\x40\x00"
"""An array of 2^40 items, each without bytes."""
BILL = {
    "type": "record", "name": "Bill",
    "fields": [{"name": "order", "type": "string"}, {"name": "total", "type": "Money"}],
}  # fmt: skip


def proto(name: str, *messages: str, uses: tuple[str, ...] = ()) -> Any:
    """A file in which each message has a text and, if it uses Google's, a time."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    file.dependency.extend(uses)
    for each in messages:
        message = file.message_type.add(name=each)
        message.field.add(name="its_text", number=1, type=9, label=1)
        for number, used in enumerate(uses, 2):
            kind = ".google.protobuf.Timestamp" if "google" in used else ".shop.Part"
            message.field.add(name=f"f{number}", number=number, type=11, label=1, type_name=kind)
    return file


def serialized(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


TIMES = "google/protobuf/timestamp.proto"
FILES = {
    "/schemas/ids/1": {"schema": json.dumps(ORDER)},
    "/schemas/ids/2": {
        "schema": json.dumps(BILL), "schemaType": "AVRO",
        "references": [{"name": "Money", "subject": "money", "version": 3}],
    },
    "/subjects/money/versions/3": {"subject": "money", "schema": json.dumps(MONEY)},
    "/schemas/ids/3": {"schemaType": "PROTOBUF", "schema": "message First {} message Second {}"},
    "/schemas/ids/3?format=serialized": {
        "schemaType": "PROTOBUF",
        "schema": serialized(proto("own.proto", "First", "Second", uses=(TIMES, "part.proto"))),
        "references": [{"name": "part.proto", "subject": "part", "version": 1}],
    },
    "/subjects/part/versions/1?format=serialized": {"schema": serialized(proto("x", "Part"))},
    "/schemas/ids/4": {"schemaType": "JSON", "schema": "{}"},
    "/schemas/ids/5": {"schema": json.dumps({"type": "array", "items": "null"})},
    "/schemas/ids/6": {"schema": json.dumps(CHAIN)},
}  # fmt: skip


class SmallRegistry:
    """Answers as Confluent's does, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        found = FILES.get(request.path_qs)
        if found is None:
            return web.json_response({"error_code": 40403}, status=404)
        return web.json_response(found, content_type="application/vnd.schemaregistry.v1+json")


@pytest.fixture
async def registry() -> AsyncIterator[tuple[SmallRegistry, str]]:
    small = SmallRegistry()
    app = web.Application()
    app.router.add_get("/{any:.*}", small.answer)
    async with TestServer(app) as server:
        yield small, str(server.make_url("/"))


def value(number: int, body: bytes) -> Excerpt:
    whole = b"\0" + number.to_bytes(4, "big") + body
    return Excerpt(start=whole, size_bytes=len(whole))


def avro(schema: Any, content: Any, *named: Any) -> bytes:
    known: dict[str, Any] = {}
    for each in named:
        fastavro.parse_schema(each, known)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, known), content)
    return out.getvalue()


AN_ORDER = value(1, avro(ORDER, {"id": "o-1", "seal": b"\xff", "at": 1_700_000_000_000}))


async def shown(url: str, *values: Excerpt) -> list[Any]:
    return [json.loads(each.start) for each in await Schemas(url).decoded(*values) if each]


async def test_avro_becomes_json(registry: tuple[SmallRegistry, str]) -> None:
    bill = value(2, avro(BILL, {"order": "o-1", "total": {"cents": 5}}, MONEY))
    assert await shown(registry[1], AN_ORDER, bill) == [
        {"id": "o-1", "seal": "base64:/w==", "at": "2023-11-14 22:13:20+00:00"},
        {"order": "o-1", "total": {"cents": 5}},
    ]


async def test_protobuf_becomes_json(registry: tuple[SmallRegistry, str]) -> None:
    text = b"\x0a\x02hi"
    at = b"\x12\x02\x08\x05"  # five seconds after 1970
    part = b"\x1a\x04\x0a\x02oh"
    first, second = value(3, b"\x00" + text), value(3, b"\x02\x02" + text + at + part)
    assert await shown(registry[1], first, second) == [
        {"its_text": "hi"},
        {"its_text": "hi", "f2": "1970-01-01T00:00:05Z", "f3": {"its_text": "oh"}},
    ]


async def test_json_loses_the_number_of_its_schema(registry: tuple[SmallRegistry, str]) -> None:
    assert await shown(registry[1], value(4, b'{"a": 1}')) == [{"a": 1}]


async def test_what_cannot_be_decoded_stays_as_it_is(registry: tuple[SmallRegistry, str]) -> None:
    small, url = registry
    short = Excerpt(start=AN_ORDER.start, size_bytes=9_000)
    other = [
        None, short, Excerpt(start=b"text", size_bytes=4), Excerpt(start=b"\0\0", size_bytes=2),
        value(1, b"\xff"), value(3, b"\x7e\x7e"), value(3, b"\xfe"), value(404, b"x"),
        value(3, b"\x80" * 50_000 + b"\0"), value(5, CLAIM), value(6, b"\x02" * 20_000 + b"\0"),
    ]  # fmt: skip
    schemas = Schemas(url)
    assert await schemas.decoded(*other) == other
    asked = len(small.asked)
    assert await schemas.decoded(*other) == other
    assert len(small.asked) == asked, "neither what is known nor what has failed is asked again"


async def test_what_the_log_says_of_a_failure_is_no_secret(
    registry: tuple[SmallRegistry, str], caplog: pytest.LogCaptureFixture
) -> None:
    with_password = registry[1].replace("//", "//user:hunter2@")
    for url in (with_password, with_password + "0" * 9):
        await Schemas(url).decoded(value(404, b"x"))
    first, second = caplog.messages
    assert "404" in first and "hunter2" not in second
    assert base64.b64encode(b"user:hunter2").decode() not in caplog.text


async def test_values_are_decoded_beside_the_event_loop(
    registry: tuple[SmallRegistry, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def read(schema: Any, named: Any, body: bytes) -> str:
        threads.append(threading.current_thread())
        return "read"

    monkeypatch.setattr(module, "read_avro", read)
    assert await shown(registry[1], AN_ORDER) == ["read"]
    assert threads and threading.current_thread() not in threads


async def test_without_a_registry_nothing_is_asked() -> None:
    assert await Schemas("").decoded(AN_ORDER) == [AN_ORDER]
    assert await Schemas("http://127.0.0.1:1").decoded(AN_ORDER) == [AN_ORDER]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    Schemas("")
    with pytest.raises(MissingExtra, match=r"pip install '.\[console\]'"):
        Schemas("http://127.0.0.1:8081")


async def test_pages_show_it(registry: tuple[SmallRegistry, str]) -> None:
    message = message_row("o-1", AN_ORDER.start)
    async with console_of([]) as console:
        console.backend.schemas = Schemas(registry[1])
        console.backend.fake.message.return_value = message
        console.backend.fake.browse_page.return_value = MessagePage(messages=(message,), after=None)
        for path in ("/message?queue=orders&id=o-1", "/queue?name=orders"):
            assert "&#34;seal&#34;: &#34;base64:/w==&#34;" in await console.text(path)
