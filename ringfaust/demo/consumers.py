"""Three slow consumers, each with habits of its own, and the reader of what was overwritten."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count

from aiokafka import AIOKafkaConsumer

from ringfaust.demo.control_client import ControlClient, DeliveryRef
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role

HEARTBEAT_SECONDS = 5.0


class DemoConsumer:
    """A consumer of one carrier's ring: acknowledges each message after a while."""

    credit = 20
    think_seconds = 0.05
    habit = "acks each"

    def __init__(self, control: ControlClient, queue: str, say: Callable[[str], None]) -> None:
        """`say`: tells people what it does."""
        self.queue = queue
        carrier = queue.rpartition(".")[2]
        self.name = f"gate-{carrier}"
        self.key = carrier.encode()
        self._control = control
        self._tell_people = say
        self._attached = False
        self.at_rest = False

    async def attach(self) -> None:
        """Ask for messages; the first answer also tells that the worker is up."""
        await self._control.ask("attach", self.queue, consumer=self.name, credit=self.credit)
        self._attached = True
        self._tell_people(f"{self.name} waits at {self.queue}: {self.habit}")

    async def serve(self) -> None:
        """Take what is handed over, until told to rest; what comes then stays unsettled."""
        deliveries = self._control.deliveries(self.name)
        for number in count(1):
            delivery = await deliveries.get()
            await asyncio.sleep(self.think_seconds)
            if self.at_rest:
                return
            await self._settle(number, delivery)

    def rest(self) -> None:
        """Settle nothing more, but stay attached."""
        self.at_rest = True

    async def stay_alive(self) -> None:
        """Say so every few seconds, for who is silent loses what he holds."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._attached:
                await self._control.tell("heartbeat", self.queue, consumer=self.name)

    async def _settle(self, number: int, delivery: DeliveryRef) -> None:
        await self._say("ack", delivery)

    async def _say(self, how: str, delivery: DeliveryRef, **fields: str) -> None:
        fields = {"consumer": self.name, "message": delivery.message, **fields}
        await self._control.tell(how, self.queue, delivery=delivery.number, **fields)


class MixedConsumer(DemoConsumer):
    """Releases each third and rejects each tenth; acknowledges the others."""

    credit = 10
    think_seconds = 0.05
    habit = "acks some, releases some, rejects some"

    async def _settle(self, number: int, delivery: DeliveryRef) -> None:
        if number % 10 == 0:
            await self._say("reject", delivery, text="gate change")
        else:
            await self._say("release" if number % 3 == 0 else "ack", delivery)


class ClosingConsumer(DemoConsumer):
    """Takes all it can get, and closes without a word about any of it."""

    think_seconds = 0.02
    habit = "takes 20 and closes without ack"

    def rest(self) -> None:
        """It comes to rest by closing."""

    async def _settle(self, number: int, delivery: DeliveryRef) -> None:
        if number == self.credit:
            self._attached = False
            await self._control.ask("detach", self.queue, consumer=self.name)
            self._tell_people(
                f"{self.name} closed with {number} unacknowledged: they went back, as far as the "
                "ring had room"
            )
            self.at_rest = True


class EvictedReader:
    """An independent, plain Kafka consumer of the evicted topic; counts by queue."""

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
        """Read until cancelled."""
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
            await self._consumer.stop()
