"""The connections of the console: to the workers, and to the status topic."""

from __future__ import annotations

import asyncio
import logging

from aiokafka.errors import KafkaConnectionError, KafkaError

from ringfaust.client import Admin
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.status import StatusReader
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse, configuration_in_use
from ringfaust.console.board import Board, Look
from ringfaust.console.history import History
from ringfaust.console.points import POINTS, STEP_MS
from ringfaust.console.redriving import Redriver
from ringfaust.console.schemas import Schemas
from ringfaust.times import wall_ms

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
        self._queues = queues
        self.redriver = Redriver(worker, self.in_use)
        self.schemas = Schemas(worker.web.schema_registry or "")
        self.trouble = ""
        """Why the status topic cannot be read now; empty: it can."""
        self._board = Board(StatusReader(**self.options))
        self._has_read = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._admin: Admin | None = None
        self._connecting = asyncio.Lock()

    async def in_use(self) -> InUse:
        """The configuration in use: what was applied last, or else that of the file (R128).

        Raises:
            ConfigError: what was applied is not valid for this version.
            KafkaError: the brokers cannot be reached or refuse the client.
            UnsupportedLevel: this version does not support the feature level in use (R129).
        """
        return await configuration_in_use(self.worker, self._queues)

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

    @property
    def latest(self) -> Look | None:
        """The latest look; None: there is none yet."""
        return self._board.look

    async def admin(self) -> Admin:
        """The connection to the workers; another one, if it cannot read their answers any more.

        Raises:
            ClientError: the application has no topics.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        async with self._connecting:
            if self._admin is not None and self._admin.connection.failure is not None:
                failed, self._admin = self._admin, None
                await failed.close()
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
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read_status())
            both.create_task(self._look())

    async def _look(self) -> None:
        """Look on while the topic cannot be read: figures that get older must be seen to."""
        await self._has_read.wait()
        await self._board.run()

    async def _read_status(self) -> None:
        """Read the status topic; begin again if that fails. What was read stays until then."""
        while True:
            status = StatusReader(**self.options)
            if not self._has_read.is_set():
                since_ms = wall_ms() - POINTS * STEP_MS
                status.note = (history := History(since_ms)).note
                self._board.history = history
            try:
                await status.start()
                status.note = None
                self._board.source = status
                self._has_read.set()
                self.trouble = ""
                while True:
                    await status.changed(status.revision)
                    await asyncio.sleep(_SECOND_S)
            except Exception as error:  # noqa: BLE001 - the page shows it
                self.trouble = reason_of(error)
                log.warning("console: cannot read the status topic: %s", self.trouble)
            finally:
                await status.close()
            await asyncio.sleep(_AGAIN_S)


def reason_of(error: BaseException) -> str:
    """What an error means, in one sentence."""
    if isinstance(error, KafkaConnectionError):
        return "The Kafka brokers do not answer."
    if isinstance(error, KafkaError):
        return f"The Kafka brokers failed: {type(error).__name__}."
    return str(error) or type(error).__name__
