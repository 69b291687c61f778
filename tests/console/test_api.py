"""The HTTP API: its operations, who may call which, and what it says of mistakes."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock, call

import pytest
from aiohttp import ClientResponse
from aiokafka.errors import KafkaConnectionError
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from ringfaust.client import Admin
from ringfaust.client.configuring import NotApplied
from ringfaust.client.errors import NoAnswer, Refused
from ringfaust.client.inspected import QueueSummary, XidDetails
from ringfaust.client.resource import AsyncResource
from ringfaust.console import operations
from ringfaust.console.api import MOST_BYTES
from ringfaust.console.openapi import openapi
from ringfaust.console.operations import INSTEAD, LIST_BYTES, OPERATIONS
from ringfaust.core.catalog import Configuration
from tests.console.harness import READ_TOKEN, TOKEN, Console, console_of, message_row, queue_row

READER = {"Authorization": f"Bearer {READ_TOKEN}"}
CHANGER = {"Authorization": f"Bearer {TOKEN}"}
API = "/console/api/v1"


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    async with console_of([queue_row("orders")], read_token=READ_TOKEN) as running:
        running.backend.fake.queues.return_value = []
        yield running


async def get(console: Console, path: str, **headers: str) -> ClientResponse:
    return await console.client.get(API + path, headers=READER | headers)


async def post(
    console: Console, path: str, body: Any = None, headers: dict[str, str] = CHANGER
) -> ClientResponse:
    return await console.client.post(API + path, json=body, headers=headers)


async def problem(answer: ClientResponse) -> dict[str, Any]:
    """A problem, as the document says that it is."""
    assert answer.content_type == "application/problem+json"
    text = await answer.text()
    found: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)  # NaN is no JSON
    assert "b'" not in text
    _validator({"$ref": "#/components/schemas/Problem"}).validate(found)
    assert found["status"] == answer.status
    return found


def _validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": openapi()["components"]})


# --- operations and their document ----------------------------------------------------------------


def test_each_method_of_admin_is_an_operation() -> None:
    public = {name for name, _ in inspect.getmembers(Admin, callable) if name[0] != "_"}
    methods = public - {name for name, _ in inspect.getmembers(AsyncResource, callable)}
    assert OPERATIONS.keys() == methods - {"browse", "raise_level"}
    assert OPERATIONS.keys() | INSTEAD.keys() == methods
    assert {*INSTEAD.values()} <= OPERATIONS.keys()
    routes = {
        (method, each["operationId"], path)
        for path, methods in openapi()["paths"].items()
        for method, each in methods.items()
    }
    assert routes == {
        ("get" if each.is_read else "post", name, f"/{name.replace('_', '-')}")
        for name, each in OPERATIONS.items()
    }


def test_who_only_reads_can_call_nothing_that_writes_a_command() -> None:
    queries = {"queues", "queue", "homes", "browse_page", "message", "xids", "configuration"}
    of_topic = {"history", "settings_since", "feature_level"}
    assert {name for name, each in OPERATIONS.items() if each.is_read} == queries | of_topic


def test_nobody_says_here_that_no_worker_runs() -> None:
    """Then `apply` would not ask the workers whether queues with messages would move (R113)."""
    assert {*OPERATIONS["apply"].parameters.model_fields} == {"document", "text", "after"}


def test_the_document_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(openapi()).validate()
    pause = openapi()["components"]["schemas"]["pause"]
    assert pause["properties"]["what"]["enum"] == ["pulling", "dispatch"]
    assert pause["required"] == ["queue"]


def test_a_parameter_may_be_as_large_as_its_description_says() -> None:
    described = [
        (each["description"], each["schema"])
        for methods in openapi()["paths"].values()
        for method in methods.values()
        for each in method.get("parameters", ())
        if "up to" in each.get("description", "")
    ]
    assert described
    for text, schema in described:
        assert f"up to {schema['maximum']:,}" in text


async def test_the_document_is_served(console: Console) -> None:
    assert await (await get(console, "/openapi.json")).json() == json.loads(json.dumps(openapi()))


# --- calling --------------------------------------------------------------------------------------

CALLS: dict[str, tuple[dict[str, Any], Any]] = {
    "pause": ({"queue": "orders", "what": "pulling"}, call(queue="orders", what="pulling")),
    "resume": ({"queue": "orders"}, call(queue="orders", what="dispatch")),
    "purge": ({"queue": "a b/ü"}, call(queue="a b/ü")),
    "configure": (
        {"queue": "q", "settings": {"ring_size": 5, "evict": None}},
        call(queue="q", settings={"ring_size": 5, "evict": None}),
    ),
    "skip_record": (
        {"partition": "2", "at": "t/2/7"}, call(partition="2", at="t/2/7", by="http-api"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_a_change_asks_admin(console: Console, name: str) -> None:
    body, expected = CALLS[name]
    answer = await post(console, OPERATIONS[name].path, body)
    assert answer.status == 204, await answer.text()
    method = getattr(console.backend.fake, name)
    assert method.mock_calls == [expected]


async def test_a_list_comes_in_pages(console: Console) -> None:
    def queue(name: str, partition: int) -> QueueSummary:
        return QueueSummary(
            queue=name, partition=partition, ring_size=1, counts={}, paused=(), consumers=0
        )

    names = ["a", "b", "b", "b", "c"]
    console.backend.fake.queues.return_value = [queue(n, i) for i, n in enumerate(names)]
    found, after = [], ""
    while after is not None:
        page = await (await get(console, f"/queues?limit=2&after={after}")).json()
        found.append([each["queue"] for each in page["items"]])
        after = page["next"]
    assert found == [["a", "b", "b", "b"], ["c"]]


async def test_only_what_is_on_a_page_is_made_json(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of 100,000 queues held up the event loop for seconds, and so the worker around it."""
    made = Mock(side_effect=operations.plain)
    monkeypatch.setattr(operations, "plain", made)
    console.backend.fake.queues.return_value = [
        QueueSummary(
            queue=f"q{number:03}", partition=0, ring_size=1, counts={}, paused=(), consumers=0
        )
        for number in range(500)
    ]  # fmt: skip
    page = await (await get(console, "/queues?limit=3&after=q100")).json()
    assert ([each["queue"] for each in page["items"]], page["next"]) == (
        ["q101", "q102", "q103"], "q103",
    )  # fmt: skip
    assert made.call_count == 3


