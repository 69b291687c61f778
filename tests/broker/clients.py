"""A client of a worker, for tests: sends messages and commands, and reads the replies."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.protocol.admin import DeleteGroupsRequest

from ringfaust.client import Admin
from ringfaust.kafka.admin import connected_admin
from ringfaust.kafka.reader import read_whole
from ringfaust.testing.accounts.prove import prove
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.faust import remove_members
from tests.chaos.harness import Application, Worker, until
from tests.chaos.verdict import wait_until_read

DEADLINE_S = 60
MANY = 2_000


class Client:
    """Sends messages and commands, and reads the replies."""

    def __init__(self, app: Application, producer: Any, replies: Any) -> None:
        self._app = app
        self._producer = producer
        self._replies = replies
        self._name = uuid.uuid4().hex[:8]
        self._asked = 0

    async def send(self, topic: str, ids: Sequence[str], *queues: str, **more: str) -> None:
        """Send a message for each id, to the queues in turn."""
        sent = []
        for number, message in enumerate(ids):
            ours = {"to": queues[number % len(queues)], "ringfaust-id": message, **more}
            headers = [(name.replace("_", "-"), text.encode()) for name, text in ours.items()]
            sent.append(await self._producer.send(topic, b"x", headers=headers, partition=0))
        await asyncio.gather(*sent)

    async def say(
        self, kind: str, queue: str = "", partition: int = 0, **fields: Any
    ) -> dict[str, Any]:
        """Send a command. Returns its reply."""
        self._asked += 1
        reply = f"{self._name}-{self._asked}"  # what others were told stays in the topic
        about = {"queue": queue} if queue else {}
        value = json.dumps({"type": kind, "reply": reply, **about, **fields}).encode()
        await self._producer.send_and_wait(self._app.topic("control"), value, partition=partition)
        return await self.reply_to(reply)

    async def reply_to(self, key: str) -> dict[str, Any]:
        """The next reply with this key; skips the replies before it."""
        async with asyncio.timeout(DEADLINE_S):
            async for record in self._replies:
                if record.key == key.encode():
                    return dict(json.loads(record.value))
        raise AssertionError

    async def counts(self, queue: str) -> dict[str, int]:
        return dict((await self.say("list", queue))["answer"]["counts"])

    async def ready(self, queue: str, partition: int = 0) -> list[str]:
        return list((await self.say("list", queue, partition, limit=10_000))["answer"]["ready"])

    async def until_ready(self, queue: str, *ids: str) -> None:
        """Wait until exactly these messages are ready in the queue."""
        found: list[str] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                while (found := await self.ready(queue)) != list(ids):
                    assert len(found) <= len(ids), found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            logs = "\n".join(worker.log_text() for worker in self._app.workers)
            raise AssertionError(f"ready in {queue} at the end: {found}\n{logs}") from None


@asynccontextmanager
async def client_of(app: Application) -> AsyncIterator[Client]:
    async with (
        AIOKafkaProducer(bootstrap_servers=app.servers, linger_ms=2) as producer,
        reader_of(app, "replies") as replies,
    ):
        yield Client(app, producer, replies)


def some(letter: str, count: int = MANY) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


async def all_came_once(app: Application, client: Client, *queues: str) -> None:
    """Wait until all inputs are read, then check that the accounts balance."""
    await wait_until_read(app, DEADLINE_S)
    await balanced(app, client, *queues)


def admin_of(app: Application) -> Admin:
    return Admin(bootstrap_servers=app.servers, application=app.worker_config.application)


def reader_of(app: Application, role: str) -> AIOKafkaConsumer:
    """A consumer of one of its topics from the beginning, not started."""
    return AIOKafkaConsumer(
        app.topic(role), bootstrap_servers=app.servers, auto_offset_reset="earliest",
        isolation_level="read_committed",
    )  # fmt: skip


async def records_of(app: Application, role: str) -> list[Any]:
    """All records of one of its topics, in order within each partition."""
    found: list[Any] = []
    await read_whole({"bootstrap_servers": app.servers}, [app.topic(role)], found.extend)
    return found


async def delete_topics(app: Application, *topics: str) -> None:
    """Delete topics, and wait until they are gone."""
    async with (
        connected_admin({"bootstrap_servers": app.servers}) as admin,
        asyncio.timeout(DEADLINE_S),
    ):
        await admin.delete_topics(list(topics))
        while {*topics} & {*await admin.list_topics()}:
            await asyncio.sleep(0.05)


async def delete_group(app: Application) -> None:
    """Delete the group of its workers, which have stopped, and with it the group's offsets."""
    async with connected_admin({"bootstrap_servers": app.servers}) as admin:
        done = await admin._send_request(DeleteGroupsRequest([app.worker_config.application]))
    assert [code for _, code in done.results] == [0]


async def queues_of(app: Application) -> list[str]:
    """The names of all queues that its workers have."""
    async with admin_of(app) as admin:
        return [each.queue for each in await admin.queues()]


async def balanced(app: Application, client: Client, *queues: str) -> None:
    """Check that the accounts balance for what has been read."""
    held = {queue: (await client.say("list", queue, limit=10_000))["answer"] for queue in queues}
    proof = await prove(app.worker_config, app.inputs, held)
    assert proof.balanced, proof.problems()


def application(
    broker: EmbeddedBroker, tmp_path: Path, queues: dict[str, Any], **more: Any
) -> Application:
    """Two topics read directly, with the queue in header `to`, and one for redriven messages."""
    routes = [
        {"topic": f"{name}-{tmp_path.name}", "queue": "{header:to}", "hop": "never"}
        for name in ("in", "side")
    ]
    again = {"topic": f"again-{tmp_path.name}", "queue": "{header:ringfaust-queue}", "hop": "never"}
    routes.append(again)
    written = {"routes": routes, "queues": queues, **more}
    return Application(
        tmp_path / "app", broker.bootstrap_servers, written, partitions=1, session_timeout_ms=6_000
    )


async def two_workers(app: Application) -> list[Worker]:
    """Start two workers, and wait until they have connected."""
    workers = [app.new_worker(), app.new_worker()]
    for worker in workers:
        await until(worker.has_connected, 60, f"{worker.name} runs")
    return workers


async def lose_disk(app: Application, worker: Worker) -> None:
    """Kill an application's only worker, and delete its data directory.

    It starts as another worker, so the group would first wait until the session of the one that is
    gone has ended.
    """
    worker.kill()
    worker.wipe()
    await remove_members(app.servers, app.worker_config.application)


async def run(
    app: Application,
    *arguments: str,
    expect: int = 0,
    in_a_process: bool = False,
    seconds: float = 60,
) -> str:
    """Run a command with the application's files. Returns what it prints.

    Args:
        app: whose files.
        arguments: of the command.
        expect: its exit status.
        in_a_process: of its own, which costs a second. A worker needs one.
        seconds: how long that process may run.
    """
    given: list[str | Path] = [*arguments, "--config", app.config_dir]
    if in_a_process:
        done = await asyncio.to_thread(app.run, *given, seconds=seconds)
    else:
        done = await asyncio.to_thread(app.run_inside, *given)
    logs = "\n".join(worker.log_text()[-1_000:] for worker in app.workers)
    assert done.returncode == expect, f"{done.stdout}\n{done.stderr}\n{logs}"
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr
