"""What `Admin` does while the brokers hang: it says so, and does not wait for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringfaust.client import Admin, NoAnswer, configuring


@pytest.mark.parametrize("name", ["queues", "configuration"])
async def test_brokers_that_hang_are_not_waited_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(timeout_ms=50)

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(admin.connection, "write_command", hang)
    monkeypatch.setattr(admin.connection, "partitions", [0])
    async with asyncio.timeout(5):
        with pytest.raises(NoAnswer, match="check that the brokers run"):
            await getattr(admin, name)()


@pytest.mark.parametrize("name", ["history", "feature_level"])
async def test_what_was_applied_is_not_waited_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(bootstrap_servers="kafka-1:9092", timeout_ms=50)

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(configuring, "read_configurations", hang)
    async with asyncio.timeout(5):
        with pytest.raises(NoAnswer, match="brokers at kafka-1:9092 .* within 50 ms"):
            await getattr(admin, name)()
