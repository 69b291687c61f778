"""The private behaviour of aiokafka behind `transactional/vendor.py`.

A failure here means that an update of aiokafka has changed something that is not part of its API.
Do not adapt the test alone: read the new code, then `transactional/vendor.py`,
`transactional/writer.py` and `kafka/transactions.py`, and run tests/broker/test_commit.py.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    NoError,
    NotLeaderForPartitionError,
    ProducerClosed,
    ProducerFenced,
    RequestTimedOutError,
)
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator
from aiokafka.producer.sender import EndTxnHandler, Sender, TxnOffsetCommitHandler
from aiokafka.producer.transaction_manager import TransactionResult, TransactionState
from aiokafka.protocol.produce import ProduceRequest

from ringfaust.transactional.vendor import (
    FAILED_BETWEEN_CALLS,
    NOT_REPEATED,
    _AddedByProduce,
    begin_early,
    failure_between_calls,
    keep_going,
    send_once,
    sender_bug,
    stop_client,
)


async def _known(topic: str) -> None:
    """The metadata of every topic is known."""


async def test_a_fenced_producer_raises_these_between_two_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If not: a fenced producer may look like a bug and stop the worker."""
    producer = AIOKafkaProducer(bootstrap_servers="localhost:1", transactional_id="pinned")
    monkeypatch.setattr(producer.client, "_wait_on_metadata", _known)
    monkeypatch.setattr(producer, "_partition", lambda *_: 0)
    with pytest.raises(FAILED_BETWEEN_CALLS):  # outside a transaction, as after it was fenced
        await producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, "group")
    with pytest.raises(FAILED_BETWEEN_CALLS):
        await producer.send_batch(BatchBuilder(1_000, 0), "out", partition=0)
    with pytest.raises(FAILED_BETWEEN_CALLS):
        producer._txn_manager.committing_transaction()


def in_transaction(version: int = 1) -> Any:
    """A producer in a transaction that has a partition, connected to nothing."""
    producer: Any = AIOKafkaProducer(
        bootstrap_servers="localhost:1", transactional_id="pinned", retry_backoff_ms=1
    )
    manager = producer._txn_manager
    manager.set_pid_and_epoch(7, 0)
    manager.begin_transaction()
    manager._txn_partitions.add(TopicPartition("in", 0))
    if version == 2:
        producer._txn_manager.__class__ = _AddedByProduce
    return producer


async def test_partitions_are_added_to_a_transaction_before_there_is_data() -> None:
    """If not: a commit takes one more round trip, or its data is not part of the transaction."""
    producer: Any = AIOKafkaProducer(bootstrap_servers="localhost:1", transactional_id="pinned")
    manager = producer._txn_manager
    manager.set_pid_and_epoch(7, 0)
    first, second = TopicPartition("a", 0), TopicPartition("b", 0)
    begin_early(producer, [first])
    begin_early(producer, [first, second])
    assert manager.is_in_transaction()
    assert manager.partitions_to_add() == {first, second}
    manager.partition_added(first)
    begin_early(producer, [first, second])
    assert manager.partitions_to_add() == {second}
    source = inspect.getsource(MessageAccumulator._append_batch)
    assert "self._txn_manager.maybe_add_partition_to_txn(tp)" in source
    manager.fatal_error(ProducerFenced())
    begin_early(producer, [first])  # the next call raises the error
    assert isinstance(failure_between_calls(producer), ProducerFenced)


