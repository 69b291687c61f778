"""The private behaviour of aiokafka behind `kafka/vendor.py`.

A failure here means that an update of aiokafka has changed something that is not part of its API.
Do not adapt the test alone: read the new code, then `kafka/vendor.py`, `kafka/transactions.py` and
`kafka/offsets.py`, and run tests/broker/test_commit.py.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    NoError,
    ProducerFenced,
    StaleMetadata,
)
from aiokafka.producer import sender
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator
from aiokafka.producer.sender import (
    AddPartitionsToTxnHandler,
    EndTxnHandler,
    Sender,
    TxnOffsetCommitHandler,
)
from aiokafka.producer.transaction_manager import TransactionResult, TransactionState

from ringfaust.kafka import vendor
from ringfaust.kafka.topic_ids import topic_ids
from ringfaust.kafka.vendor import (
    COORDINATOR_NOT_READY,
    FAILED_BETWEEN_CALLS,
    NOT_REPEATED,
    begin_early,
    failure_between_calls,
    retry_soon,
    send_once,
    sender_bug,
    stop_client,
    use_backoff,
)


async def test_the_client_of_a_producer_asks_its_own_ready_method() -> None:
    """If not: `use_backoff` has no effect, and a broker that restarts is flooded."""
    parameters = inspect.signature(AIOKafkaClient.ready).parameters
    assert list(parameters) == ["self", "node_id", "group"]
    assert inspect.iscoroutinefunction(AIOKafkaClient.ready)
    assert "await self.ready(node_id, group=group)" in inspect.getsource(AIOKafkaClient.send)
    assert "self.client.ready(" in inspect.getsource(Sender)
    producer = AIOKafkaProducer(bootstrap_servers="localhost:1")
    before = producer.client.ready
    use_backoff(producer)
    assert producer.client.ready != before
    assert producer._sender.client is producer.client


def test_a_producer_waits_for_its_previous_transaction_as_long_as_this_says() -> None:
    """If not: a commit that follows another takes 20 ms longer."""
    source = inspect.getsource(AddPartitionsToTxnHandler.handle_response)
    assert "return BACKOFF_OVERRIDE" in source
    before = sender.BACKOFF_OVERRIDE
    retry_soon(0.001)
    assert sender.BACKOFF_OVERRIDE == 0.001
    retry_soon(before)


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


def in_transaction() -> Any:
    """A producer in a transaction that has a partition, connected to nothing."""
    producer: Any = AIOKafkaProducer(
        bootstrap_servers="localhost:1", transactional_id="pinned", retry_backoff_ms=1
    )
    manager = producer._txn_manager
    manager.set_pid_and_epoch(7, 0)
    manager.begin_transaction()
    manager._txn_partitions.add(TopicPartition("in", 0))
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


@pytest.mark.parametrize("kind", NOT_REPEATED)
async def test_a_lost_response_fails_the_transaction_for_good(kind: type) -> None:
    """R117: nothing is sent again, and nothing more can be done with this producer."""
    producer = in_transaction()
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


async def test_a_request_that_was_not_sent_is_tried_again() -> None:
    """R117 is about requests that may have arrived."""
    producer = in_transaction()

    async def refuse(*_: Any, **__: Any) -> Any:
        raise NodeNotReadyError

    producer.client.send = refuse
    send_once(producer)
    producer._txn_manager.committing_transaction()
    assert await handlers(producer)[NOT_REPEATED[0]].do(0) is False
    assert producer._txn_manager.needs_transaction_commit() == TransactionResult.COMMIT
    assert failure_between_calls(producer) is None


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


async def answer(*partitions: tuple[int, int, str, int]) -> dict[TopicPartition, Any]:
    """What the admin client makes of a coordinator's answer: partition, offset, metadata, error."""
    response = SimpleNamespace(error_code=0, topics=[("in", partitions)])

    async def send(*_: object) -> Any:
        return response

    admin = SimpleNamespace(_send_request=send)
    tps = [TopicPartition("in", 0), TopicPartition("in", 1)]
    return await AIOKafkaAdminClient.list_consumer_group_offsets(admin, "group", 1, tps)


