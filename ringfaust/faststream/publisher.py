"""Publishers: what FastStream's handlers return, and what programs publish, is sent to a topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Unpack

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from faststream.response import PublishCommand, PublishType, Response
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from ringfaust.client import RingProducer
from ringfaust.client.connection import refuse_unknown
from ringfaust.client.outgoing import SendOptions
from ringfaust.faststream import message as received


class RingPublishCommand(PublishCommand):
    """A message to send to `destination`, which is a topic, with the options of `SendOptions`."""

    def __init__(self, body: Any, *, options: SendOptions, **more: Any) -> None:
        refuse_unknown(options, SendOptions)
        super().__init__(body, **more)
        self.options: SendOptions = {}
        """All but the headers, which FastStream's middlewares see."""
        self.add_defaults(options)

    def add_defaults(self, options: SendOptions) -> None:
        """Take the options that it does not have."""
        self.add_headers(dict(options.get("headers", {})), override=False)
        self.options = {**options, **self.options}
        self.options.pop("headers", None)

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> RingPublishCommand:
        """Return a command of ours for what a handler has returned."""
        if isinstance(cmd, RingPublishCommand):
            return cmd
        return cls(
            cmd.body,
            options={},
            destination=cmd.destination,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            _publish_type=cmd.publish_type,
        )


class RingResponse(Response):
    """What a handler returns to its publishers, with the options of a message.

    Args:
        body: what is sent.
        correlation_id: default: that of the message which is handled.
        options: see `SendOptions`.
    """

    def __init__(
        self, body: Any, *, correlation_id: str | None = None, **options: Unpack[SendOptions]
    ) -> None:
        headers = dict(options.get("headers", {}))
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.options = options

    def as_publish_command(self) -> RingPublishCommand:
        """Return the command that sends it."""
        return RingPublishCommand(
            self.body,
            options=self.options,
            headers=self.headers,
            correlation_id=self.correlation_id,
            _publish_type=PublishType.PUBLISH,
        )


class Producer(ProducerProto[RingPublishCommand]):
    """Encodes what FastStream publishes, and sends it."""

    def __init__(self) -> None:
        self._parser = received.parse
        self._decoder = received.decode
        self.codec: CodecProto = DefaultCodec()
        self.serializer: Any = None
        self.connection: RingProducer | None = None
        """None: the broker is not connected."""

    async def encode(self, cmd: RingPublishCommand) -> tuple[bytes, SendOptions]:
        """Return the value and the options of a message."""
        value, content_type = await self.codec.encode(cmd.body, self.serializer)
        headers = dict(cmd.headers)
        if content_type:
            headers.setdefault(received.CONTENT_TYPE, content_type)
        if cmd.correlation_id:
            headers.setdefault(received.CORRELATION_ID, cmd.correlation_id)
        return value, {**cmd.options, "headers": headers}

    async def publish(self, cmd: RingPublishCommand) -> str:
        """Send a message, and return its id."""
        if self.connection is None:
            raise IncorrectState("the broker is not connected; start it, or await connect()")
        value, options = await self.encode(cmd)
        return await self.connection.send(cmd.destination, value, **options)

    async def request(self, cmd: RingPublishCommand) -> Any:
        """Queues have no replies."""
        raise FeatureNotSupportedException("a RingBroker has no request(): queues have no replies")

    async def publish_batch(self, cmd: RingPublishCommand) -> Any:
        """There are none."""
        raise FeatureNotSupportedException("a RingBroker has no publish_batch(); call publish()")


@dataclass(kw_only=True)
class PublisherConfig(PublisherUsecaseConfig):
    """What a publisher sends with each message."""

    topic: str
    options: SendOptions


class RingPublisher(PublisherUsecase):
    """Sends to a topic, as a decorator of handlers or by `publish`."""

    def __init__(
        self, config: PublisherConfig, specification: PublisherSpecification[Any, Any]
    ) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self._options = config.options

    @property
    def topic(self) -> str:
        """Where it sends."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self, message: Any, topic: str = "", *, correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> str:  # fmt: skip
        """Send a message, and return its id.

        Args:
            message: what is sent.
            topic: default: the publisher's.
            correlation_id: travels in a header.
            options: see `SendOptions`; they go before those of the publisher.
        """
        command = RingPublishCommand(
            message, options=options, destination=topic, correlation_id=correlation_id,
            _publish_type=PublishType.PUBLISH,
        )  # fmt: skip
        return await self._send(command, ())

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        """Send what a handler has returned."""
        await self._send(RingPublishCommand.from_cmd(cmd), _extra_middlewares)

    async def _send(self, command: RingPublishCommand, middlewares: Iterable[Any]) -> str:
        command.destination = command.destination or self.topic
        command.correlation_id = command.correlation_id or self._outer_config.id_generator()
        command.add_defaults(self._options)
        producer = self._outer_config.producer
        sent = await self._basic_publish(command, producer=producer, _extra_middlewares=middlewares)
        return str(sent)

    async def request(self, *_: Any, **__: Any) -> Any:
        """Queues have no replies."""
        raise FeatureNotSupportedException("a RingBroker has no request(): queues have no replies")


@dataclass(kw_only=True)
class PublisherSpecificationSettings(PublisherSpecificationConfig):
    """What AsyncAPI says of a publisher."""

    topic: str


class RingPublisherSpecification(PublisherSpecification[Any, PublisherSpecificationSettings]):
    """A publisher in AsyncAPI documents."""

    @property
    def name(self) -> str:
        """The key of its channel."""
        topic = f"{self._outer_config.prefix}{self.config.topic}"
        return self.config.title_ or f"{topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Its channel: the topic, and what is sent there."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = Message(title=f"{self.name}:Message", payload=payload)
        return {
            self.name: PublisherSpec(
                address=f"{self._outer_config.prefix}{self.config.topic}",
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