async def test_what_was_applied_comes_in_pages_of_bounded_size(console: Console) -> None:
    """100 revisions of 256 KiB were one answer of 25 MB."""
    document = {"queues": {"q" * 240: {"selector": "x" * 200_000}}}
    console.backend.fake.history.return_value = [
        Configuration(number, document, "ann", "why", 5) for number in range(20)
    ]
    found: list[int] = []
    after: int | None = -1
    while after is not None:
        answer = await (await get(console, f"/history?after={after}")).text()
        assert len(answer) < LIST_BYTES + 300_000
        page = json.loads(answer)
        found += [each["revision"] for each in page["items"]]
        after = page["next"]
    assert found == list(range(20))


async def test_answers_are_as_the_document_says(console: Console) -> None:
    fake = console.backend.fake
    fake.message.return_value = message_row("m", b"\xff\x00")
    fake.xids.return_value = [
        XidDetails(xid="x", prepared=True, operations=1, began_ms=2, partitions=(0,))
    ]
    fake.history.return_value = [Configuration(1, {"queues": {}}, "ann", "why", 5)]
    fake.configuration.return_value = {0: fake.history.return_value[0]}
    for path in ("/message?queue=orders&message=m", "/xids", "/history", "/configuration",
                 "/queue?queue=orders", "/queues", "/browse-page?queue=orders"):  # fmt: skip
        answer = await get(console, path)
        assert answer.status == 200, await answer.text()
        described = openapi()["paths"][path.partition("?")[0]]["get"]["responses"]["200"]
        _validator(described["content"]["application/json"]["schema"]).validate(await answer.json())
    message = await (await get(console, "/message?queue=orders&message=m")).json()
    assert message["value"]["start"] == "base64:/wA="
    assert (await (await get(console, "/history")).json())["items"][0]["who"] == "ann"


async def test_move_oldest_says_how_many(console: Console) -> None:
    async def move_oldest(queue: str, to: str, most: int) -> AsyncIterator[int]:
        yield 0
        yield most

    console.backend.fake.move_oldest.side_effect = move_oldest
    answer = await post(console, "/move-oldest", {"queue": "a", "to": "b", "most": 7})
    assert await answer.json() == {"moved": 7}


