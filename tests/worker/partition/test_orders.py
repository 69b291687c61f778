"""Orders that are read from the end of the control topic (R123)."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from ringfaust.protocol.control import SkipRecord, read_control
from ringfaust.worker.partition import orders

AT = TopicPartition("control", 0)
RETRY = SimpleNamespace(value=b'{"type":"retry_partition","partition":"0"}')


class Consumer:
    """Cannot read at first; meanwhile an order is given."""

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.log, self.at = [RETRY], 0

    async def getmany(self, **_: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        found = self.log[self.at : self.at + 1]
        self.at += len(found)
        return {AT: found}

    async def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {AT: len(self.log)}

    def seek(self, _: object, offset: int) -> None:
        self.at = offset

    async def position(self, _: object) -> int:
        return self.at


async def test_an_order_is_not_missed_while_the_topic_may_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who grants the permission gives the order at once."""
    monkeypatch.setattr(orders, "_AGAIN_S", 0.0)
    consumer: Any = Consumer(TopicAuthorizationFailedError("control"))
    reader = orders.KafkaOrders(AT, AT, consumer, SimpleNamespace())
    async with asyncio.timeout(5):
        assert (await reader.next("0")).type == "retry_partition"


def test_a_record_of_a_topic_with_the_longest_name_can_be_skipped() -> None:
    topic = "t" * 249
    unit, at = f"{topic}/4095", f"{topic}/4095/{2**63 - 1}"
    order = read_control(json.dumps({"type": "skip_record", "partition": unit, "at": at}).encode())
    assert isinstance(order, SkipRecord)
    assert (order.partition, order.at) == (unit, at)
