"""RabbitMQ's side: what a client of AMQP 0-9-1 does and sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pika
import pika.exceptions

from tests.oracle.rabbitmq.broker import Broker
from tests.oracle.rabbitmq.histories import DEAD, LOST

Facts = dict[str, list[tuple[str, str]]]


@dataclass
class Seen:
    """What has happened since the history began, and what is ready; the same for both sides."""

    delivered: Facts = field(default_factory=dict)
    """By queue: (consumer, id), in order."""
    dead: Facts = field(default_factory=dict)
    """By queue with a dead letter exchange: (id, reason), in order."""
    ready: dict[str, int] = field(default_factory=dict)
    unrouted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What a queue has rejected because it is full."""


class Client:
    """A connection to the virtual host of one history."""

    def __init__(self, broker: Broker, vhost: str, queues: list[str]) -> None:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port, vhost)
        self._connection = pika.BlockingConnection(parameters)
        self._queues = queues
        self._seen = Seen({name: [] for name in queues}, {name: [] for name in queues})
        self._lost: list[str] = []
        self._channels: dict[str, Any] = {}
        self._tags: dict[tuple[str, str], list[int]] = {}
        """By consumer and id: what is held."""
        self._watcher = self._connection.channel()
        self._watcher.basic_consume(DEAD, self._on_dead, auto_ack=True)
        self._watcher.basic_consume(LOST, self._on_lost, auto_ack=True)
        self._publisher = self._connection.channel()
        self._publisher.confirm_delivery()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def publish(
        self, exchange: str, key: str, body: bytes, headers: dict[str, str], priority: int | None
    ) -> None:
        """Publish a message, and wait for the confirm."""
        name = body.decode().partition(".")[0]
        properties = pika.BasicProperties(headers=headers, priority=priority, delivery_mode=2)
        try:
            self._publisher.basic_publish(exchange, key, body, properties, mandatory=True)
        except pika.exceptions.UnroutableError:
            self._seen.unrouted.append(name)
        except pika.exceptions.NackError:
            self._seen.refused.append(name)

    def consume(self, consumer: str, queue: str, prefetch: int) -> None:
        """Start to consume."""
        channel = self._channels[consumer] = self._connection.channel()
        channel.basic_qos(prefetch_count=prefetch)

        def on_message(_: Any, method: Any, __: Any, body: bytes) -> None:
            name = body.decode().partition(".")[0]
            self._seen.delivered[queue].append((consumer, name))
            self._tags.setdefault((consumer, name), []).append(method.delivery_tag)

        channel.basic_consume(queue, on_message, consumer_tag=consumer)

    def leave(self, consumer: str) -> None:
        """Close the channel of a consumer; what it holds returns."""
        self._channels.pop(consumer).close()
        self._tags = {key: tags for key, tags in self._tags.items() if key[0] != consumer}

    def settle(self, kind: str, consumer: str, name: str) -> None:
        """Ack, release or reject the message."""
        channel, tag = self._channels[consumer], self._tags[consumer, name].pop(0)
        if kind == "ack":
            channel.basic_ack(tag)
        else:
            channel.basic_nack(tag, requeue=kind == "release")

    def look(self) -> Seen:
        """What is seen now; more may be on its way."""
        self._connection.process_data_events(0)
        self._seen.ready = {
            name: self._watcher.queue_declare(name, passive=True).method.message_count
            for name in self._queues
        }
        self._connection.process_data_events(0)
        return self._seen

    def _on_dead(self, _: Any, __: Any, properties: Any, body: bytes) -> None:
        death, name = properties.headers["x-death"][0], body.decode().partition(".")[0]
        self._seen.dead[death["queue"]].append((name, death["reason"]))

    def _on_lost(self, _: Any, __: Any, ___: Any, body: bytes) -> None:
        self._seen.unrouted.append(body.decode().partition(".")[0])
