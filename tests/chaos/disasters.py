"""What happens to workers, brokers and the network in the middle of the load."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.cluster import Cluster
from tests.chaos.harness import START_S, Application, Machine, Worker, until
from tests.chaos.load import RING_SIZE, Load
from tests.chaos.network import COORDINATOR
from tests.chaos.release import last_release
from tests.chaos.verdict import wait_for_work

SESSION_MS = 6_000
"""The shortest session timeout that a broker allows by default."""
BEYOND_SESSION_S = SESSION_MS / 1000 + 3
OPEN_MS = 8_000
"""How long a transaction of a producer stays open at most."""
HOUR_MS = 3_600_000
_SUPERVISE_S = 0.2


class Harness:
    """The application, its brokers, its load and the random numbers of a round."""

    def __init__(self, app: Application, cluster: Cluster, load: Load, rng: random.Random) -> None:
        self.app = app
        self.cluster = cluster
        self.load = load
        self.random = rng
        self.machines: list[Machine] = []
        """By worker."""
        self._held: set[Worker] = set()
        """Those that the supervisor does not start."""
        self.ended: list[str] = []
        """Of each worker that ended on its own: what it said last."""
        self.full: set[Worker] = set()
        """Those whose disk was full: they may be ending on their own when they are stopped."""
        self.damaged: set[Path] = set()
        """Stores of which a file was damaged."""
        self.has_removed_route = False
        """Whether nobody reads the last of the producers' topics now."""

    def add_worker(self) -> None:
        """Start one more worker, on a machine with a clock and a network of its own."""
        number = len(self.app.workers)
        self.machines.append(Machine(self.app.folder / f"machine-{number}"))
        self.app.new_worker(self.machines[-1].shims, self.cluster.servers_of(number))

    def victim(self) -> Worker:
        return self.random.choice(self.app.workers)

    def broker(self) -> EmbeddedBroker:
        return self.random.choice(self.cluster.brokers)

    @asynccontextmanager
    async def down(self, worker: Worker) -> AsyncIterator[None]:
        """Kill a worker, and start it at the end of the block."""
        self._held.add(worker)
        try:
            worker.kill()
            yield
            worker.start()
        finally:
            self._held.discard(worker)

    async def stop(self, worker: Worker) -> None:
        """Stop a worker in order, and start it again."""
        self._held.add(worker)
        try:
            faults = await self.app.stop(worker)
            assert not faults or worker in self.full, faults[0]
            worker.start()
        finally:
            self._held.discard(worker)

    async def supervise(self) -> None:
        """Start each worker again that ends, as systemd does."""
        while True:
            await asyncio.sleep(_SUPERVISE_S)
            for worker in self.app.workers:
                if worker not in self._held and not worker.alive:
                    last = worker.log_text().strip().rpartition("\n")[2]
                    self.ended.append(f"{worker.name} ended: {last[:200]}")
                    worker.start()

    async def moment(self) -> None:
        """Wait for a random moment, so that a disaster may interrupt anything."""
        if self.random.random() < 0.7:  # else perhaps while a worker is still starting
            await wait_for_work(self.app)
        await asyncio.sleep(self.random.uniform(0.1, 2))

    async def restart(self, broker: EmbeddedBroker) -> None:
        """Start a broker again with its data, after an orderly stop if it lives."""
        await asyncio.to_thread(broker.restart)
        await wait_until_in_sync(self.cluster, self.app.inputs)

    async def apply(self, *, removes_route: bool) -> None:
        """Put another size of the rings into effect, and all routes or all but the last one."""
        path = self.app.config_dir / "queues.yaml"
        queues: dict[str, Any] = yaml.safe_load(path.read_text())
        size = self.random.choice((RING_SIZE, RING_SIZE // 2, RING_SIZE * 2))
        queues["queues"]["ring.*"]["ring_size"] = size
        routes = self.app.queues_config.document()["routes"]
        queues["routes"] = routes[:-1] if removes_route else routes
        path.write_text(yaml.safe_dump(queues))
        self.has_removed_route = removes_route
        await wait_for_work(self.app)  # `apply` asks the workers, and the first may still start
        async with asyncio.timeout(START_S):
            while True:
                done = await asyncio.to_thread(
                    self.app.run, "apply", "--config", path.parent, "--yes"
                )
                if "take other routes only when they start" not in done.stderr:
                    break
                await asyncio.sleep(1)  # a worker of the last release ended a moment ago
        assert done.returncode == 0, done.stderr


async def wait_until_in_sync(cluster: Cluster, topics: list[str]) -> None:
    """Wait until each partition has all its replicas, so that it survives the next fault."""
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    try:
        async with asyncio.timeout(START_S):
            while True:
                found = await consumer._client.fetch_all_metadata()
                own = [each for t in topics for each in found._partitions.get(t, {}).values()]
                if own and all(len(each.isr) == len(each.replicas) for each in own):
                    return
                await asyncio.sleep(0.2)
    finally:
        await consumer.stop()


# --- workers --------------------------------------------------------------------------------------


async def kill(harness: Harness) -> None:
    """SIGKILL of a worker, then a start with its data directory."""
    async with harness.down(harness.victim()):
        pass


async def kill_and_wipe(harness: Harness) -> None:
    """SIGKILL of a worker, then a start without its data directory."""
    worker = harness.victim()
    async with harness.down(worker):
        worker.wipe()


async def damage(harness: Harness) -> None:
    """SIGKILL of a worker, then a start with a damaged file in a store."""
    worker = harness.victim()
    async with harness.down(worker):
        files = [path for path in worker.data_dir.glob("partition-*/*") if path.stat().st_size > 64]
        if files:
            chosen = harness.random.choice(sorted(files))
            harness.damaged.add(chosen.parent)
            _overwrite(chosen, harness.random)


def _overwrite(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(rng.randrange(path.stat().st_size - 32))
        file.write(rng.randbytes(32))


async def terminate(harness: Harness) -> None:
    """SIGTERM of a worker: an orderly stop."""
    await harness.stop(harness.victim())


async def roll_workers(harness: Harness) -> None:
    """SIGTERM and a start of all workers, one after the other."""
    for worker in harness.app.workers:
        await harness.stop(worker)


async def take_over(harness: Harness) -> None:
    """SIGKILL of a worker. The others take over, and later it comes back."""
    async with harness.down(harness.victim()):
        await asyncio.sleep(BEYOND_SESSION_S)


async def pause(harness: Harness) -> None:
    """SIGSTOP of a worker for longer than its session. Others have its partitions then."""
    worker = harness.victim()
    await until(worker.has_connected, START_S, f"{worker.name} starts")  # it has a session now
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(BEYOND_SESSION_S)
    worker.signal(signal.SIGCONT)


async def fill_disk(harness: Harness) -> None:
    """No file of a worker can grow for some seconds."""
    worker = harness.victim()
    harness.full.add(worker)
    pid = worker.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    await asyncio.sleep(harness.random.uniform(1, 4))
    if Path(f"/proc/{pid}").exists():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


async def set_clock(harness: Harness) -> None:
    """The clock of a worker's machine goes an hour ahead for some seconds."""
    machine = harness.machines[harness.victim().number]
    machine.set_ahead(HOUR_MS)
    await asyncio.sleep(harness.random.uniform(1, 5))
    machine.set_ahead(0)


async def change_version(harness: Harness) -> None:
    """A worker of the last release takes the place of one for some seconds (R129)."""
    worker = harness.victim()
    _, python = await asyncio.to_thread(_released, harness.app.folder.parent)
    for worker.python in (python, None):
        await harness.stop(worker)
        await until(worker.has_connected, START_S, f"{worker.name} starts")
        await asyncio.sleep(harness.random.uniform(1, 5))


@cache
def _released(folder: Path) -> tuple[str, Path]:
    return last_release(Path(tempfile.mkdtemp(dir=folder)))


# --- brokers --------------------------------------------------------------------------------------


async def kill_broker(harness: Harness) -> None:
    """SIGKILL of a broker, and a start some seconds later."""
    broker = harness.broker()
    harness.cluster.kill(broker)
    await asyncio.sleep(harness.random.uniform(0, 10))
    await harness.restart(broker)


async def pause_broker(harness: Harness) -> None:
    """SIGSTOP of a broker for longer than its session."""
    broker = harness.broker()
    harness.cluster.signal(broker, signal.SIGSTOP)
    try:
        await asyncio.sleep(harness.random.uniform(1, 10))
    finally:
        harness.cluster.signal(broker, signal.SIGCONT)
    await wait_until_in_sync(harness.cluster, harness.app.inputs)


async def roll_brokers(harness: Harness) -> None:
    """An orderly stop and a start of all brokers, one after the other."""
    for broker in harness.cluster.brokers:
        await harness.restart(broker)


async def move_leaders(harness: Harness) -> None:
    """Other brokers lead the partitions of the application."""
    names = [*harness.app.inputs, *(harness.app.topic(role) for role in _MOVED)]
    await harness.cluster.move_leaders(names)
    await asyncio.sleep(harness.random.uniform(2, 4))


_MOVED = ("control", "hop", "dispatched", "evicted", "events", "changelog", "replies", "status")


async def move_coordinators(harness: Harness) -> None:
    """Other brokers coordinate groups and transactions."""
    await harness.cluster.move_leaders()
    await asyncio.sleep(harness.random.uniform(2, 4))


# --- network --------------------------------------------------------------------------------------


async def slow_down(harness: Harness) -> None:
    """Each request and response of a worker takes up to 0.3 s longer."""
    link = harness.cluster.links[harness.victim().number]
    link.delay_s = harness.random.uniform(0.02, 0.3)
    await asyncio.sleep(harness.random.uniform(3, 8))
    link.heal()


async def cut_off(harness: Harness) -> None:
    """A worker reaches no broker for some seconds."""
    number = harness.victim().number
    harness.cluster.cut(number)
    await asyncio.sleep(harness.random.uniform(0.5, BEYOND_SESSION_S))
    harness.cluster.links[number].heal()


async def halve(harness: Harness) -> None:
    """Connections of a worker end in the middle of requests and responses."""
    link = harness.cluster.links[harness.victim().number]
    link.halving = 0.02
    await asyncio.sleep(harness.random.uniform(2, 6))
    link.heal()


async def lose_coordinator(harness: Harness) -> None:
    """A worker reaches all but the coordinator of its group."""
    link = harness.cluster.links[harness.victim().number]
    link.lost = COORDINATOR
    await asyncio.sleep(BEYOND_SESSION_S)
    link.heal()


# --- clients --------------------------------------------------------------------------------------


async def leave_open(harness: Harness) -> None:
    """A producer leaves a transaction open, until the brokers abort it."""
    producer = AIOKafkaProducer(
        bootstrap_servers=harness.app.servers, transaction_timeout_ms=OPEN_MS,
        transactional_id=f"{harness.app.worker_config.application}-open",
    )  # fmt: skip
    await producer.start()
    try:
        await producer.begin_transaction()
        for topic, key in map(harness.load.route, harness.random.choices(harness.load.keys, k=20)):
            await producer.send_and_wait(topic, b"never seen", key=key)
        await asyncio.sleep(OPEN_MS / 1000)
    finally:
        await producer.stop()


async def die_as_consumer(harness: Harness) -> None:
    """Consumers attach to all rings and are never heard of again."""
    for key in harness.load.keys:
        await harness.load.control(key, type="attach", consumer="dead", credit=5)


async def apply(harness: Harness) -> None:
    """`ringfaust apply` changes the size of the rings, and removes a route or adds it again."""
    await harness.apply(removes_route=not harness.has_removed_route)


Disaster = Callable[[Harness], Awaitable[None]]

DISASTERS: tuple[Disaster, ...] = (
    kill, kill_and_wipe, damage, terminate, roll_workers, take_over, pause, fill_disk, set_clock,
    change_version,
    kill_broker, pause_broker, roll_brokers, move_leaders, move_coordinators,
    slow_down, cut_off, halve, lose_coordinator,
    leave_open, die_as_consumer, apply,
)  # fmt: skip