async def waiting_for_its_broker(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """A consumer whose fetch waits to be repeated, and what is called of its connections."""
    consumer: Any = AIOKafkaConsumer(bootstrap_servers="localhost:1")
    closed: list[str] = []

    async def close() -> None:
        closed.append("client")

    monkeypatch.setattr(consumer._client, "close", close)
    consumer._fetcher = Fetcher(consumer._client, SubscriptionState())
    await asyncio.sleep(0)  # the fetcher begins to wait for partitions
    consumer._fetcher._pending_tasks.add(asyncio.ensure_future(asyncio.sleep(60)))
    return consumer, closed


async def test_a_consumer_whose_broker_is_away_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the caller is cancelled too, and its task ends without an error."""
    consumer, closed = await waiting_for_its_broker(monkeypatch)
    with pytest.raises(asyncio.CancelledError):  # once it does not, `stop_client` can go
        await consumer.stop()
    assert closed == []
    consumer, closed = await waiting_for_its_broker(monkeypatch)
    await stop_client(consumer)
    assert closed == ["client"]


async def just_assigned(monkeypatch: pytest.MonkeyPatch, turns: int) -> Any:
    """A consumer, some turns of the loop after it was assigned another partition."""
    consumer: Any = AIOKafkaConsumer(bootstrap_servers="localhost:1")
    subscription = SubscriptionState()
    consumer._fetcher = Fetcher(consumer._client, subscription)
    consumer._fetcher._select_read_replica = lambda tp: 0

    async def never(*_: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(consumer._client, "send", never)
    for partition in (0, 1):
        tp = TopicPartition("in", partition)
        subscription.assign_from_user([tp])
        subscription.subscription.assignment.state_value(tp).seek(0)
        if partition == 0:
            while not consumer._fetcher._pending_tasks:
                await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    return consumer


@pytest.mark.parametrize("turns", range(8))
async def test_a_consumer_that_was_just_assigned_another_partition_can_be_stopped(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetcher that ends the requests of its last assignment loses its own cancellation."""
    consumer = await just_assigned(monkeypatch, turns)
    async with asyncio.timeout(30):
        await stop_client(consumer)
    assert consumer._fetcher._fetch_task.done()


async def test_stopping_a_client_can_be_cancelled() -> None:
    class Slow:
        async def stop(self) -> None:
            await asyncio.sleep(60)

    stopping = asyncio.ensure_future(stop_client(Slow()))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping


async def test_a_cancellation_is_not_lost_in_a_client_that_closes() -> None:
    """aiokafka ignores every cancellation while it ends its own tasks."""

    async def end_slowly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)

    async def cancel_while_it_stops(stop: Callable[[AIOKafkaConsumer], Any]) -> asyncio.Task[Any]:
        consumer: Any = AIOKafkaConsumer(bootstrap_servers="localhost:1")
        consumer._client._sync_task = asyncio.ensure_future(end_slowly())
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(stop(consumer))
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait({stopping})
        return stopping

    stopped = await cancel_while_it_stops(AIOKafkaConsumer.stop)
    assert not stopped.cancelled()  # once it is, `cancellation_is_kept` can go
    assert (await cancel_while_it_stops(stop_client)).cancelled()


def handlers(producer: Any) -> dict[type, Any]:
    """By kind of request: what sends it."""
    of = producer._sender
    ends = EndTxnHandler(of, TransactionResult.COMMIT)
    commits = TxnOffsetCommitHandler(of, {}, "group")
    return {type(each.create_request()): each for each in (ends, commits)}


