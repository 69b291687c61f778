"""Server-sent events: one `tick` for each look at the status, with a point for the chart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from aiohttp import web

from ringfaust.console.board import Board
from ringfaust.console.context import CONSOLE, asked

ROUTES = web.RouteTableDef()
MOST_LISTENERS = 100
"""Most pages that are kept current at a time."""
_KEEP_ALIVE_S = 15.0


@ROUTES.get("/live")
async def events(request: web.Request) -> web.StreamResponse:
    """Send a tick for each look, until the page is closed."""
    queue = asked(request, "queue")
    console = request.config_dict[CONSOLE]
    if console.listeners >= MOST_LISTENERS:
        raise web.HTTPServiceUnavailable(text=f"{MOST_LISTENERS} pages are open: close some.")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    console.listeners += 1
    try:
        async for message in _ticks(console.backend.board, queue):
            if console.options.needs_login and console.sessions.of(request) is None:
                break  # logged out meanwhile
            await response.write(message)
    except ConnectionResetError:
        pass
    finally:
        console.listeners -= 1
    return response


async def _ticks(board: Board, queue: str) -> AsyncIterator[bytes]:
    while True:
        past = board.past_of(queue) if queue else board.past
        try:
            async with asyncio.timeout(_KEEP_ALIVE_S):
                await board.next_look()
        except TimeoutError:
            yield b": still here\n\n"
            continue
        point = json.dumps(past[-1]) if past else "null"
        yield f"event: tick\ndata: {point}\n\n".encode()
