"""Three slow consumers that settle in different ways, and a reader of the evicted topic."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from itertools import count

from aiokafka import AIOKafkaConsumer

from ringfaust.demo.control_client import ControlClient, DeliveryRef
from ringfaust.demo.task_scope import StartTask
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role
from ringfaust.transactional.vendor import stop_client

HEARTBEAT_SECONDS = 5.0
"""The longest time between two heartbeats."""


class DemoConsumer:
    """A consumer of one carrier's ring that acknowledges every message after a short pause."""

    credit = 20
    think_seconds = 0.05
    habit = "acks every message"

    def __init__(self, control: ControlClient, queue: str, say: Callable[[str], None]) -> None:
        """Prepare a consumer; `attach` attaches it.

        Args:
            control: sends its commands and receives its deliveries.
            queue: the queue it consumes.
            say: prints a line about what the consumer does.
        """
        self.queue = queue
        carrier = queue.rpartition(".")[2]
        self.name = f"gate-{carrier}"
        self.key = carrier.encode()
        self._control = control
        self._say_line = say
        self._attached = False
        self._heartbeat_seconds = HEARTBEAT_SECONDS
        self.is_idle = False
        """Whether it has stopped to settle."""

    async def attach(self) -> None:
        """Attach to the queue. The reply also shows that the worker is up.

        Raises:
            ControlFailed: the worker refused it or did not answer in time.
        """
        who = {"consumer": self.name, "credit": self.credit}
        reply = await self._control.request("attach", self.queue, **who)
        timeout_ms = reply["answer"]["consumer_timeout_ms"]
        self._heartbeat_seconds = min(HEARTBEAT_SECONDS, timeout_ms / 3_000 or HEARTBEAT_SECONDS)
        self._attached = True
        self._say_line(f"{self.name} consumes {self.queue}: {self.habit}")

    async def serve(self) -> None:
        """Settle deliveries until `stop_settling`; later ones stay unsettled."""
        deliveries = self._control.deliveries(self.name)
        for number in count(1):
            delivery = await deliveries.get()
            await asyncio.sleep(self.think_seconds)
            if self.is_idle:
                return
            await self._settle(number, delivery)

    def stop_settling(self) -> None:
        """Settle no more deliveries, but stay attached."""
        self.is_idle = True

    async def run_heartbeats(self) -> None:
        """Send heartbeats, so that the worker does not detach the consumer (R13)."""
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            if self._attached:
                await self._control.send("heartbeat", self.queue, consumer=self.name)

    async def _settle(self, number: int, delivery: DeliveryRef) -> None:
        await self._send_settle("ack", delivery)

    async def _send_settle(self, how: str, delivery: DeliveryRef, **fields: str) -> None:
        fields = {"consumer": self.name, "message": delivery.message, **fields}
        await self._control.send(how, self.queue, delivery=delivery.number, **fields)


class MixedConsumer(DemoConsumer):
    """A consumer that rejects every tenth message, releases every third, and acks the others."""

    credit = 10
    think_seconds = 0.05
    habit = "acks, releases and rejects"

    async def _settle(self, number: int, delivery: DeliveryRef) -> None:
        if number % 10 == 0:
            await self._send_settle("reject", delivery, text="gate change")
        else:
            await self._send_settle("release" if number % 3 == 0 else "ack", delivery)


class ClosingConsumer(DemoConsumer):
    """A consumer that fills its credit and then detaches without an ack."""

    think_seconds = 0.02
    habit = "takes 20 and detaches without an ack"

    def stop_settling(self) -> None:
        """Do nothing: this consumer is idle as soon as it has detached."""

    async def _settle(self, number: int, delivery: DeliveryRef) -> None:
        if number == self.credit:
            self._attached = False
            await self._control.request("detach", self.queue, consumer=self.name)
            self._say_line(
                f"{self.name} detached with {number} unacknowledged: those that the ring had room "
                "for were returned"
            )
            self.is_idle = True


async def attach_all(consumers: Collection[DemoConsumer], start: StartTask) -> None:
    """Attach consumers and let them work. Their replies also show that the worker is up."""
    await asyncio.gather(*(consumer.attach() for consumer in consumers))
    for consumer in consumers:
        start(consumer.serve())
        start(consumer.run_heartbeats())


class EvictedReader:
    """A plain Kafka consumer of the evicted topic that counts its records by queue."""

    def __init__(self, servers: str, application: str) -> None:
        self.by_queue: Counter[str] = Counter()
        self._consumer = AIOKafkaConsumer(
            topic_name(application, Role.EVICTED),
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=200,
        )

    async def read(self) -> None:
        """Read and count records until cancelled."""
        try:
            await self._consumer.start()
            while True:
                fetched = await self._consumer.getmany(timeout_ms=1_000)
                for records in fetched.values():
                    self.by_queue.update(
                        value.decode()
                        for record in records
                        for name, value in record.headers
                        if name == "ringfaust-queue"
                    )
        finally:
            await stop_client(self._consumer)
