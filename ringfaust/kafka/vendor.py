"""The private APIs of aiokafka that `ringfaust.kafka` uses, behind public names.

`tests/kafka/test_vendor.py` pins each of them. aiokafka 0.14:

- `AIOKafkaClient.ready`: replaced on the client of one producer, to slow down its reconnects.
- `AIOKafkaProducer.begin_transaction` and others: a producer that was fenced between two calls
  raises AssertionError or IllegalOperation instead of ProducerFenced.
- `AIOKafkaAdminClient.list_consumer_group_offsets`: leaves out partitions of a coordinator that is
  not ready, or raises NoError for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    IllegalOperation,
    NoError,
    NotCoordinatorError,
    NotCoordinatorForGroupError,
)

FENCED_BETWEEN_CALLS = (AssertionError, IllegalOperation)
"""What a producer raises that was fenced between two calls."""

COORDINATOR_NOT_READY = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NoError,  # aiokafka raises it for the error of a single partition
    NotCoordinatorError,
    NotCoordinatorForGroupError,
)
"""What the admin client raises while the coordinator of a group is not ready."""

_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0


class Backoff:
    """Retries an unreachable broker less and less often, down to once a second.

    The client itself retries after milliseconds, which suits a busy coordinator. With a producer
    for each partition that would be thousands of connections a second while a broker restarts.
    """

    def __init__(self, ready: Callable[..., Awaitable[bool]]) -> None:
        """`ready`: the client's own method, which connects to a broker if necessary."""
        self._ready = ready
        self._wait_s: dict[int, float] = {}

    async def ready(self, node_id: int, **options: Any) -> bool:
        """Whether the broker can be reached. Waits before it returns False."""
        if await self._ready(node_id, **options):
            self._wait_s.pop(node_id, None)
            return True
        wait_s = self._wait_s.get(node_id, _BACKOFF_MIN_S)
        self._wait_s[node_id] = min(2 * wait_s, _BACKOFF_MAX_S)
        await asyncio.sleep(wait_s)
        return False


def use_backoff(producer: AIOKafkaProducer) -> None:
    """Make a producer retry unreachable brokers with `Backoff`. Call it before `start`."""
    client: Any = producer.client
    client.ready = Backoff(client.ready).ready
