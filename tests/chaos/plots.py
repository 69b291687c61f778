"""What is done to the workers and the broker, in the middle of the load."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.rig import Application, Worker
from tests.chaos.verdict import wait_for_work

SESSION_MS = 6_000
"""The shortest that a broker allows unless it is told otherwise."""


class Stage:
    """Where a plot plays."""

    def __init__(self, app: Application, broker: EmbeddedBroker, rng: random.Random) -> None:
        self.app = app
        self.broker = broker
        self._random = rng

    def victim(self) -> Worker:
        return self._random.choice(self.app.workers)

    async def moment(self) -> None:
        """Any moment: what is under way then is chance, and that is the point."""
        if self._random.random() < 0.7:  # else perhaps while a worker is still starting
            await wait_for_work(self.app)
        await asyncio.sleep(self._random.uniform(0.1, 2))


async def kill(stage: Stage) -> None:
    """SIGKILL, and a start with what is there."""
    worker = stage.victim()
    worker.kill()
    worker.start()


async def kill_and_wipe(stage: Stage) -> None:
    """SIGKILL, and a start without its RocksDB."""
    worker = stage.victim()
    worker.kill()
    worker.wipe()
    worker.start()


async def terminate(stage: Stage) -> None:
    """SIGTERM: an orderly stop in the middle of the load."""
    worker = stage.victim()
    code = await asyncio.to_thread(worker.stop)
    assert code == 0, f"{worker.name} ended with {code}: {worker.said()[-3_000:]}"
    worker.start()


async def take_over(stage: Stage) -> None:
    """SIGKILL; the others take over; later it comes back."""
    worker = stage.victim()
    worker.kill()
    await asyncio.sleep(SESSION_MS / 1000 + 2)
    worker.start()


async def zombie(stage: Stage) -> None:
    """SIGSTOP for longer than its session; SIGCONT finds its partitions taken."""
    worker = stage.victim()
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(SESSION_MS / 1000 + 3)
    worker.signal(signal.SIGCONT)


async def restart_broker(stage: Stage) -> None:
    """The broker goes and comes back, with its data."""
    await asyncio.to_thread(stage.broker.restart)


Plot = Callable[[Stage], Awaitable[None]]

ALONE: tuple[Plot, ...] = (kill, kill_and_wipe, terminate, zombie, restart_broker)
TOGETHER: tuple[Plot, ...] = (*ALONE, take_over, zombie)
