"""One partition of a running worker or job, on which scenario files are played, and its setup.

Ticks move the clock of a partition. Each file continues at the time where the previous one ended.
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

from ringfaust.client.blocking import EventLoopThread
from ringfaust.config import QueuesConfig, WorkerConfig, load
from ringfaust.config.environment import drop_variables
from ringfaust.config.topics import create_topics, wanted_topics
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.redrive.plan import RedriveContext, RedrivePlan, RedriveRequest, find
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import Process
from ringfaust.testing.scenario.channel import ScenarioRecord, WorkerChannel, WorkerOutput
from ringfaust.testing.scenario.consistency import check_consistency

START_SECONDS = 280.0
"""How long a worker or job may take to answer after a start or a crash, in seconds. Spark takes 43
alone on two slow cores, and several times that beside other tests."""
ADDRESS = ".address"
"""The suffix of every address, by which the configuration declares them."""
_MOST_WAITING = 6
"""How many destinations of a file may have lagging sends."""


class ScenarioPartition:
    """One partition of a running worker or job: a channel to it, and its clock."""

    def __init__(
        self,
        loop: EventLoopThread,
        channel: WorkerChannel,
        config: WorkerConfig,
        queues: QueuesConfig,
        crash: Callable[[], None],
    ) -> None:
        """Wrap an open channel.

        Args:
            loop: the loop on which the channel runs.
            channel: the channel to the partition.
            config: the worker's configuration.
            queues: the configuration of its queues.
            crash: kills the worker and starts it again.
        """
        self._loop = loop
        self._channel = channel
        self._config = config
        self._queues = queues
        self._crash = crash
        self.producer_topic, *self.waiting_topics = _producer_topics(config.application)
        self.control_topic = config.topic(Role.CONTROL)
        self.now_ms = 0  # as a new partition's clock
        self.revision = 0
        """Of the configuration that was applied last (R128)."""
        self._replies = 0

    @property
    def document(self) -> dict[str, Any]:
        """The content of the configuration that all files share."""
        return self._queues.document()

    def await_worker(self) -> None:
        """Return when the worker answers.

        Raises:
            WorkerFailed: it ended, or did not answer in time.
        """
        self.ask("list", {"queue": "nobody"}, START_SECONDS)

    def crash(self) -> WorkerOutput:
        """Kill the worker, start it again, and return what it wrote at its start.

        Raises:
            Difference: what it wrote is inconsistent.
            WorkerFailed: it ended, or did not answer in time.
        """
        self._crash()
        self.await_worker()
        output = self._loop.run(self._channel.started())
        check_consistency(output)
        return output

    def step(self, records: Sequence[ScenarioRecord], as_one: bool = False) -> WorkerOutput:
        """Write records, and return what the worker wrote for them and for lagging ones.

        Args:
            records: the records.
            as_one: whether to write them in one Kafka transaction.

        Raises:
            Difference: what the worker wrote is inconsistent.
            WorkerFailed: it ended, or did not answer in time.
        """
        wanted = self._loop.run(self._channel.write(records, as_one))
        while (position := self._next_to_come()) is not None:
            wanted |= self._loop.run(self._channel.come(position))
        output = self._loop.run(self._channel.take(wanted))
        check_consistency(output)
        return output

    def _next_to_come(self) -> str | None:
        """Return the position of a lagging record that the worker pulls now; None if none."""
        for position, record in self._channel.lagging():
            if all(map(self._is_pulled, record.waits_for)):
                return position
            # It may have been pulled and have filled its queue.
            if not record.is_held and self._loop.run(self._channel.has_come(position)):
                return position
        return None

    def _is_pulled(self, queue: str) -> bool:
        """Whether records of the queue are pulled; those for an unknown queue are, and refused."""
        body = self.ask("list", {"queue": queue, "limit": 0}, START_SECONDS)
        return not body["ok"] or bool(body["answer"]["pulled"])

    def find_redrivable(self, role: Role, message_id: str, within: str, to: str) -> RedrivePlan:
        """Return the redrive of a dead or evicted message.

        Args:
            role: the topic to search.
            message_id: the message's id.
            within: pattern of the queues to search.
            to: the queue to send it to.
        """
        asked = RedriveRequest(
            role=role, to=to, ids=[message_id], queue=within, partition=self._channel.partition
        )
        return self._loop.run(find(RedriveContext.of(self._config, self._queues), asked))

    def abort(self, records: Sequence[ScenarioRecord]) -> None:
        """Write records in an aborted transaction, so that they must have no effect."""
        self._loop.run(self._channel.abort(records))

    def ask(self, kind: str, fields: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the reply to a command that changes nothing."""
        return self._loop.run(self._channel.ask(self.control(kind, fields), seconds))

    def left_over(self) -> list[str]:
        """Return a line for each output of the worker that has no cause."""
        return self._loop.run(self._channel.left_over())

    def control(self, kind: str, fields: dict[str, Any]) -> ScenarioRecord:
        """Return a control record that requests a reply with a new key."""
        self._replies += 1
        reply = f"reply-{self._replies}"
        value = json.dumps({"v": 1, "type": kind, "reply": reply, **fields}).encode()
        key = str(fields.get("queue", "")).encode()
        return ScenarioRecord(self.control_topic, key, value, reply=reply)


