"""What happens to the workers and the broker in the middle of the load."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import START_S, Application, Worker, until
from tests.chaos.verdict import wait_for_work

SESSION_MS = 6_000
"""The shortest session timeout that a broker allows by default."""


class Harness:
    """The application, its broker and the random numbers of a round."""

    def __init__(self, app: Application, broker: EmbeddedBroker, rng: random.Random) -> None:
        self.app = app
        self.broker = broker
        self._random = rng

    def victim(self) -> Worker:
        return self._random.choice(self.app.workers)

    async def moment(self) -> None:
        """Wait for a random moment, so that a disaster may interrupt anything."""
        if self._random.random() < 0.7:  # else perhaps while a worker is still starting
            await wait_for_work(self.app)
        await asyncio.sleep(self._random.uniform(0.1, 2))


async def kill(harness: Harness) -> None:
    """SIGKILL, then a start with its data directory."""
    worker = harness.victim()
    worker.kill()
    worker.start()


async def kill_and_wipe(harness: Harness) -> None:
    """SIGKILL, then a start without its data directory."""
    worker = harness.victim()
    worker.kill()
    worker.wipe()
    worker.start()


async def terminate(harness: Harness) -> None:
    """SIGTERM: an orderly stop in the middle of the load."""
    worker = harness.victim()
    faults = await harness.app.stop(worker)
    assert not faults, faults[0]
    worker.start()


async def take_over(harness: Harness) -> None:
    """SIGKILL. The others take over, and later it comes back."""
    worker = harness.victim()
    worker.kill()
    await asyncio.sleep(SESSION_MS / 1000 + 2)
    worker.start()


async def zombie(harness: Harness) -> None:
    """SIGSTOP for longer than its session. After SIGCONT its partitions belong to others."""
    worker = harness.victim()
    await until(worker.has_connected, START_S, f"{worker.name} starts")  # it has a session now
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(SESSION_MS / 1000 + 3)
    worker.signal(signal.SIGCONT)


async def restart_broker(harness: Harness) -> None:
    """Restart the broker with its data."""
    for worker in harness.app.workers:  # one that starts without a broker says so and ends
        await until(worker.has_connected, START_S, f"{worker.name} starts")
    await asyncio.to_thread(harness.broker.restart)


Disaster = Callable[[Harness], Awaitable[None]]

FOR_ONE_WORKER: tuple[Disaster, ...] = (kill, kill_and_wipe, terminate, zombie, restart_broker)
FOR_TWO_WORKERS: tuple[Disaster, ...] = (*FOR_ONE_WORKER, take_over, zombie)
