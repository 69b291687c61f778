"""A proxy between Kafka clients and a broker, which loses the responses that a test names."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, Self

END_TXN = 26
TXN_OFFSET_COMMIT = 28
_FLEXIBLE = 3
"""From this version on, a request to end a transaction has tags and short lengths."""
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
_IDENTITY = struct.Struct(">qh")
"""Producer id and epoch."""


class Ended(NamedTuple):
    """A request to end a transaction."""

    transactional_id: str
    epoch: int
    commit: bool

    @classmethod
    def of(cls, frame: bytes) -> Self:
        _, version, _, length = _HEAD.unpack_from(frame)
        at = _HEAD.size + max(length, 0)
        if version >= _FLEXIBLE:  # behind the tags of the header, a length of one byte, plus 1
            begin, length = at + 2, frame[at + 1] - 1
        else:
            begin, length = at + 2, int.from_bytes(frame[at : at + 2], "big")
        end = begin + length
        _, epoch = _IDENTITY.unpack_from(frame, end)
        return cls(frame[begin:end].decode(), epoch, bool(frame[end + _IDENTITY.size]))


class Proxy:
    """Forwards requests and responses.

    Attributes:
        ended: how often each request to end a transaction came.
        late: the requests that were held back; `deliver` sends them on.
    """

    def __init__(self, servers: str) -> None:
        self._host, _, port = servers.partition(":")
        self._port = int(port)
        self._losing: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended: Counter[Ended] = Counter()
        self.late: list[bytes] = []

    def lose(self, api_key: int, times: int = 1) -> None:
        """Hold back the next requests of a kind, and close their connections."""
        self._losing[api_key] = times

    async def deliver(self) -> list[bytes]:
        """Let the requests that were held back reach the broker. Returns its responses."""
        late, self.late = self.late, []
        answers = []
        for frame in late:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            writer.write(_SIZE.pack(len(frame)) + frame)
            answers.append(await _read(reader))
            writer.close()
        return answers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Listen until the block ends. Yields the address for `bootstrap_servers`."""
        server = await asyncio.start_server(self._accept, self._host, 0)
        self._own_port = server.sockets[0].getsockname()[1]
        try:
            yield f"{self._host}:{self._own_port}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        back = asyncio.ensure_future(self._forward_responses(broker_reader, writer))
        try:
            with suppress(asyncio.IncompleteReadError, OSError):
                await self._forward_requests(reader, broker_writer)
        finally:
            back.cancel()
            writer.close()
            broker_writer.close()
            self._tasks.discard(task)

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await _read(reader)
            api_key, *_ = _HEAD.unpack_from(frame)
            if api_key == END_TXN:
                self.ended[Ended.of(frame)] += 1
            if self._losing[api_key]:
                self._losing[api_key] -= 1
                self.late.append(frame)
                return
            writer.write(_SIZE.pack(len(frame)) + frame)
            await writer.drain()

    async def _forward_responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Clients learn the proxy's port instead of the broker's."""
        host = self._host.encode()
        brokers, ours = host + _SIZE.pack(self._port), host + _SIZE.pack(self._own_port)
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = (await _read(reader)).replace(brokers, ours)
                writer.write(_SIZE.pack(len(frame)) + frame)
                await writer.drain()


async def _read(reader: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)