# --- setting up ---------------------------------------------------------------------------------


def prepare(
    opened: ExitStack, servers: str | None, partitions: int
) -> tuple[Path, WorkerConfig, QueuesConfig]:
    """Prepare a broker, topics and configuration for a worker or a job.

    Args:
        opened: ends everything that is started.
        servers: the brokers to use; None starts one.
        partitions: the number of partitions.

    Returns:
        The folder with the configuration, and the configuration.
    """
    brokers = servers or opened.enter_context(EmbeddedBroker()).bootstrap_servers
    drop_variables()
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="ringfaust-")))
    _write_config(folder, f"scenario-{uuid.uuid4().hex[:12]}", brokers, partitions)
    config, queues = load(folder)
    if servers:
        names = [topic.name for topic in wanted_topics(config, queues)]
        opened.callback(lambda: asyncio.run(_delete_topics(brokers, names)))
    asyncio.run(_create_topics_of_producers(config, _producer_topics(config.application)))
    asyncio.run(create_topics(config, queues))
    return folder, config, queues


def open_partitions(
    opened: ExitStack,
    config: WorkerConfig,
    queues: QueuesConfig,
    process: Process,
    *,
    crash: Callable[[], None],
    count: int,
) -> list[ScenarioPartition]:
    """Connect a channel to each partition; `opened` closes them.

    Args:
        opened: ends everything that is started.
        config: of the worker or the job.
        queues: the configured queues.
        process: the worker or the job, for errors that show its log.
        crash: kills and restarts it.
        count: the number of partitions.
    """
    loop = EventLoopThread()
    loop.open()
    opened.callback(loop.close)

    async def connect(number: int) -> WorkerChannel:
        channel = WorkerChannel(
            config.bootstrap_servers,
            config.application,
            process,
            number,
            answer_seconds=START_SECONDS,
        )
        try:
            await channel.open()
        except BaseException:
            await channel.close()
            raise
        return channel

    partitions = []
    for number in range(count):
        channel = loop.run(connect(number))
        opened.callback(lambda channel=channel: loop.run(channel.close()))  # type: ignore[misc]
        partitions.append(ScenarioPartition(loop, channel, config, queues, crash))
    return partitions


def _producer_topics(application: str) -> list[str]:
    """Return the topic for all sends, and those for sends that may lag."""
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
    # A route must lead to a declared queue. Each file creates its own queues.
    addresses: dict[str, dict[str, str]] = {f"#{ADDRESS}": {}}
    queues = {"routes": routes, "queues": {"unused": {}}, "addresses": addresses}
    (folder / "worker.yaml").write_text(yaml.safe_dump(worker), "utf-8")
    (folder / "queues.yaml").write_text(yaml.safe_dump(queues), "utf-8")


async def _create_topics_of_producers(config: WorkerConfig, names: Sequence[str]) -> None:
    """Create the producers' topics without broker timestamps: here all time comes from ticks."""
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
