"""The committed offsets of a consumer group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from ringfaust.kafka import offsets


class Hanging:
    """A consumer whose brokers take no offsets: it tries again without end."""

    def __init__(self, **_: Any) -> None:
        """As a consumer's."""

    async def start(self) -> None:
        """As a consumer's."""

    async def stop(self) -> None:
        """As a consumer's."""

    def assign(self, _: object) -> None:
        """As a consumer's."""

    async def commit(self, _: object) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()


async def test_a_commit_that_hangs_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on Spark, which commits for tools that show lag, would stand still."""
    monkeypatch.setattr(offsets, "AIOKafkaConsumer", Hanging)
    monkeypatch.setattr(offsets, "_TIMEOUT_S", 0.01)
    with pytest.raises(KafkaTimeoutError, match="do not take the offsets of group app-spark/ring"):
        await offsets.commit_group_offsets({}, "app-spark/ring", {("in", 0): 7})