# --- permission -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [each.name for each in OPERATIONS.values() if not each.is_read])
async def test_the_token_that_reads_changes_nothing(console: Console, name: str) -> None:
    answer = await post(console, OPERATIONS[name].path, {"queue": "orders"}, READER)
    assert answer.status == 403
    assert (await problem(answer))["detail"] == "You may read, but not change anything."
    assert console.backend.fake.mock_calls == []


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "Basic abc", "Bearer ü"])
async def test_without_a_token_nothing_is_answered(console: Console, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for path in ("/queues", "/openapi.json", "/nowhere"):
        answer = await console.client.get(API + path, headers=headers)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        await problem(answer)


async def test_on_this_machine_reading_needs_no_token_and_changing_does() -> None:
    async with console_of([]) as console:
        console.backend.fake.queues.return_value = []
        assert (await console.client.get(f"{API}/queues")).status == 200
        assert (await post(console, "/purge", {"queue": "orders"}, {})).status == 401
        assert (await post(console, "/purge", {"queue": "orders"})).status == 204


async def test_wrong_tokens_are_counted(console: Console) -> None:
    for _ in range(20):
        assert (await post(console, "/purge", {}, {"Authorization": "Bearer no"})).status == 401
    answer = await post(console, "/purge", {"queue": "orders"})
    assert answer.status == 429
    assert answer.headers["Retry-After"] == "60"
    assert "wait a minute" in (await problem(answer))["detail"]


async def test_a_browser_needs_an_origin_of_the_console(console: Console) -> None:
    await console.log_in(TOKEN)
    for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert (await post(console, "/purge", {"queue": "orders"}, origin)).status == 403
    console.backend.fake.purge.assert_not_called()
    own = {"Origin": console.origin}
    assert (await post(console, "/purge", {"queue": "orders"}, own)).status == 204
    assert (await console.client.get(f"{API}/queues")).status == 200


async def test_a_form_of_another_site_is_no_json(console: Console) -> None:
    answer = await console.client.post(f"{API}/purge", data={"queue": "orders"}, headers=CHANGER)
    assert answer.status == 415
    await problem(answer)


async def test_only_our_own_names_are_answered(console: Console) -> None:
    answer = await get(console, "/queues", Host="evil.example")
    assert answer.status == 421
    await problem(answer)
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "field", "value", "valid"),
    [
        ("/queue", "queue", None, "it is missing"),
        ("/queues?limit=0", "limit", "0", "greater than or equal to 1"),
        ("/queues?limt=1", "limt", "1", "did you mean 'limit'?"),
        (
            "/browse-page?queue=q&state=gone",
            "state",
            "gone",
            "'ready', 'delivering' or 'scheduled'",
        ),
        ("/browse-page?queue=q&body_bytes=x", "body_bytes", "x", "valid integer"),
    ],
)
async def test_a_mistake_in_an_address_is_named(
    console: Console, path: str, field: str, value: str | None, valid: str
) -> None:
    answer = await get(console, path)
    assert answer.status == 400
    [found] = (await problem(answer))["errors"]
    assert (found["field"], found["value"]) == (field, value)
    assert valid in found["valid"]


async def test_an_answer_explains_a_part_of_very_many_mistakes(console: Console) -> None:
    found = await problem(await post(console, "/pause", dict.fromkeys(map(str, range(5_000)))))
    assert len(found["errors"]) == 20


@pytest.mark.parametrize(
    ("body", "field", "valid"),
    [
        ({"queue": ""}, "queue", "at least 1 character"),
        ({"queue": "x" * 300}, "queue", "at most 249 characters"),
        ({"queue": 7}, "queue", "valid string"),
        ({"queue": "q", "what": "all"}, "what", "'pulling' or 'dispatch'"),
        ({"queue": "q", "waht": "pulling"}, "waht", "did you mean 'what'?"),
        ({"queue": "q", "by": "me"}, "by", "no such parameter"),
        ([], "", "object"),
        ("text", "", "object"),
    ],
)
async def test_a_mistake_in_a_body_is_named(
    console: Console, body: Any, field: str, valid: str
) -> None:
    found = await problem(await post(console, "/pause", body))
    assert found["type"] == "urn:ringfaust:problem:not_valid"
    assert found["errors"][0]["field"] == field
    assert valid in found["errors"][0]["valid"]
    assert len(json.dumps(found)) < 2_000
    console.backend.fake.pause.assert_not_called()


