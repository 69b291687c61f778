"""A connection to the worker: writes commands to the control topic and reads the replies topic."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any, TypedDict

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, OutOfOrderSequenceNumber, UnknownTopicOrPartitionError
from aiokafka.structs import RecordMetadata

from ringfaust.client.brokers import brokers_of, stop
from ringfaust.client.errors import (
    BadArgument,
    ClientError,
    Closed,
    NoAnswer,
    OtherProcess,
    Refused,
    StartedAlready,
    whole,
)
from ringfaust.client.known_topics import KnownTopics
from ringfaust.errors import ProtocolError
from ringfaust.protocol.control import read_control
from ringfaust.protocol.names import topic_name
from ringfaust.protocol.records import OutgoingRecord, Role

log = logging.getLogger(__name__)

_LOOK_S = 30.0
"""How often it is looked whether the topic of a record that is not stored yet still exists."""


class ConnectOptions(TypedDict, total=False):
    """Options for reaching the brokers and the worker."""

    bootstrap_servers: str
    """host:port of one or more brokers, separated by commas; default `127.0.0.1:9092`."""
    application: str
    """`application` in worker.yaml, the prefix of its topics' names; default `ringfaust`."""
    timeout_ms: int
    """How long to wait for a worker's reply, in milliseconds; default 60,000."""
    client_options: Mapping[str, Any]
    """More arguments for every aiokafka producer and consumer: `security_protocol`,
    `ssl_context`, `sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password` …"""


def refuse_unknown(options: Mapping[str, Any], kind: type) -> None:
    """Refuse options that the TypedDict `kind` does not have.

    Raises:
        TypeError: there is an unknown option.
    """
    if unknown := options.keys() - kind.__annotations__.keys():
        raise TypeError(f"{', '.join(sorted(unknown))}: no such option; see {kind.__name__}")


def new_name() -> str:
    """Return a name that no other client has: host name, process id and a random part."""
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def encode(command: Mapping[str, Any]) -> bytes:
    """Return the value of a control record with those fields of the command that are not None.

    Raises:
        BadArgument: a worker would not accept the command.
    """
    fields = {name: value for name, value in command.items() if value is not None}
    try:
        raw = json.dumps(fields, separators=(",", ":")).encode()
        read_control(raw)
    except (ProtocolError, TypeError, UnicodeEncodeError) as error:
        raise BadArgument(f"{command['type']}: {error}") from None
    return raw


