"""The connections of the console: to the workers, and to the status topic."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka.errors import KafkaError

from ringfaust.client import Admin
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.status import StatusReader
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.console.board import Board
from ringfaust.console.redriving import Redriver
from ringfaust.console.schemas import Schemas

log = logging.getLogger(__name__)

ANSWER_MS = 15_000
"""How long a page waits for a worker."""
_AGAIN_S = 5.0
_SECOND_S = 1.0


class Backend:
    """Connects when the first page is requested, so a console that nobody opens costs nothing."""

    def __init__(self, worker: WorkerConfig, queues: QueuesConfig) -> None:
        """Connect to nothing yet.

        Raises:
            MissingExtra: there is a schema registry, and nothing that decodes.
        """
        self.worker = worker
        self.queues = queues
        self.redriver = Redriver(worker, queues)
        self.schemas = Schemas(worker.web.schema_registry or "")
        self.trouble = ""
        """Why the status topic cannot be read now; empty: it can."""
        self._status = StatusReader(**self.options)
        self._board = Board(self._status)
        self._following: asyncio.Task[None] | None = None
        self._admin: Admin | None = None
        self._connecting = asyncio.Lock()

    @property
    def options(self) -> ConnectOptions:
        """How to reach the application."""
        return {
            "bootstrap_servers": self.worker.bootstrap_servers,
            "application": self.worker.application,
            "client_options": self.worker.security.client_options(),
            "timeout_ms": ANSWER_MS,
        }

    @property
    def board(self) -> Board:
        """What is known of the application. It is kept current from now on."""
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        return self._board

    async def admin(self) -> Admin:
        """The connection to the workers.

        Raises:
            ClientError: the application has no topics.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        async with self._connecting:
            if self._admin is None:
                admin = Admin(**self.options)
                await admin.start()
                self._admin = admin
            return self._admin

    async def close(self) -> None:
        """Disconnect."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if self._admin is not None:
            await self._admin.close()

    async def _follow(self) -> None:
        """Read the status topic; begin again if that fails."""
        while True:
            try:
                await self._status.start()
                self.trouble = ""
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._board.run())
                    both.create_task(self._watch())
            except* Exception as errors:
                self.trouble = _reason(errors)
                log.warning("console: cannot read the status topic: %s", self.trouble)
            finally:
                await self._status.close()
            await asyncio.sleep(_AGAIN_S)
            self._status = self._board.source = StatusReader(**self.options)

    async def _watch(self) -> None:
        """Fail when the reader does."""
        while True:
            await self._status.changed(self._status.revision)
            await asyncio.sleep(_SECOND_S)


def _reason(errors: BaseExceptionGroup[Any]) -> str:
    error = errors.exceptions[0]
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return reason_of(error)


def reason_of(error: BaseException) -> str:
    """What an error means, in one sentence."""
    if isinstance(error, KafkaError):
        return f"The Kafka brokers failed: {type(error).__name__}."
    return str(error) or type(error).__name__
