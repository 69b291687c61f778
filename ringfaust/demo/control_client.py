"""A consumer's side of the protocol, with nothing but a Kafka client and JSON.

It imports nothing of the worker or of `ringfaust.client`, to show what a program in any language
has to do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role
from ringfaust.transactional.vendor import stop_client

ANSWER_SECONDS = 60.0


class ControlFailed(RingfaustError):
    """The worker refused a control command or did not answer it. What to do: read the text."""


class DeliveryRef(NamedTuple):
    """What a consumer needs to settle a delivery."""

    message: str
    """The message id."""
    number: int
    """The delivery number."""


class ControlClient:
    """Sends control commands, and reads replies and deliveries."""

    def __init__(self, servers: str, application: str, producer: AIOKafkaProducer) -> None:
        self._application = application
        self._producer = producer
        self._consumer = AIOKafkaConsumer(
            topic_name(application, Role.REPLIES),
            topic_name(application, Role.DISPATCHED),
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        self._numbers = count(1)
        self._answers: dict[bytes, asyncio.Future[dict[str, Any]]] = {}
        self._deliveries: dict[str, asyncio.Queue[DeliveryRef]] = {}

    async def read(self) -> None:
        """Read the replies and dispatched topics until cancelled."""
        try:
            await self._consumer.start()
            async for record in self._consumer:
                if record.topic.endswith(".replies"):
                    answer = self._answers.pop(record.key, None)
                    if answer is not None and not answer.done():
                        answer.set_result(json.loads(record.value))
                else:
                    self._deliver(dict(record.headers))
        finally:
            await stop_client(self._consumer)

    def _deliver(self, headers: Mapping[str, bytes]) -> None:
        message, number = headers["ringfaust-id"].decode(), int(headers["ringfaust-delivery"])
        self.deliveries(headers["ringfaust-consumer"].decode()).put_nowait(
            DeliveryRef(message, number)
        )

    def deliveries(self, consumer: str) -> asyncio.Queue[DeliveryRef]:
        """Return the queue of deliveries for the consumer of this name."""
        return self._deliveries.setdefault(consumer, asyncio.Queue())

    async def send(self, kind: str, queue: str, **fields: Any) -> None:
        """Send a command without a reply. Commands about one queue keep their order."""
        command = {"type": kind, "queue": queue, **fields}
        # With the key of the queue's records, the command reaches the queue's partition.
        key = queue.rpartition(".")[2].encode()
        topic = topic_name(self._application, Role.CONTROL)
        await self._producer.send(topic, json.dumps(command).encode(), key)

    async def request(self, kind: str, queue: str, **fields: Any) -> dict[str, Any]:
        """Send a command and wait for its reply.

        Raises:
            ControlFailed: the worker refused it, or did not answer within 60 seconds.
        """
        key = f"control-{next(self._numbers)}"
        answer = self._answers[key.encode()] = asyncio.get_running_loop().create_future()
        await self.send(kind, queue, reply=key, **fields)
        try:
            reply: dict[str, Any] = await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError:
            text = f"The worker did not answer {kind} of {queue} within {ANSWER_SECONDS:.0f} s."
            raise ControlFailed(text) from None
        if not reply["ok"]:
            raise ControlFailed(
                f"{kind} of {queue} was refused: {reply['reason']} ({reply['text']})."
            )
        return reply

    async def listing(self, queue: str, limit: int) -> dict[str, Any]:
        """Return what a queue holds and counts.

        Raises:
            ControlFailed: the worker refused it or did not answer in time.
        """
        answer: dict[str, Any] = (await self.request("list", queue, limit=limit))["answer"]
        return answer
