"""The private behaviour of aiokafka behind `client/vendor.py`; needs no broker.

A failure here means that an update of aiokafka has changed something that is not part of its API.
Do not adapt the test alone: read the new code, then `client/vendor.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, NodeNotReadyError, RequestTimedOutError
from aiokafka.producer.sender import EndTxnHandler
from aiokafka.producer.transaction_manager import TransactionResult, TransactionState

from ringfaust.client.vendor import end_once


@pytest.mark.parametrize("result", TransactionResult)
@pytest.mark.parametrize(
    ("error", "is_repeated"), [(RequestTimedOutError(), False), (NodeNotReadyError(), True)]
)
async def test_the_end_of_a_transaction_is_sent_once(
    result: TransactionResult, error: KafkaError, is_repeated: bool
) -> None:
    """R117: unless it was never sent."""
    producer: Any = AIOKafkaProducer(
        bootstrap_servers="localhost:1", transactional_id="pinned", retry_backoff_ms=1
    )
    manager = producer._txn_manager
    manager.set_pid_and_epoch(7, 0)
    manager.begin_transaction()
    manager._txn_partitions.add(TopicPartition("in", 0))

    async def lose(*_: Any, **__: Any) -> Any:
        raise error

    producer.client.send = lose
    end_once(producer)
    if result is TransactionResult.COMMIT:
        manager.committing_transaction()
    else:
        manager.aborting_transaction()
    assert await EndTxnHandler(producer._sender, result).do(0) is False
    assert (manager.needs_transaction_commit() == result) is is_repeated
    assert (manager.state == TransactionState.FATAL_ERROR) is not is_repeated
