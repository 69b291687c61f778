"""`RingBroker`: FastStream's broker for ring queues, and `RingRouter`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from anyio import CancelScope
from faststream._internal.broker import BrokerRouter, BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.exceptions import FeatureNotSupportedException
from faststream.middlewares import AckPolicy
from faststream.response import PublishType
from faststream.specification.schema import BrokerSpec

from ringfaust.client import Message, RingConsumer, RingProducer
from ringfaust.client.connection import ConnectOptions, refuse_unknown
from ringfaust.client.options import SubscriberOptions, held_by_handler
from ringfaust.client.outgoing import SendOptions
from ringfaust.faststream.publisher import (
    Producer,
    PublisherConfig,
    PublisherSpecificationSettings,
    RingPublishCommand,
    RingPublisher,
    RingPublisherSpecification,
)
from ringfaust.faststream.subscriber import (
    OwnCancellation,
    RingSubscriber,
    RingSubscriberSpecification,
    SubscriberConfig,
    SubscriberSpecificationSettings,
)

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable

GRACE_S = 20.0
"""How long a stop waits for handlers that have begun: less than the 30 s that Kubernetes gives."""


@dataclass(kw_only=True)
class RingBrokerConfig(BrokerConfig):
    """How the clients of a broker connect."""

    options: ConnectOptions = field(default_factory=ConnectOptions)
    producer: Producer = field(default_factory=Producer)


class RingRegistrator(Registrator[Message, RingBrokerConfig]):
    """What brokers and routers have in common: subscribers and publishers."""

    def subscriber(  # type: ignore[override]
        self,
        queue: str = "",
        *,
        max_workers: int = 1,
        ack_policy: AckPolicy = EMPTY,
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        dependencies: Sequence[Dependant] = (),
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **options: Unpack[SubscriberOptions],
    ) -> RingSubscriber:
        """Call the decorated handler for each message of a queue.

        Args:
            queue: the queue's name; leave it empty with `address`.
            max_workers: how many messages this process handles at a time. It holds no more, unless
                `credit` says so.
            ack_policy: what happens after the handler; default: the broker's, or else
                `REJECT_ON_ERROR`. See docs/faststream.md.
            parser: makes a `RingMessage` of the client's `Message`.
            decoder: reads the body.
            dependencies: see FastStream.
            persistent: False for one that nothing but the caller keeps.
            title: for AsyncAPI; `description` and `include_in_schema`, too.
            description: default: the handler's docstring.
            include_in_schema: whether AsyncAPI has it.
            options: see `SubscriberOptions`.

        Raises:
            BadArgument: an argument is not valid.
            TypeError: there is no such option.
        """
        refuse_unknown(options, SubscriberOptions)
        options = held_by_handler(options, max_workers, "max_workers")
        RingConsumer(queue, **options)  # refuses now what is not valid
        config = SubscriberConfig(
            _outer_config=self.config,  # type: ignore[arg-type]
            _ack_policy=ack_policy,
            queue=queue,
            max_workers=max_workers,
            options=options,
        )
        settings = SubscriberSpecificationSettings(
            title_=title, description_=description, include_in_schema=include_in_schema,
            queue=queue or options["address"],
        )  # fmt: skip
        calls = CallsCollection[Message]()
        specification = RingSubscriberSpecification(self.config, settings, calls)
        subscriber = RingSubscriber(config, specification, calls)
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
        **options: Unpack[SendOptions],
    ) -> RingPublisher:
        """Send what the decorated handler returns to a topic.

        Args:
            topic: the topic.
            title: for AsyncAPI, like the next three.
            description: what it sends.
            schema: the type of what it sends.
            include_in_schema: whether AsyncAPI has it.
            options: of each message; see `SendOptions`.

        Raises:
            TypeError: there is no such option.
        """
        refuse_unknown(options, SendOptions)
        config = PublisherConfig(
            _outer_config=self.config,  # type: ignore[arg-type]
            topic=topic,
            options=options,
        )
        settings = PublisherSpecificationSettings(
            title_=title, description_=description, schema_=schema,
            include_in_schema=include_in_schema, topic=topic,
        )  # fmt: skip
        specification = RingPublisherSpecification(self.config, settings)
        publisher = RingPublisher(config, specification)
        super().publisher(publisher)
        return publisher


class RingBroker(RingRegistrator, BrokerUsecase[Message, RingProducer, RingBrokerConfig]):
    """Ring queues for a `FastStream` app.

    ::

        broker = RingBroker("shop", bootstrap_servers="127.0.0.1:9092")
        app = FastStream(broker)


        @broker.subscriber("orders", max_workers=8)
        @broker.publisher("invoices")
        async def charge(order: Order) -> Invoice: ...

    Args:
        application: `application` in worker.yaml, whose queues it reads.
        ack_policy: of subscribers without one; default `REJECT_ON_ERROR`.
        graceful_timeout: how long a stop waits for handlers that have begun, in seconds.
        middlewares: see FastStream, like the rest of these.
        dependencies: of all handlers.
        parser: of subscribers without one.
        decoder: of subscribers without one.
        routers: routers to include.
        logger: None: it does not log.
        log_level: of what it logs.
        apply_types: whether arguments are cast to their annotations.
        description: for AsyncAPI.
        options: see `ConnectOptions`; all have defaults.

    Raises:
        TypeError: there is no such option.
    """

    def __init__(
        self,
        application: str = "ringfaust",
        /,
        *,
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = GRACE_S,
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        routers: Iterable[RingRegistrator] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        description: str | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        refuse_unknown(options, ConnectOptions)
        self.options: ConnectOptions = {"application": application}
        """How its clients connect, from the next start on."""
        self.options.update(options)
        servers = options.get("bootstrap_servers", "127.0.0.1:9092")
        super().__init__(
            routers=routers,
            config=RingBrokerConfig(
                options=self.options,
                broker_middlewares=(*middlewares, OwnCancellation),
                broker_dependencies=dependencies,
                broker_parser=parser,
                broker_decoder=decoder,
                ack_policy=ack_policy,
                graceful_timeout=graceful_timeout,
                logger=make_logger_state(logger, log_level, _LoggerStorage),
                fd_config=FastDependsConfig(use_fastdepends=apply_types, context=ContextRepo()),
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                url=servers.split(","), protocol="kafka", protocol_version=None,
                description=description, tags=(), security=None,
            ),
        )  # fmt: skip

    async def _connect(self) -> RingProducer:
        connection = RingProducer(**self.options, any_topic=True)
        await connection.start()
        producer = self.config.broker_config.producer
        producer.connection = connection
        producer.serializer = self.config.fd_config._serializer  # noqa: SLF001 - as its own brokers
        return connection

    async def start(self) -> None:
        """Connect, attach all subscribers, and begin to handle messages. Undone if it fails.

        Raises:
            Refused: a worker refused a subscriber, for example with `unknown_queue`.
            NoAnswer: no worker answered in time.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        await self.connect()
        try:
            await super().start()
        except BaseException:
            with CancelScope(shield=True):  # an app that exits during the start cancels it for good
                await self.stop()
            raise

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop all subscribers, wait `graceful_timeout` for their handlers, and disconnect."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            connection, self._connection = self._connection, None
            self.config.broker_config.producer.connection = None
            if connection is not None:
                await connection.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether it is connected and all of its subscribers receive messages."""
        is_well = all(each.is_well for each in self.subscribers if isinstance(each, RingSubscriber))
        return self._connection is not None and is_well

    async def publish(
        self, message: Any, topic: str, *, correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> str:  # fmt: skip
        """Send a message, and return its id. See `RingProducer.send`.

        Args:
            message: what is sent; models become JSON.
            topic: the topic, which may also be one that no route reads.
            correlation_id: travels in a header.
            options: see `SendOptions`.

        Raises:
            BadArgument: a worker would not accept the message; nothing was sent.
            NoTopic: the topic does not exist.
            KafkaError: the brokers did not accept the record.
        """
        command = RingPublishCommand(
            message, options=options, destination=topic,
            correlation_id=correlation_id or self.config.id_generator(),
            _publish_type=PublishType.PUBLISH,
        )  # fmt: skip
        return str(await self._basic_publish(command, producer=self.config.producer))

    async def request(self, *_: Any, **__: Any) -> Any:
        """Queues have no replies.

        Raises:
            FeatureNotSupportedException: always.
        """
        raise FeatureNotSupportedException("a RingBroker has no request(): queues have no replies")


class RingRouter(RingRegistrator, BrokerRouter[Message, RingBrokerConfig]):
    """Subscribers and publishers for `broker.include_router`.

    Args:
        prefix: begins the names of their queues and topics.
        ack_policy: of subscribers without one.
        middlewares: see FastStream.
        dependencies: of all handlers.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        ack_policy: AckPolicy = EMPTY,
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        dependencies: Sequence[Dependant] = (),
    ) -> None:
        config = RingBrokerConfig(
            prefix=prefix, ack_policy=ack_policy, broker_middlewares=middlewares,
            broker_dependencies=dependencies, include_in_schema=None,
        )  # fmt: skip
        super().__init__(config=config, handlers=(), routers=())


class _LoggerStorage(DefaultLoggerStorage):
    """Makes the logger of brokers that are given none: the queue and the message begin a line."""

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Nothing depends on the subscribers."""

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """Return the logger."""
        if (logger := self._get_logger_ref()) is None:
            logger = get_broker_logger(
                name="ringfaust", default_context={"queue": ""}, message_id_ln=20,
                fmt="%(asctime)s %(levelname)-8s - %(queue)s | %(message_id)s - %(message)s",
                context=context, log_level=self.logger_log_level,
            )  # fmt: skip
            self._logger_ref.add(logger)
        return logger
