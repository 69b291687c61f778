"""A consumer's side of the protocol with nothing but a Kafka client and JSON.

Nothing of the worker is imported: what is here is what any program in any language would do.
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

ANSWER_SECONDS = 60.0


class ControlFailed(RingfaustError):
    """The worker did not answer a control command, or refused it."""


class DeliveryRef(NamedTuple):
    """What a consumer needs to know of a message it was handed."""

    message: str
    number: int


class ControlClient:
    """Sends control commands, reads the replies and what was dispatched."""

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
        """Read replies and deliveries until cancelled."""
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
            await self._consumer.stop()

    def _deliver(self, headers: Mapping[str, bytes]) -> None:
        message, number = headers["ringfaust-id"].decode(), int(headers["ringfaust-delivery"])
        self.deliveries(headers["ringfaust-consumer"].decode()).put_nowait(
            DeliveryRef(message, number)
        )

    def deliveries(self, consumer: str) -> asyncio.Queue[DeliveryRef]:
        """What is handed to the consumer of this name."""
        return self._deliveries.setdefault(consumer, asyncio.Queue())

    async def tell(self, kind: str, queue: str, **fields: Any) -> None:
        """Send a command and ask for no answer. CommandRunner of one queue keep their order."""
        command = {"type": kind, "queue": queue, **fields}
        # The key is what the queue's records have, so the command comes to the queue's partition.
        key = queue.rpartition(".")[2].encode()
        topic = topic_name(self._application, Role.CONTROL)
        await self._producer.send(topic, json.dumps(command).encode(), key)

    async def ask(self, kind: str, queue: str, **fields: Any) -> dict[str, Any]:
        """Send a command and wait for the reply.

        Raises:
            ControlFailed: there is none, or it is a refusal.
        """
        reply = f"control-{next(self._numbers)}"
        answer = self._answers[reply.encode()] = asyncio.get_running_loop().create_future()
        await self.tell(kind, queue, reply=reply, **fields)
        try:
            told: dict[str, Any] = await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError:
            text = f"No answer to {kind} of {queue} within {ANSWER_SECONDS:.0f} s."
            raise ControlFailed(text) from None
        if not told["ok"]:
            raise ControlFailed(
                f"{kind} of {queue} was refused: {told['reason']} ({told['text']})."
            )
        return told

    async def listing(self, queue: str, limit: int) -> dict[str, Any]:
        """What the worker says that a queue holds, and counts."""
        answer: dict[str, Any] = (await self.ask("list", queue, limit=limit))["answer"]
        return answer