async def test_the_admin_client_leaves_out_partitions_that_the_answer_lacks() -> None:
    """If not: `group_offsets` may ask again for ever, or take a partial answer for a whole one."""
    found = await answer((0, 7, "", 0))
    assert found.keys() == {TopicPartition("in", 0)}
    found = await answer((0, 7, "", 0), (1, -1, "", 0))
    assert [offset.offset for offset in found.values()] == [7, -1]


async def test_the_error_of_a_single_partition_is_raised_as_no_error() -> None:
    """If not: `COORDINATOR_NOT_READY` can do without NoError."""
    coordinator_load_in_progress = 14
    with pytest.raises(NoError):
        await answer((0, -1, "", coordinator_load_in_progress))
    assert NoError in COORDINATOR_NOT_READY


# --- the ids of topics (R111) ---------------------------------------------------------------------

ID = bytes(range(16))
NAMES = ["in"]


def test_the_metadata_request_is_version_12_if_the_broker_has_it() -> None:
    """If not: the ids of topics stay unknown, or the broker refuses the request."""
    request = vendor._Metadata(NAMES)
    new = request.prepare({3: (0, 13)})
    assert new.API_VERSION == 12
    assert new.build_request_header(1, "me").encode().endswith(b"\0\x02me\0")
    assert new.encode() == b"\x02" + bytes(16) + b"\x03in\0" + b"\0\0\0"
    old = request.prepare({3: (0, 8)})
    assert (old.API_VERSION, old.encode()) == (5, b"\0\0\0\1\0\2in\0")


def test_a_request_for_permissions_asks_for_operations_and_reads_them() -> None:
    """If not: `ringfaust doctor` does not see what ACLs lack."""
    metadata = vendor._Metadata(NAMES, with_operations=True).prepare({3: (0, 13)})
    assert metadata.encode().endswith(b"\0\1\0")
    group = vendor._DescribeGroup("g").prepare({15: (0, 6)})
    assert (group.API_VERSION, group.encode()) == (3, b"\0\0\0\1\0\1g\1")
    raw = b"\0" * 4 + b"\0\0\0\1" + b"\0\0\0\1g" + b"\0\0" * 3 + b"\0" * 4 + b"\0\0\1\x08"
    ((code, *_, operations),) = group.RESPONSE_TYPE.decode(BytesIO(raw)).groups
    assert (code, operations) == (0, 1 << 8 | 1 << 3)


def test_the_ids_are_read_from_the_response() -> None:
    partition = b"\0\0" + b"\0\0\0\0" * 3 + b"\1\1\1\0"
    topic = b"\0\0\x03in" + ID + b"\0\2" + partition + b"\x80\0\0\0\0"
    raw = b"\0\0\0\0" + b"\1" + b"\3me" + b"\0\0\0\1" + b"\2" + topic + b"\0"
    found = vendor._answer(vendor._MetadataResponse.decode(BytesIO(raw)))
    assert found == vendor.TopicMetadata("me", [(0, "in", "00010203-0405-0607-0809-0a0b0c0d0e0f")])


async def test_brokers_that_do_not_agree_about_an_id_are_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [vendor.TopicMetadata("me", [(0, "in", name)]) for name in ("old", "new")]

    async def ask(*_: object) -> list[vendor.TopicMetadata]:
        return answers

    monkeypatch.setattr("ringfaust.kafka.topic_ids.ask_every_broker", ask)
    with pytest.raises(StaleMetadata, match="do not agree"):
        await topic_ids({}, NAMES)
    answers.pop()
    assert (await topic_ids({}, NAMES)).topics == {"in": "old"}
    answers[0] = vendor.TopicMetadata("me", [(3, "in", "")])
    assert (await topic_ids({}, NAMES)).topics == {}
