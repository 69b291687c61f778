"""The load: a producer at full speed, and consumers that attach, ack, release and leave."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.chaos.harness import Application

TOPIC = "readings"
KEYS = [f"device-{number}" for number in range(24)]
COPIED = [f"copied.{key}" for key in KEYS[:8]]
"""Queues of a repartitioned topic. Each lives in the partition of its name, which is its key."""
RING_SIZE = 50
QUEUES: dict[str, Any] = {
    "routes": [{"topic": "{topic}", "queue": "ring.{key}"}],
    "queues": {
        "ring.*": {
            "ring_size": RING_SIZE, "max_attempts": 3, "redelivery_delay": 200,
            "scheduled_when_full": "displace", "consumer_timeout": 10_000,
        }
    },
}  # fmt: skip
LONGEST_MS = 2_000
"""Longest delay and time to live."""
_BURST = 250
_LATE = 0.02
"""Share of the records for rings that go to the other topic with a direct route."""
_CONSUMERS = ("anna", "bert")


def queue_of(key: str) -> str:
    return key if key in COPIED else f"ring.{key}"


def keys_of(app: Application) -> list[str]:
    """The keys of the application's queues."""
    return [*KEYS, *(COPIED if "copied.*" in app.queues_config.queues else ())]


class Load:
    """Producer and consumers in one process, until `stop`."""

    def __init__(
        self,
        app: Application,
        topic: str,
        seed: int,
        rate: int,
        *,
        copied: str = "",
        late: str = "",
    ) -> None:
        """Create it, without starting it.

        Args:
            app: that it sends to.
            topic: whose records go to the rings directly.
            seed: of its random numbers.
            rate: how many records it sends a second.
            copied: the topic that is repartitioned, if there is one.
            late: another topic for the rings; it gets few records.
        """
        self._app = app
        self._topic = topic
        self._copied = copied
        self._late = late
        self.keys = keys_of(app)
        """Of all queues."""
        self._random = random.Random(seed)
        self._rate = rate
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.produced = 0
        self.settled = 0

    async def start(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._app.servers, enable_idempotence=True, linger_ms=5
        )
        await self._producer.start()
        self._tasks = [asyncio.create_task(self._produce()), asyncio.create_task(self._consume())]

    async def stop(self) -> None:
        """Stop sending, and detach all consumers."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        for key in self.keys:
            for consumer in _CONSUMERS:
                await self.control(key, type="detach", consumer=consumer)
        await self._producer.stop()

    async def control(self, key: str, **fields: Any) -> None:
        """Send a command for the queue of a key, to the partition in which it lives."""
        value = json.dumps({"queue": queue_of(key), **fields}).encode()
        await self._producer.send(self._app.topic("control"), value, key=key.encode())

    def route(self, key: str) -> tuple[str, bytes]:
        """A topic and a record's key that lead to the queue of a key."""
        if key in COPIED:
            return self._copied, key.removeprefix("copied.").encode()
        is_late = self._late and self._random.random() < _LATE
        return self._late if is_late else self._topic, key.encode()

    async def _produce(self) -> None:
        began = time.monotonic()
        while not self._stopping:
            for _ in range(_BURST):
                topic, key = self.route(self._random.choice(self.keys))
                await self._producer.send(
                    topic, b"%0200d" % self.produced, key=key, headers=self._headers()
                )
                self.produced += 1
            ahead = self.produced / self._rate - (time.monotonic() - began)
            await asyncio.sleep(max(ahead, 0))
        await self._producer.flush()

    def _headers(self) -> list[tuple[str, bytes]]:
        headers = [("color", b"\xff\x00")]
        if self._random.random() < 0.03:
            wait = self._random.randrange(LONGEST_MS)
            headers.append(("ringfaust-delay-ms", b"%d" % wait))
        if self._random.random() < 0.05:
            headers.append(("ringfaust-ttl-ms", b"%d" % (1 + self._random.randrange(LONGEST_MS))))
        if self._random.random() < 0.1:
            headers.append(("ringfaust-priority", b"%d" % self._random.randrange(10)))
        return headers

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self._app.topic("dispatched"),
            bootstrap_servers=self._app.servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            while not self._stopping:
                await self._attach_or_detach()
                try:
                    fetched = await consumer.getmany(timeout_ms=100)
                except KafkaError:  # the broker is down
                    continue
                for records in fetched.values():
                    for record in records:
                        await self._settle(dict(record.headers))
        finally:
            await consumer.stop()

    async def _attach_or_detach(self) -> None:
        key, name = self._random.choice(self.keys), self._random.choice(_CONSUMERS)
        if self._random.random() < 0.85:
            await self.control(key, type="attach", consumer=name, credit=20)
        else:
            await self.control(key, type="detach", consumer=name)

    async def _settle(self, headers: dict[str, bytes]) -> None:
        """Settle a delivery, if it is to one of its own consumers."""
        if headers["ringfaust-consumer"].decode() not in _CONSUMERS:
            return
        queue = headers["ringfaust-queue"].decode()
        done = self._random.choices(("ack", "release", "reject", ""), (80, 10, 2, 8))[0]
        if not done:
            return
        await self.control(
            queue.removeprefix("ring."),
            type=done,
            consumer=headers["ringfaust-consumer"].decode(),
            message=headers["ringfaust-id"].decode(),
            delivery=int(headers["ringfaust-delivery"]),
        )
        self.settled += 1


async def ask_lists(app: Application) -> dict[str, dict[str, Any]]:
    """The contents of each queue: the answers to `list`."""
    topic = app.topic("replies")
    asked = {f"list-{key}-{time.monotonic_ns()}": key for key in keys_of(app)}
    answers: dict[str, dict[str, Any]] = {}
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=app.servers, isolation_level="read_committed"
    )
    producer = AIOKafkaProducer(bootstrap_servers=app.servers)
    await consumer.start()
    await producer.start()
    try:
        for tp in consumer.assignment():
            await consumer.position(tp)
        for reply, key in asked.items():
            text = {"type": "list", "queue": queue_of(key), "limit": 10_000, "reply": reply}
            value = json.dumps(text).encode()
            await producer.send(app.topic("control"), value, key=key.encode())
        async with asyncio.timeout(60):
            while len(answers) < len(asked):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        found = asked.get((record.key or b"").decode())
                        if found is not None:
                            answers[queue_of(found)] = json.loads(record.value)
    finally:
        await producer.stop()
        await consumer.stop()
    return {queue: body["answer"] for queue, body in answers.items() if body["ok"]}