@pytest.mark.parametrize(
    ("routes", "field", "valid"),
    [
        (3, "routes", "a list"),
        ([{"topic": "t"}], "routes.0.queue", "required"),
        ([{"topic": "t", "queue": "orders.{kye}"}], "routes.0.queue", "did you mean '{key}'?"),
        ([{"topic": "shop.events", "queue": "q"}], "routes.0.topic", "feed itself"),
    ],
)
async def test_a_configuration_is_checked_as_the_file_is(
    console: Console, routes: Any, field: str, valid: str
) -> None:
    """Else workers would take it up, and none could start with it any more."""
    console.backend.worker = console.backend.worker.model_copy(update={"application": "shop"})
    body = {"document": {"routes": routes, "queues": {"q": {}, "orders.*": {}}}}
    answer = await post(console, "/apply", body)
    assert answer.status == 400
    [found] = (await problem(answer))["errors"]
    assert found["field"] == f"document.{field}"
    assert valid in found["valid"]
    console.backend.fake.apply.assert_not_called()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400), (b"{", 400), (b"\xff", 400), (b'{"queue": "\\ud800"}', 400),
        (b"[" * 100_000, 400), (b'{"queue": NaN}', 400), (b'{"queue": 1e999}', 400),
        (b"1" * 5_000, 400),
        (b" " * (MOST_BYTES + 1), 413),
    ],
)  # fmt: skip
async def test_what_is_no_json_or_too_long_is_refused(
    console: Console, raw: bytes, status: int
) -> None:
    headers = CHANGER | {"Content-Type": "application/json"}
    answer = await console.client.post(f"{API}/purge", data=raw, headers=headers)
    assert answer.status == status
    await problem(answer)
    console.backend.fake.purge.assert_not_called()


@pytest.mark.parametrize(
    ("error", "status", "kind", "field"),
    [
        (Refused("unknown_queue", "orders", "no such queue"), 404, "unknown_queue", "queue"),
        (Refused("bad_command", "ring_size", "0 is too small"), 400, "bad_command",
         "settings.ring_size"),
        (Refused("queue_full", "other", "it is full"), 409, "queue_full", ""),
        (NotApplied("another revision"), 409, "not_applied", None),
        (NoAnswer("no worker"), 504, "no_answer", None),
        (OSError("down"), 502, "unreachable", None),
        (KeyError("a secret"), 500, "internal", None),
    ],
)  # fmt: skip
async def test_an_error_of_admin_is_a_problem(
    console: Console, error: Exception, status: int, kind: str, field: str | None
) -> None:
    console.backend.fake.configure.side_effect = error
    answer = await post(console, "/configure", {"queue": "orders", "settings": {"ring_size": 0}})
    assert answer.status == status
    found = await problem(answer)
    assert found["type"] == f"urn:ringfaust:problem:{kind}"
    assert "a secret" not in found["detail"]
    assert [each["field"] for each in found.get("errors", [])] == ([] if field is None else [field])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("POST", "/queues", 405), ("GET", "/purge", 405),
     ("GET", "/queues?limit=1&limit=2", 400)],
)  # fmt: skip
async def test_what_does_not_exist_is_a_problem(
    console: Console, method: str, path: str, status: int
) -> None:
    answer = await console.client.request(method, API + path, headers=CHANGER)
    assert answer.status == status
    await problem(answer)


async def test_brokers_that_do_not_answer_are_called_that(console: Console) -> None:
    """It said "The Kafka brokers failed: KafkaConnectionError."; so did the banner of a page."""
    console.backend.fake.queues.side_effect = KafkaConnectionError("Unable to bootstrap from …")
    answer = await get(console, "/queues")
    assert answer.status == 502
    assert (await problem(answer))["detail"] == "The Kafka brokers do not answer."


async def test_a_message_that_is_not_there_is_not_found(console: Console) -> None:
    console.backend.fake.message.return_value = None
    answer = await get(console, "/message?queue=orders&message=m")
    assert answer.status == 404
    await problem(answer)
