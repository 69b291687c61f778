"""What plays scenarios by public protocol alone shares: topics, configuration, and the way there.

The time of a partition is that of ticks; each file goes on where the one before ended.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError

from ringfaust.config import QueuesConfig, WorkerConfig, load
from ringfaust.config.redrive import redrive_context
from ringfaust.config.topics import create_topics, wanted_topics
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.kafka.redrive import RedrivePlan, RedriveRequest, find
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.channel import ScenarioRecord, WorkerChannel, WorkerOutput
from ringfaust.testing.scenario.consistency import check_consistency
from ringfaust.testing.scenario.loop_thread import LoopThread

START_SECONDS = 120.0
"""How long a worker or a job may take until it answers, also after a crash."""
ADDRESS = ".address"
"""What an address' name ends with: by this the configuration declares all of them."""
_MOST_WAITING = 6
"""Destinations of a file whose sends may have to wait."""


class ScenarioPartition:
    """What the files of one partition share: the way to the worker, and the clock."""

    def __init__(
        self,
        loop: LoopThread,
        channel: WorkerChannel,
        config: WorkerConfig,
        queues: QueuesConfig,
        crash: Callable[[], None],
    ) -> None:
        """`crash`: kills the worker and starts it again."""
        self._loop = loop
        self._channel = channel
        self._config = config
        self._queues = queues
        self._crash = crash
        self.producer_topic, *self.waiting_topics = _producer_topics(config.application)
        self.control_topic = config.topic(Role.CONTROL)
        self.now_ms = 0  # as a new partition's clock
        self._replies = 0

    def await_worker(self) -> None:
        """Return when the worker answers."""
        self.ask("list", {"queue": "nobody"}, START_SECONDS)

    def crash(self) -> WorkerOutput:
        """Kill the worker and start it again; what it did on its start."""
        self._crash()
        self.await_worker()
        output = self._loop.run(self._channel.started())
        check_consistency(output)
        return output

    def step(self, records: Sequence[ScenarioRecord], as_one: bool = False) -> WorkerOutput:
        """Write records, and see that all that the worker wrote of them agrees."""
        wanted = self._loop.run(self._channel.write(records, as_one))
        while (place := self._next_to_come()) is not None:
            wanted |= self._loop.run(self._channel.come(place))
        output = self._loop.run(self._channel.take(wanted))
        check_consistency(output)
        return output

    def _next_to_come(self) -> str | None:
        """A record that lagged and is taken, now or soon, or None."""
        for place, record in self._channel.lagging():
            if all(map(self._is_pulled, record.waits_for)):
                return place
            # It may have come, and its queue be full by itself.
            if not record.is_held and self._loop.run(self._channel.has_come(place)):
                return place
        return None

    def _is_pulled(self, queue: str) -> bool:
        """Are its records taken? Also those for one that is not there: to be refused."""
        body = self.ask("list", {"queue": queue, "limit": 0}, START_SECONDS)
        return not body["ok"] or bool(body["answer"]["pulled"])

    def find_gone(self, role: Role, message_id: str, within: str, to: str) -> RedrivePlan:
        """A dead or evicted message of the queues that `within` matches, as it is sent again."""
        asked = RedriveRequest(
            role=role, to=to, ids=[message_id], queue=within, partition=self._channel.partition
        )
        return self._loop.run(find(redrive_context(self._config, self._queues), asked))

    def abort(self, records: Sequence[ScenarioRecord]) -> None:
        """Write records that nobody may act on."""
        self._loop.run(self._channel.abort(records))

    def ask(self, kind: str, fields: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The reply to a command that changes nothing."""
        return self._loop.run(self._channel.ask(self.control(kind, fields), seconds))

    def left_over(self) -> list[str]:
        """What the worker wrote without reason."""
        return self._loop.run(self._channel.left_over())

    def control(self, kind: str, fields: dict[str, Any]) -> ScenarioRecord:
        """A control record that asks for a reply of its own."""
        self._replies += 1
        reply = f"reply-{self._replies}"
        value = json.dumps({"v": 1, "type": kind, "reply": reply, **fields}).encode()
        key = str(fields.get("queue", "")).encode()
        return ScenarioRecord(self.control_topic, key, value, reply=reply)


# --- setting up ---------------------------------------------------------------------------------


def prepare(
    opened: ExitStack, servers: str | None, partitions: int
) -> tuple[Path, WorkerConfig, QueuesConfig]:
    """Broker, topics and configuration for a worker or a job; `opened` ends them.

    Returns:
        The folder with the configuration, and what stands in it.
    """
    brokers = servers or opened.enter_context(EmbeddedBroker()).bootstrap_servers
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="ringfaust-")))
    _write_config(folder, f"scenario-{uuid.uuid4().hex[:12]}", brokers, partitions)
    config, queues = load(folder)
    if servers:
        names = [topic.name for topic in wanted_topics(config, queues)]
        opened.callback(lambda: asyncio.run(_delete_topics(brokers, names)))
    asyncio.run(_make_topics(config, _producer_topics(config.application)))
    asyncio.run(create_topics(config, queues))
    return folder, config, queues


def open_channel(
    opened: ExitStack, loop: LoopThread, make: Callable[[], WorkerChannel]
) -> WorkerChannel:
    """A channel that is connected; `opened` ends it."""

    async def connect() -> WorkerChannel:
        channel = make()
        try:
            await channel.open()
        except BaseException:
            await channel.close()
            raise
        return channel

    channel = loop.run(connect())
    opened.callback(lambda: loop.run(channel.close()))
    return channel


def _producer_topics(application: str) -> list[str]:
    """The one for all sends, and those for the sends that may have to wait."""
    waiting = [f"{application}.sent-and-waiting-{number}" for number in range(_MOST_WAITING)]
    return [f"{application}.sent", *waiting]


def _write_config(folder: Path, application: str, servers: str, partitions: int) -> None:
    worker = {
        "application": application,
        "bootstrap_servers": servers,
        "partitions": partitions,
        "data_dir": str(folder / "data"),
        "clock": "log",
    }
    route = {"queue": f"{{header:{h.QUEUE}}}", "hop": "never"}
    routes = [{"topic": topic, **route} for topic in _producer_topics(application)]
    # A route has to lead to some declared queue; those of the files are created as they come.
    addresses: dict[str, dict[str, str]] = {f"#{ADDRESS}": {}}
    queues = {"routes": routes, "queues": {"unused": {}}, "addresses": addresses}
    (folder / "worker.yaml").write_text(yaml.safe_dump(worker), "utf-8")
    (folder / "queues.yaml").write_text(yaml.safe_dump(queues), "utf-8")


async def _make_topics(config: WorkerConfig, names: Sequence[str]) -> None:
    """The producers' topics, without the brokers' time: here all time comes from ticks."""
    async with open_admin(config.brokers()) as admin:
        timestamps = {"message.timestamp.type": "CreateTime"}
        await admin.create([NewTopic(name, config.partitions, -1, timestamps) for name in names])


async def _delete_topics(servers: str, names: list[str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    try:
        try:
            await admin.start()
        except KafkaConnectionError:
            return  # The error that ended the run says that no broker answers.
        await admin.delete_topics(names)
    finally:
        await admin.close()
