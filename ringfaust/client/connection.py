"""The way to the worker: commands into the control topic, answers out of the replies topic."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from aiokafka.structs import RecordMetadata

from ringfaust.client.errors import BadArgument, ClientError, Closed, NoAnswer, Refused
from ringfaust.errors import ProtocolError
from ringfaust.protocol.control import read_control
from ringfaust.protocol.names import topic_name
from ringfaust.protocol.records import Headers, Role

log = logging.getLogger(__name__)


CLOSE_TIMEOUT_S = 5.0
"""How long a farewell may take where the brokers are away."""


class OutgoingRecord(NamedTuple):
    """A record to be written."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None


class ConnectOptions(TypedDict, total=False):
    """How a client reaches the brokers and the worker."""

    bootstrap_servers: str
    """host:port of one or more brokers, with commas between; default `127.0.0.1:9092`."""
    application: str
    """`application` of worker.yaml: how the names of its topics begin; default `ringfaust`."""
    timeout_ms: int
    """How long to wait for a worker's answer; default 60,000."""
    client_options: Mapping[str, Any]
    """Further arguments for aiokafka's producers and consumers alike: `security_protocol`,
    `ssl_context`, `sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password` …"""


def refuse_unknown(options: Mapping[str, Any], kind: type) -> None:
    """Options that are none of those of a TypedDict.

    Raises:
        TypeError: there are some, as with any function's arguments.
    """
    if unknown := options.keys() - kind.__annotations__.keys():
        raise TypeError(f"{', '.join(sorted(unknown))}: no such option; see {kind.__name__}")


def new_name() -> str:
    """A name that no other client has: host, process, and chance."""
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def encode(command: Mapping[str, Any]) -> bytes:
    """A control record, with the fields that are not None.

    Raises:
        BadArgument: a worker would not take it.
    """
    fields = {name: value for name, value in command.items() if value is not None}
    try:
        raw = json.dumps(fields, separators=(",", ":")).encode()
        read_control(raw)
    except (ProtocolError, TypeError, UnicodeEncodeError) as error:
        raise BadArgument(f"{command['type']}: {error}") from None
    return raw


