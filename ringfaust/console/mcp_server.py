"""An MCP server: operations of the HTTP API as tools for a language model."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from ringfaust import __version__
from ringfaust.console.openapi import API_PREFIX
from ringfaust.console.operations import OPERATIONS, Operation

_TIMEOUT_S = 120.0
_Context = ServerRequestContext[dict[str, Any]]


def mcp_server(url: str, token: str, *, allows_changes: bool) -> Server[dict[str, Any]]:
    """The server. What its tools may do, the token decides.

    Args:
        url: of a console, without its path.
        token: of the console; empty: none, as on the console's machine.
        allows_changes: whether the tools that change something are offered, too.
    """
    api = url.rstrip("/") + API_PREFIX
    offered = {name: each for name, each in OPERATIONS.items() if each.is_read or allows_changes}

    async def list_tools(
        _: _Context, __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(each) for each in offered.values()])

    async def call_tool(_: _Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        operation = offered.get(asked.name)
        if operation is None:
            return _result(f"There is no tool {asked.name!r}.", is_error=True)
        try:
            return await _call(api, token, operation, asked.arguments or {})
        except (ClientError, TimeoutError) as error:
            return _result(f"The console at {url} does not answer: {error}", is_error=True)

    return Server(
        "ringfaust", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _tool(operation: Operation) -> types.Tool:
    return types.Tool(
        name=operation.name,
        description=f"{operation.summary}\n\n{operation.description}".strip(),
        input_schema=operation.parameters.model_json_schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=operation.is_read, destructive_hint=not operation.is_read
        ),
    )


async def _call(
    api: str, token: str, operation: Operation, given: dict[str, Any]
) -> types.CallToolResult:
    """Ask the API. It checks what is given, and its problems say what would be valid."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if operation.is_read:
        query = {name: _text(value) for name, value in given.items() if value is not None}
        request: dict[str, Any] = {"method": "GET", "params": query}
    else:
        request = {"method": "POST", "json": given}
    timeout = ClientTimeout(total=_TIMEOUT_S)
    async with (
        ClientSession(headers=headers, timeout=timeout) as session,
        session.request(url=api + operation.path, **request) as answer,
    ):
        return _result(await answer.text() or "Done.", is_error=not answer.ok)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _result(text: str, *, is_error: bool) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )


async def serve(url: str, token: str, *, allows_changes: bool) -> None:
    """Serve on stdin and stdout, until stdin ends; see `mcp_server`."""
    server = mcp_server(url, token, allows_changes=allows_changes)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