async def test_these_requests_go_through_the_method_that_is_replaced() -> None:
    """If not: a lost response is answered by a second request, against R117."""
    assert set(handlers(in_transaction())) == set(NOT_REPEATED)
    assert "self._sender.client.send(node_id, req" in inspect.getsource(EndTxnHandler.do)
    parameters = inspect.signature(AIOKafkaClient.send).parameters
    assert list(parameters) == ["self", "node_id", "request", "group"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", NOT_REPEATED)
async def test_a_lost_response_fails_the_transaction_for_good(kind: type, version: int) -> None:
    """R117: nothing is sent again, and nothing more can be done with this producer."""
    producer = in_transaction(version)
    sent = []

    async def lose(node_id: int, request: Any, **_: Any) -> Any:
        sent.append(request)
        raise KafkaConnectionError("closed")

    producer.client.send = lose
    send_once(producer)
    manager = producer._txn_manager
    if kind is NOT_REPEATED[0]:
        manager.committing_transaction()
    assert await handlers(producer)[kind].do(0) is False
    assert len(sent) == 1
    assert manager.state == TransactionState.FATAL_ERROR
    assert producer._sender._maybe_do_transactional_request() is None
    assert isinstance(failure_between_calls(producer), KafkaConnectionError)
    with pytest.raises(FAILED_BETWEEN_CALLS):
        await producer.begin_transaction()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("result", TransactionResult)
@pytest.mark.parametrize(
    ("error", "is_repeated"), [(RequestTimedOutError(), False), (NodeNotReadyError(), True)]
)
async def test_the_end_of_a_transaction_is_sent_once_unless_it_was_never_sent(
    result: TransactionResult, error: KafkaError, is_repeated: bool, version: int
) -> None:
    """R117 is about requests that may have arrived."""
    producer = in_transaction(version)
    manager = producer._txn_manager

    async def lose(*_: Any, **__: Any) -> Any:
        raise error

    producer.client.send = lose
    send_once(producer)
    if result is TransactionResult.COMMIT:
        manager.committing_transaction()
    else:
        manager.aborting_transaction()
    assert await EndTxnHandler(producer._sender, result).do(0) is False
    assert (manager.needs_transaction_commit() == result) is is_repeated
    assert failure_between_calls(producer) is (None if is_repeated else error)


@pytest.mark.parametrize(
    ("error", "is_bug"),
    [
        (TypeError("no"), True),
        (AssertionError("no"), True),
        (ConnectionResetError(), False),
        (KafkaError("unknown"), False),
        (ProducerFenced(), False),
    ],
)
async def test_an_error_of_the_senders_own_code_is_told_apart(
    error: Exception, is_bug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If not: a bug reopens the partition every second, forever."""
    producer = in_transaction()

    def fail() -> None:
        raise error

    monkeypatch.setattr(producer._sender, "_maybe_do_transactional_request", fail)
    assert sender_bug(producer) is None
    await producer._sender.start()
    with pytest.raises(KafkaError):
        await producer._sender.sender_task
    assert sender_bug(producer) is (error if is_bug else None)
    failed = failure_between_calls(producer)
    assert isinstance(failed, KafkaError)


async def test_a_producer_goes_on_with_other_numbers_after_a_batch_that_brokers_refuse() -> None:
    """If not: they refuse all that it sends to this partition from then on."""
    producer: Any = AIOKafkaProducer(bootstrap_servers="localhost:1", enable_idempotence=True)
    code = NoError.errno

    async def answer(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(topics=[("in", [(0, code, 5, -1)])])

    producer.client.send = answer
    keep_going(producer)
    manager, tp = producer._txn_manager, TopicPartition("in", 0)
    manager.set_pid_and_epoch(7, 0)
    manager.increment_sequence_number(tp, 3)
    request = ProduceRequest(None, -1, 1_000, [])
    for error in (NoError, NotLeaderForPartitionError):  # the second: it is sent again
        code = error.errno
        await producer.client.send(0, request)
        assert (manager.has_pid(), manager.sequence_number(tp)) == (True, 3)
    code = MessageSizeTooLargeError.errno
    await producer.client.send(0, request)
    assert (manager.has_pid(), manager.sequence_number(tp)) == (False, 0)
    manager.set_pid_and_epoch(8, 0)  # what the sender does before it takes the next batch
    source = inspect.getsource(Sender._sender_routine)
    assert source.index("await self._maybe_wait_for_pid()") < source.index("drain_by_nodes(")


async def test_a_transaction_that_is_under_way_ends_with_its_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If not: who waits for its end waits for ever."""
    producer = in_transaction()

    async def is_away(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(producer.client, "send", is_away)
    monkeypatch.setattr(producer._sender, "_find_coordinator", is_away)
    before = asyncio.all_tasks()
    await producer._sender.start()
    committing = asyncio.ensure_future(producer.commit_transaction())
    stopping = asyncio.ensure_future(stop_client(producer))
    await asyncio.sleep(0)
    stopping.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await stopping
        with pytest.raises(ProducerClosed):
            await committing
    assert asyncio.all_tasks() - before == set()


async def test_a_batch_waits_for_a_leader_longer_than_for_a_request() -> None:
    """If not: it may be written twice, and all that follows is refused. Others still expire."""
    tp = TopicPartition("in", 0)
    for keeps in (False, True):
        producer: Any = AIOKafkaProducer(bootstrap_servers="localhost:1", enable_idempotence=True)
        if keeps:
            keep_going(producer)
        producer._txn_manager.set_pid_and_epoch(7, 0)
        accumulator = producer._message_accumulator
        sent = await accumulator.add_message(tp, None, b"a", 1)
        accumulator._batches[tp][0]._ctime -= 3_600
        accumulator.drain_by_nodes(())
        assert (sent.done() and sent.exception() is not None) is not keeps
        assert (producer._txn_manager.sequence_number(tp) == 0) is keeps
