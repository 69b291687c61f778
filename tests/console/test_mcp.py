"""`ringfaust mcp`: the operations of the HTTP API as tools, by the SDK's own client."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import call

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from ringfaust.client.errors import Refused
from ringfaust.console.mcp_server import mcp_server
from ringfaust.console.operations import OPERATIONS
from tests.console.harness import READ_TOKEN, TOKEN, Console, console_of, queue_details, queue_row


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    async with console_of([queue_row("orders")], read_token=READ_TOKEN) as running:
        running.backend.fake.queue.side_effect = None
        running.backend.fake.queue.return_value = queue_details("orders", ready=3)
        yield running


def client(console: Console, token: str = READ_TOKEN, *, changes: bool = False) -> Client:
    return Client(mcp_server(console.origin, token, allows_changes=changes))


def text(result: CallToolResult) -> Any:
    (content,) = result.content
    assert content.type == "text"
    return content.text


async def test_by_default_the_tools_are_the_operations_that_read(console: Console) -> None:
    async with client(console) as model:
        tools = {each.name: each for each in (await model.list_tools()).tools}
    assert tools.keys() == {name for name, each in OPERATIONS.items() if each.is_read}
    assert tools["queue"].input_schema["required"] == ["queue"]
    assert tools["queue"].description
    async with client(console, changes=True) as model:
        assert {each.name for each in (await model.list_tools()).tools} == OPERATIONS.keys()


async def test_a_tool_answers_what_the_api_answers(console: Console) -> None:
    async with client(console) as model:
        found = await model.call_tool("queue", {"queue": "orders"})
    assert not found.is_error
    assert json.loads(text(found))["counts"]["ready"] == 3


async def test_a_mistake_is_explained_to_the_model(console: Console) -> None:
    console.backend.fake.queue.side_effect = Refused("unknown_queue", "ordres", "no such queue")
    async with client(console) as model:
        refused = await model.call_tool("queue", {"queue": "ordres"})
        wrong = await model.call_tool("browse_page", {"queue": "orders", "limit": -1})
        unknown = await model.call_tool("purge", {"queue": "orders"})
    assert refused.is_error and "no such queue" in text(refused)
    assert wrong.is_error and json.loads(text(wrong))["errors"][0]["field"] == "limit"
    assert unknown.is_error and text(unknown) == "There is no tool 'purge'."


async def test_changes_need_the_option_and_a_token_for_them(console: Console) -> None:
    async with client(console, changes=True) as model:
        refused = await model.call_tool("purge", {"queue": "orders"})
    assert refused.is_error and "You may read" in text(refused)
    assert console.backend.fake.purge.mock_calls == []
    async with client(console, TOKEN, changes=True) as model:
        done = await model.call_tool("purge", {"queue": "orders"})
    assert not done.is_error and text(done) == "Done."
    assert console.backend.fake.purge.mock_calls == [call(queue="orders")]


async def test_a_console_that_does_not_answer_is_named() -> None:
    async with Client(mcp_server("http://127.0.0.1:1", "", allows_changes=False)) as model:
        failed = await model.call_tool("queues", {})
    assert failed.is_error and "The console at http://127.0.0.1:1 does not answer" in text(failed)


async def test_the_command_serves_on_stdin_and_stdout(console: Console) -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ringfaust", "mcp", "--url", console.origin],
        env={"RINGFAUST_CONSOLE_READ_TOKEN": READ_TOKEN},
    )
    async with Client(command) as model:
        found = await model.call_tool("queue", {"queue": "orders"})
    assert json.loads(text(found))["queue"] == "orders"
