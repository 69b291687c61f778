"""The network between each worker and the brokers: proxies that delay, cut and halve.

Each worker has a listener of its own at each broker, and each listener a proxy in front of it. So a
worker can lose the brokers, or a part of what it asks them, while all others reach them.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field

HOST = "127.0.0.1"
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
COORDINATOR = frozenset({JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP})
"""The requests of a member of a group to its coordinator."""
_SIZE = struct.Struct(">i")
_API = struct.Struct(">h")


@dataclass(slots=True)
class Link:
    """How one worker reaches the brokers. A test changes it at any time, from any thread."""

    delay_s: float = 0.0
    """How long each frame waits."""
    is_cut: bool = False
    """Whether connections are closed, and new ones refused."""
    halving: float = 0.0
    """The share of frames of which only a half arrives, before the connection ends."""
    lost: frozenset[int] = frozenset()
    """The API keys of requests that close their connection."""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def heal(self) -> None:
        """Pass everything again."""
        self.delay_s, self.is_cut, self.halving, self.lost = 0.0, False, 0.0, frozenset()


class Network:
    """The proxies of a cluster, in a thread of their own. Use it in a `with` block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forward(self, link: Link, target: int) -> int:
        """Listen for a link to a port. Returns the port that clients use."""
        started = asyncio.run_coroutine_threadsafe(self._listen(link, target), self._loop)
        return started.result()

    def cut(self, link: Link) -> None:
        """Close the connections of a link, and refuse new ones until it heals."""
        link.is_cut = True

        def close() -> None:
            for writer in link._writers:
                writer.transport.abort()

        self._loop.call_soon_threadsafe(close)

    async def _listen(self, link: Link, target: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _connect(link, target, reader, writer)

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _connect(
    link: Link, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Forward one connection until an end closes it, or the link does."""
    ends = {writer}
    try:
        if link.is_cut:
            return
        with suppress(OSError):
            broker_reader, broker_writer = await asyncio.open_connection(HOST, target)
            ends.add(broker_writer)
            link._writers |= ends
            directions = [
                asyncio.ensure_future(_forward(link, reader, broker_writer, is_request=True)),
                asyncio.ensure_future(_forward(link, broker_reader, writer, is_request=False)),
            ]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in directions:
                    each.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
    finally:
        link._writers -= ends
        for end in ends:
            end.transport.abort()


async def _forward(
    link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
) -> None:
    with suppress(asyncio.IncompleteReadError, OSError):
        while True:
            head = await reader.readexactly(_SIZE.size)
            frame = head + await reader.readexactly(_SIZE.unpack(head)[0])
            if link.delay_s:
                await asyncio.sleep(link.delay_s)
            if is_request and _API.unpack_from(frame, _SIZE.size)[0] in link.lost:
                return
            if link.halving and random.random() < link.halving:
                writer.write(frame[: len(frame) // 2])
                await writer.drain()
                return
            writer.write(frame)
            await writer.drain()
