"""What a `TransactionalWriter` does without brokers."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.transactional.writer import TransactionalWriter


async def test_an_abort_does_not_wait_for_brokers_that_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringfaust.transactional.writer._ABORT_TIMEOUT_S", 0.01)
    writer = TransactionalWriter({}, "id")
    monkeypatch.setattr(writer.producer, "abort_transaction", asyncio.Event().wait)
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await writer.abort()
        await writer.stop()
