"""Reads what operators order a stopped partition to do, from the end of the control topic (R123).

The partition cannot process its control topic: a record before the order may be the one that it
cannot get past. So a client of its own looks at what is written from now on, and for orders only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CorruptRecordException, KafkaError

from ringfaust.core import effects as e
from ringfaust.core.model import Refusal
from ringfaust.errors import ProtocolError
from ringfaust.protocol.control import ORDERS, OrderRecord, read_control, type_of
from ringfaust.protocol.outputs import reply_record
from ringfaust.transactional.vendor import stop_client

log = logging.getLogger(__name__)

_MARKS = tuple(f'"{type_of(order)}"'.encode() for order in ORDERS)
"""What the value of an order contains; others are not parsed."""
_POLL_MS = 1_000
_AGAIN_S = 1.0


async def open_orders(
    number: int, control: str, replies: str, partitions: int, client: Mapping[str, Any]
) -> KafkaOrders:
    """Read the orders for a partition that are given from now on.

    Args:
        number: of the partition. Those of a repartitioned topic may be more than ours.
        control: the control topic.
        replies: the topic for replies.
        partitions: of these topics.
        client: options of any Kafka client.
    """
    where = TopicPartition(control, number % partitions)
    answers = TopicPartition(replies, where.partition)
    while True:
        consumer = AIOKafkaConsumer(
            **client, isolation_level="read_committed", enable_auto_commit=False
        )
        orders = KafkaOrders(where, answers, consumer, AIOKafkaProducer(**client, acks="all"))
        try:
            await orders.start()
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("cannot read the orders for partition %d: %r", number, error)
            await orders.close()
        except BaseException:
            await orders.close()
            raise
        else:
            return orders
        await asyncio.sleep(_AGAIN_S)


class KafkaOrders:
    """An `OrderReader` with clients of its own."""

    def __init__(
        self,
        control: TopicPartition,
        replies: TopicPartition,
        consumer: AIOKafkaConsumer,
        producer: AIOKafkaProducer,
    ) -> None:
        """Connect to nothing yet."""
        self._control = control
        self._replies = replies
        self._consumer = consumer
        self._producer = producer

    async def start(self) -> None:
        """Connect, and find the end of the control topic.

        Raises:
            KafkaError: the brokers failed.
        """
        await self._consumer.start()
        self._consumer.assign([self._control])
        ends = await self._consumer.end_offsets([self._control])
        self._consumer.seek(self._control, ends[self._control])
        await self._producer.start()

    async def next(self, unit: str) -> OrderRecord:
        """The next order for the unit."""
        while True:
            for record in await self._poll():
                order = _order_in(record.value)
                if order is not None and order.partition == unit:
                    return order

    async def _poll(self) -> Sequence[Any]:
        """The next records, at most one, so that none is lost with an order that is returned."""
        try:
            found = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=1)
        except Exception as error:
            log.debug("cannot read %s: %r", self._control, error)
            if isinstance(error, KafkaError) and not isinstance(error, CorruptRecordException):
                await asyncio.sleep(_AGAIN_S)
            else:  # what the client cannot decode is no order
                await self._pass_one()
            return ()
        return [record for records in found.values() for record in records]

    async def _pass_one(self) -> None:
        """Go on behind the next record."""
        position = await self._consumer.position(self._control)
        self._consumer.seek(self._control, position + 1)

    async def answer(self, order: OrderRecord, refused: str = "") -> None:
        """Answer the operator who gave the order. `refused`: why it was not carried out."""
        if not order.reply:
            return
        no = e.Refused("", Refusal.BAD_COMMAND, order.partition, refused) if refused else None
        key, value, _ = reply_record(order.reply, no)
        try:
            await self._producer.send_and_wait(
                self._replies.topic, value, key=key, partition=self._replies.partition
            )
        except KafkaError as error:
            log.warning("cannot answer %r: %r", order.by, error)

    async def close(self) -> None:
        """Disconnect."""
        await stop_client(self._consumer)
        await stop_client(self._producer)


def _order_in(value: bytes | None) -> OrderRecord | None:
    if value is None or not any(mark in value for mark in _MARKS):
        return None
    try:
        found = read_control(value)
    except ProtocolError:
        return None
    return found if isinstance(found, OrderRecord) else None