class Connection:
    """A connection to one application, which a session and its consumers share.

    Args:
        options: see `ConnectOptions`.

    Raises:
        BadArgument: an option is not valid.
    """

    def __init__(self, options: ConnectOptions) -> None:
        self.name = new_name()
        self._pid = os.getpid()
        self.application = options.get("application", "ringfaust")
        self.timeout_ms = whole("timeout_ms", options.get("timeout_ms", 60_000))
        self.servers = options.get("bootstrap_servers", "127.0.0.1:9092")
        self.brokers = brokers_of(self.servers, options.get("client_options", {}))
        self.partitions: frozenset[int] = frozenset()
        """The partitions of the application's topics; filled by `listen`."""
        self._producer: AIOKafkaProducer | None = None
        self._replies: AIOKafkaConsumer | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pending_replies: dict[bytes, asyncio.Future[dict[str, Any]]] = {}
        self._refused_deliveries: dict[bytes, list[dict[str, Any]]] = {}
        """By the key of the reply: what a command about several deliveries could not settle."""
        self._requests = 0
        self.topics = KnownTopics(self)
        self.failure: Exception | None = None
        """Why replies are no longer read; None while they are."""

    def topic(self, role: Role) -> str:
        """Return the name of one of the application's topics."""
        return topic_name(self.application, role)

    @property
    def producer(self) -> AIOKafkaProducer:
        """The producer that writes to the brokers.

        Raises:
            Closed: the connection is not started or already closed.
        """
        if self._producer is None:
            raise Closed("not started or already closed")
        return self._producer

    async def start(self) -> None:
        """Connect for writing only.

        Raises:
            StartedAlready: it is started.
            OtherProcess: it was created before a fork: two processes would have one name.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        if self._producer is not None:
            raise StartedAlready
        if self._pid != os.getpid():
            raise OtherProcess(self._pid)
        producer = self.brokers.producer(acks="all")
        try:
            await producer.start()
        except BaseException:
            await stop(producer)
            raise
        self._producer = producer

    async def open(self) -> None:
        """Connect for writing and for replies: `start`, then `listen`. Undone if either fails.

        Raises:
            ClientError: the application has no topics.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        await self.start()
        try:
            await self.listen()
        except BaseException:
            await self.close()
            raise

    async def listen(self) -> None:
        """Start to read replies.

        Raises:
            ClientError: the application has no topics.
        """
        self._replies = await self.reader(Role.REPLIES)
        self.partitions = frozenset(each.partition for each in self._replies.assignment())
        self._reading = asyncio.create_task(self._read(self._replies))

    async def close(self) -> None:
        """Disconnect. A request that still waits for its reply raises `Closed`."""
        reading, replies, producer = self._reading, self._replies, self._producer
        self._reading = self._replies = self._producer = None
        try:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
            if replies is not None:
                await stop(replies)
        finally:
            self._fail_pending(Closed("the client was closed while it waited for a reply"))
            if producer is not None:
                await stop(producer)

    async def reader(self, role: Role, partition: int | None = None) -> AIOKafkaConsumer:
        """Return a read_committed consumer of one of our topics, positioned at its end.

        Args:
            role: which topic.
            partition: which partition; None for all of them.

        Raises:
            ClientError: the topic does not exist.
            BadArgument: the topic has no such partition.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        topic = self.topic(role)
        reader = self.brokers.consumer(
            isolation_level="read_committed", auto_offset_reset="earliest"
        )
        try:
            await reader.start()
            if topic not in await reader.topics():
                raise ClientError(
                    f"there is no topic {topic}: check the application name "
                    f"({self.application!r}), or create its topics with `ringfaust topics create`"
                )
            known = await self.producer.partitions_for(topic)
            if partition is not None and partition not in known:
                raise BadArgument(f"partition: topic {topic} has no partition {partition}")
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
        """Write an encoded command. Returns when the brokers have stored it.

        Raises:
            Closed: the connection is not started or already closed.
            KafkaError: the brokers did not accept it.
        """
        await self.write(OutgoingRecord(self.topic(Role.CONTROL), raw, partition=partition))

    async def write(self, record: OutgoingRecord) -> RecordMetadata:
        """Write a record. Returns when the brokers have stored it; waits while they are away.

        Raises:
            Closed: the connection is not started or already closed.
            NoTopic: the topic does not exist, or was deleted before the record was stored.
            KafkaError: the brokers did not accept it.
        """
        while True:
            try:
                sent = await self.producer.send(
                    record.topic, record.value, key=record.key, headers=list(record.headers),
                    partition=record.partition,
                )  # fmt: skip
                return await self._stored(record.topic, sent)
            except UnknownTopicOrPartitionError:
                await self.topics.find(record.topic)  # the brokers may have been away
            except KafkaError as error:
                if self._producer is None:
                    raise Closed("the client was closed while it waited for the brokers") from None
                # It was not stored, perhaps because it got its number behind a record that was
                # refused: an idempotent producer itself repeats those that may have been.
                if not (error.retriable or isinstance(error, OutOfOrderSequenceNumber)):
                    raise
                log.warning("%s: still waiting for the brokers: %r", record.topic, error)

    async def _stored(self, topic: str, sent: asyncio.Future[RecordMetadata]) -> RecordMetadata:
        """Wait until a record is stored. The Kafka client would wait a day for a deleted topic.

        Raises:
            NoTopic: the topic was deleted.
            KafkaError: the brokers did not accept it.
        """
        try:
            while not (sent.done() or (await asyncio.wait({sent}, timeout=_LOOK_S))[0]):
                if self.topics.is_missing(topic):
                    await self.topics.find(topic)
            return sent.result()
        finally:
            sent.cancel()

    async def request(self, partition: int, command: Mapping[str, Any]) -> dict[str, Any]:
        """Write a command and wait for the worker's reply.

        Raises:
            BadArgument: a worker would not accept the command, or there is no such partition.
            Refused: the worker refused it.
            NoAnswer: no worker answered in time.
            Closed: the connection is not started or already closed.
            KafkaError: the brokers did not accept it.
        """
        if partition not in self.partitions:
            raise BadArgument(
                f"partition {partition} does not exist: use one from 0 to {max(self.partitions)}"
            )
        key, reply = self.expect_reply()
        try:
            await self.write_command(partition, encode({**command, "reply": key}))
            return await self.await_reply(reply)
        finally:
            self.drop_reply(key)

    def expect_reply(self) -> tuple[str, asyncio.Future[dict[str, Any]]]:
        """Return a new key for a reply, and the future that will hold the reply."""
        if self.failure is not None:
            raise self.failure
        self._requests += 1
        key = f"{self.name}/{self._requests}"
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending_replies[key.encode()] = future
        return key, future

    def drop_reply(self, key: str) -> None:
        """Do not wait for a reply any more."""
        self._refused_deliveries.pop(key.encode(), None)
        if (reply := self._pending_replies.pop(key.encode(), None)) is not None:
            reply.cancel()

    async def await_reply(self, future: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        """Return the worker's reply.

        Raises:
            Refused: the worker refused the command.
            NoAnswer: no reply came within `timeout_ms`.
        """
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                await asyncio.wait({future})  # others may wait for it, too
        except TimeoutError:
            raise NoAnswer(
                f"no worker of the application {self.application!r} answered within "
                f"{self.timeout_ms} ms; check that one runs"
            ) from None
        body = future.result()
        if not body["ok"]:
            raise Refused(body["reason"], body["about"], body["text"])
        return body

    async def _read(self, replies: AIOKafkaConsumer) -> None:
        try:
            async for record in replies:
                if record.key in self._pending_replies:
                    self._take_reply(record.key, json.loads(record.value))
        except Exception as error:
            self.failure = error
            self._fail_pending(error)

    def _take_reply(self, key: bytes, body: dict[str, Any]) -> None:
        """Take a reply, or the refusal of one delivery, which precedes it."""
        if "delivery" in body:
            self._refused_deliveries.setdefault(key, []).append(body)
            return
        body["refused"] = self._refused_deliveries.pop(key, [])
        future = self._pending_replies.pop(key)
        if not future.done():
            future.set_result(body)

    def _fail_pending(self, error: Exception) -> None:
        for future in self._pending_replies.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark it as retrieved: its waiter may be gone
        self._pending_replies.clear()
