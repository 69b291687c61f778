"""Kafka clients that stay connected, for the short questions of a worker.

To open a client takes several connections and requests: much longer than a question. A partition
that is opened asks about topics, offsets and logs, and nobody serves it meanwhile (R124).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from ringfaust.cancellation import cancellation_is_kept
from ringfaust.transactional.vendor import stop_client

T = TypeVar("T")


class Clients:
    """What questions are asked with."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.admin = AIOKafkaAdminClient(**options)
        self.consumer = AIOKafkaConsumer(
            **options, isolation_level="read_committed", enable_auto_commit=False
        )
        self.questions = 0
        """How many are being asked."""

    async def open(self) -> None:
        """Connect. If that fails, or is cancelled, they are closed."""
        try:
            await asyncio.gather(self.admin.start(), self.consumer.start())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        try:
            await stop_client(self.consumer)
        finally:
            with cancellation_is_kept():
                await self.admin.close()


class SharedClients:
    """Keeps clients open between the questions of an `async with` block; outside, for each one.

    After an error nobody knows what is wrong with a connection that was idle. So the next question
    gets other clients, and the same question is asked once more if it had used older ones.
    """

    def __init__(self, open_clients: Callable[[], Awaitable[Clients]]) -> None:
        """Connect to nothing yet; `open_clients`: opens clients, once they are needed."""
        self._open_clients = open_clients
        self._clients: Clients | None = None
        self._one_opens = asyncio.Lock()
        self._is_kept = False

    async def __aenter__(self) -> Self:
        """Keep them open from now on."""
        self._is_kept = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them as soon as no question is being asked."""
        self._is_kept = False
        clients, self._clients = self._clients, None
        if clients is not None and not clients.questions:
            await clients.close()

    async def ask(self, question: Callable[[Clients], Awaitable[T]]) -> T:
        """Ask a question.

        Raises:
            KafkaError: the brokers cannot be reached, or what the question raises.
        """
        while True:
            async with self._one_opens:
                is_new = self._clients is None
                clients = self._clients = self._clients or await self._open_clients()
                clients.questions += 1
            try:
                return await question(clients)
            except (KafkaError, OSError, TimeoutError):
                self._forget(clients)
                if is_new:
                    raise
            finally:
                clients.questions -= 1
                if not self._is_kept:
                    self._forget(clients)
                if clients is not self._clients and not clients.questions:
                    await clients.close()

    def _forget(self, clients: Clients) -> None:
        if self._clients is clients:
            self._clients = None


def shared_clients(options: Mapping[str, Any]) -> SharedClients:
    """Clients of one cluster; `options`: of any Kafka client."""

    async def opened() -> Clients:
        clients = Clients(options)
        await clients.open()
        return clients

    return SharedClients(opened)
