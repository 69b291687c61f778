"""`TestRingBroker`: FastStream's test client for a `RingBroker`, without Kafka and a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from faststream._internal.testing.broker import TestBroker, change_producer

from ringfaust.client import Message
from ringfaust.client.message import Settler
from ringfaust.client.outgoing import OutgoingMessage
from ringfaust.faststream.broker import RingBroker
from ringfaust.faststream.publisher import Producer, RingPublishCommand, RingPublisher
from ringfaust.faststream.subscriber import RingSubscriber
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord
from ringfaust.times import wall_ms


class TestRingBroker(TestBroker[RingBroker, Any], broker=RingBroker):
    """Calls the handlers of what is published, at once and in the test's own task.

    ::

        async with TestRingBroker(broker) as test:
            await test.publish({"item": "eggs"}, "orders")
            charge.mock.assert_called_once_with({"item": "eggs"})

    A topic leads to the subscriber of the queue with the same name. There are no routes, retries
    and dead letters: for these, connect the broker to a `MemoryBroker`, with `with_real=True`,
    where the mocks of handlers are called, and those of publishers are not.
    """

    def create_publisher_fake_subscriber(
        self, broker: RingBroker, publisher: RingPublisher
    ) -> tuple[RingSubscriber, bool]:
        """Return the subscriber that gets what a publisher sends, and whether it is the app's."""
        for each in self._subscribers():
            if each.queue == publisher.topic:
                return each, True
        fake = broker.subscriber(publisher.topic, persistent=False)
        fake.start = _attach_nothing  # type: ignore[method-assign] # `with_real` starts it
        return fake, False

    @contextmanager
    def _patch_producer(self, broker: RingBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, _ToHandlers(self, broker)):
            yield

    async def _fake_connect(self, broker: RingBroker, *_: Any, **__: Any) -> None:
        pass  # nothing is sent

    def _subscribers(self) -> Iterator[RingSubscriber]:
        for broker in self.brokers:
            for each in broker.subscribers:
                assert isinstance(each, RingSubscriber)
                yield each

    async def deliver(self, sent: OutgoingMessage, number: int) -> None:
        """Let a subscriber handle a message."""
        record = sent.now()
        for each in self._subscribers():
            if each.queue == record.topic:
                await each.process_message(_received(sent, each.queue, number))
                return  # a queue gives each message to one consumer


async def _attach_nothing() -> None:
    """What a publisher sends is never taken from a real queue that has the name of the topic."""


class _ToHandlers(Producer):
    """Gives what is published to its handler."""

    def __init__(self, test: TestRingBroker, broker: RingBroker) -> None:
        super().__init__()
        self._test = test
        self.serializer = broker.config.fd_config._serializer  # noqa: SLF001 - as its own brokers
        self._sent = 0

    async def publish(self, cmd: RingPublishCommand) -> str:
        value, options = await self.encode(cmd)
        self._sent += 1
        sent = OutgoingMessage.of(cmd.destination, value, **options)
        sent = sent.with_id(f"{cmd.destination}/0/{self._sent}")
        await self._test.deliver(sent, self._sent)
        return sent.id


class _Settled(Settler):
    """Takes the settles of messages that no worker has delivered."""

    deserializer = bytes

    async def settle(
        self, message: Message, kind: str, confirm: bool, **fields: str | int | None
    ) -> None:
        """Do nothing: `RingMessage.committed` says how it was settled."""

    def ack(self, message: Message) -> None:
        """Do nothing, either."""

    def hold(self, message: Message) -> None:
        """Nothing is held."""


def _received(sent: OutgoingMessage, queue: str, number: int) -> Message:
    """A message as its consumer would receive it at its first delivery."""
    record, now_ms = sent.now(), wall_ms()
    named = {
        h.PRIORITY: b"4", **dict(record.headers), h.QUEUE: queue.encode(),
        h.SEQUENCE: b"%d" % number, h.ENQUEUED_MS: b"%d" % now_ms,
        h.SOURCE: f"{record.topic}/0/{number}".encode(), h.DELIVERY: b"%d" % number,
        h.ATTEMPT: b"1", h.HANDOVERS: b"1",
    }  # fmt: skip
    headers = tuple(named.items())
    return Message(
        FetchedRecord(record.topic, 0, number, now_ms, 0, record.key, record.value, headers),
        named,
        _Settled(),
    )