async def stop(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Stop it. What a producer has not written is lost where the brokers stay away."""
    task = asyncio.current_task()
    assert task is not None
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await client.stop()
    except TimeoutError:
        log.warning("the brokers are away: what was not written is given up")
    except asyncio.CancelledError:
        if task.cancelling():
            raise
        # aiokafka cancels a fetch that waits for its broker, and stumbles over it half way.
        await client._client.close()  # noqa: SLF001


class Connection:
    """Brokers and worker of one application; shared by what works together."""

    def __init__(self, options: ConnectOptions) -> None:
        self.name = new_name()
        self.application = options.get("application", "ringfaust")
        self.timeout_ms = options.get("timeout_ms", 60_000)
        if self.timeout_ms < 1:
            raise BadArgument(f"timeout_ms must be 1 or more, not {self.timeout_ms}")
        self.kafka: dict[str, Any] = {
            "bootstrap_servers": options.get("bootstrap_servers", "127.0.0.1:9092"),
            **options.get("client_options", {}),
        }
        """Arguments for any aiokafka client. A password may be among them: never shown."""
        self.partitions: frozenset[int] = frozenset()
        """Those of our topics; known when it listens."""
        self._producer: AIOKafkaProducer | None = None
        self._replies: AIOKafkaConsumer | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pending_replies: dict[bytes, asyncio.Future[dict[str, Any]]] = {}
        self._requests = 0
        self._failure: Exception | None = None
        """Why no more answers are read."""

    def topic(self, role: Role) -> str:
        """The name of one of our topics."""
        return topic_name(self.application, role)

    @property
    def producer(self) -> AIOKafkaProducer:
        """Writes to the brokers.

        Raises:
            Closed: there is no connection.
        """
        if self._producer is None:
            raise Closed("it is not started, or closed")
        return self._producer

    async def start(self) -> None:
        """Connect, to write.

        Raises:
            KafkaError: the brokers cannot be reached, or refuse us.
        """
        producer = AIOKafkaProducer(**self.kafka, acks="all", enable_idempotence=True)
        try:
            await producer.start()
        except BaseException:
            await stop(producer)
            raise
        self._producer = producer

    async def open(self) -> None:
        """Connect, to write and to have answers; `start` and `listen`, or nothing of them.

        Raises:
            ClientError: there is no such application.
            KafkaError: the brokers cannot be reached, or refuse us.
        """
        await self.start()
        try:
            await self.listen()
        except BaseException:
            await self.close()
            raise

    async def listen(self) -> None:
        """Have answers read from now on.

        Raises:
            ClientError: there is no such application.
        """
        self._replies = await self.reader(Role.REPLIES)
        self.partitions = frozenset(each.partition for each in self._replies.assignment())
        self._reading = asyncio.create_task(self._read(self._replies))

    async def close(self) -> None:
        """Disconnect. Who still waits for an answer gets none."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for client in (self._replies, self._producer):
            if client is not None:
                await stop(client)
        self._reading = self._replies = self._producer = None
        self._fail_pending(Closed("the client was closed while it waited for an answer"))

    async def reader(self, role: Role, partition: int | None = None) -> AIOKafkaConsumer:
        """A reader of what is committed to one of our topics from now on.

        Raises:
            ClientError: it is not there.
        """
        topic = self.topic(role)
        reader = AIOKafkaConsumer(
            **self.kafka, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        try:
            await reader.start()
            if topic not in await reader.topics():
                raise ClientError(
                    f"there is no topic {topic}: is the application {self.application!r}? "
                    "`ringfaust topics create` makes its topics"
                )
            known = await self.producer.partitions_for(topic)
            if partition is not None and partition not in known:
                raise BadArgument(f"partition: {topic} has no partition {partition}")
            numbers = known if partition is None else {partition}
            places = [TopicPartition(topic, each) for each in sorted(numbers)]
            reader.assign(places)
            for place, end in (await reader.end_offsets(places)).items():
                reader.seek(place, end)
        except BaseException:
            await stop(reader)
            raise
        return reader

    # --- commands --------------------------------------------------------------------------------

    async def write_command(self, partition: int, raw: bytes) -> None:
        """Write a command; returns when the brokers have it.

        Raises:
            Closed: there is no connection.
            KafkaError: the brokers did not take it.
        """
        await self.write(OutgoingRecord(self.topic(Role.CONTROL), raw, partition=partition))

    async def write(self, record: OutgoingRecord) -> RecordMetadata:
        """Write a record; returns when the brokers have it. Where they are away it waits for them.

        Raises:
            Closed: there is no connection.
            KafkaError: the brokers did not take it.
        """
        while True:
            try:
                return await self.producer.send_and_wait(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                )
            except UnknownTopicOrPartitionError:
                raise
            except KafkaError as error:
                # Of an idempotent producer these were not sent: what may have been it sends again.
                if not error.retriable:
                    raise
                log.warning("%s: still waiting for the brokers: %r", record.topic, error)

    async def request(self, partition: int, command: Mapping[str, Any]) -> dict[str, Any]:
        """Write a command and wait for the worker's reply.

        Raises:
            BadArgument: no worker would take it.
            Refused: the worker did not.
            NoAnswer: no worker did.
        """
        key, answer = self.expect_reply()
        try:
            await self.write_command(partition, encode({**command, "reply": key}))
            return await self.await_reply(answer)
        finally:
            self._pending_replies.pop(key.encode(), None)

    def expect_reply(self) -> tuple[str, asyncio.Future[dict[str, Any]]]:
        """A key for a reply, and what will hold it."""
        if self._failure is not None:
            raise self._failure
        self._requests += 1
        key = f"{self.name}/{self._requests}"
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending_replies[key.encode()] = future
        return key, future

    async def await_reply(self, future: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        """What the worker replied.

        Raises:
            Refused: that it did nothing.
            NoAnswer: it did not, in time.
        """
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                body = await future
        except TimeoutError:
            raise NoAnswer(
                f"no worker of the application {self.application!r} answered within "
                f"{self.timeout_ms} ms; see that one runs"
            ) from None
        if not body["ok"]:
            raise Refused(body["reason"], body["about"], body["text"])
        return body

    async def _read(self, replies: AIOKafkaConsumer) -> None:
        try:
            async for record in replies:
                future = self._pending_replies.pop(record.key, None)
                if future is not None and not future.done():
                    future.set_result(json.loads(record.value))
        except Exception as error:
            self._failure = error
            self._fail_pending(error)

    def _fail_pending(self, error: Exception) -> None:
        for future in self._pending_replies.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: nobody may be waiting any more
        self._pending_replies.clear()
