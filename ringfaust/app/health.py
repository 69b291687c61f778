"""The health of a process that handles messages, and a page that shows it to an orchestrator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus

from ringfaust.errors import RingfaustError, reason_of_system
from ringfaust.supervisor import SupervisedProcess

_REQUEST_TIMEOUT_S = 5.0
_REQUEST_BYTES = 8_192


class CannotServe(RingfaustError):
    """The address of the health is in use, or not of this machine. The text names it."""


@dataclass(frozen=True, slots=True)
class SubscriberHealth:
    """One subscriber, since the start."""

    queue: str
    is_attached: bool
    """Whether it gets messages."""
    handling: int
    """Messages that are being handled now."""
    acked: int
    """Messages whose handler returned."""
    retried: int
    """Messages that went back to their queue."""
    dead: int
    """Messages that went to the dead topic."""


@dataclass(frozen=True, slots=True)
class Health:
    """The subscribers of an app in this process."""

    is_ok: bool
    """Whether all of them are attached."""
    subscribers: tuple[SubscriberHealth, ...]


@dataclass(frozen=True, slots=True)
class ProcessesHealth:
    """The processes of an app on this machine."""

    is_ok: bool
    """Whether all of them run."""
    processes: tuple[SupervisedProcess, ...]


@asynccontextmanager
async def serve_health(
    host: str, port: int, health: Callable[[], Health | ProcessesHealth]
) -> AsyncIterator[int]:
    """Answer any HTTP request with the health: as JSON, with status 200, or 503 if it is not ok.

    Yields:
        The port.

    Raises:
        CannotServe: the address is in use, or not of this machine.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                found = health()
                status = HTTPStatus.OK if found.is_ok else HTTPStatus.SERVICE_UNAVAILABLE
                body = json.dumps(asdict(found)).encode()
                writer.write(
                    b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                    b"Connection: close\r\n\r\n%s"
                    % (status, status.phrase.encode(), len(body), body)
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has disconnected, or does not speak HTTP
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_REQUEST_BYTES)
    except (OSError, UnicodeError) as error:
        raise CannotServe(
            f"cannot serve the health at {host}, port {port}: "
            f"{reason_of_system(error)}; choose another"
        ) from None
    async with server:
        yield server.sockets[0].getsockname()[1]
