"""The brokers' time, and errors while it is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, UnknownError

from ringfaust.kafka.broker_time import clock_skew_ms
from ringfaust.testing.broker import EmbeddedBroker


@pytest.mark.kafka
async def test_an_error_that_ends_the_transaction_is_raised_as_it_is(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker tries again after it. An AssertionError, as of a second abort, would stop it."""

    async def fail(self: Any, *_: Any, **__: Any) -> None:
        error = UnknownError()
        self._txn_manager.fatal_error(error)
        self._txn_manager.wait_for_transaction_end().exception()
        raise error

    monkeypatch.setattr(AIOKafkaProducer, "send_and_wait", fail)
    with pytest.raises(KafkaError):
        await clock_skew_ms({"bootstrap_servers": broker.bootstrap_servers}, "app", "me")
