"""Version 2 of transactions: its bytes by Kafka's definitions, and when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ConcurrentTransactions, IncompatibleBrokerVersion, ProducerFenced
from aiokafka.producer.transaction_manager import TransactionState
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import EndTxnRequest

from ringfaust.kafka.packed_batch import PackedBatch
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.transactional.vendor import Direct, failure_between_calls, send_once, use_version_2
from ringfaust.transactional.version_2 import AskVersion, EndTransaction, Produce, has_version_2

VERSIONS = {0: (0, 13), 18: (0, 4), 26: (0, 5)}
IN_0 = TopicPartition("in", 0)


def features(level: int) -> bytes:
    """An answer of Kafka 4 to `AskVersion`, without its header."""
    name = b"transaction.version"
    finalized = bytes([2, len(name) + 1]) + name + level.to_bytes(2, "big") * 2 + b"\0"
    tags = bytes([2, 1, 8]) + bytes(8) + bytes([2, len(finalized)]) + finalized
    return bytes(2) + b"\x02\x00\x00\x00\x00\x00\x0c\x00" + bytes(4) + tags


@pytest.mark.parametrize(("level", "expected"), [(1, False), (2, True)])
def test_the_brokers_say_whether_they_have_it(level: int, expected: bool) -> None:
    asked = AskVersion().prepare(VERSIONS)
    answer = asked.RESPONSE_TYPE.decode(BytesIO(features(level)))
    assert has_version_2(answer) is expected


def test_brokers_before_kafka_2_4_do_not_say() -> None:
    asked = AskVersion().prepare({18: (0, 2)})
    assert asked.API_VERSION == 0
    assert not has_version_2(asked.RESPONSE_TYPE.decode(BytesIO(bytes(6))))


def test_a_produce_request_copies_its_batches_once() -> None:
    topics = [("in", [(0, b"one"), (7, bytearray(200))])]
    request = Produce(ProduceRequest("id", -1, 5, topics)).prepare(VERSIONS)
    assert request.API_VERSION == 12
    assert request.encode() == (
        b"\x03id" + b"\xff\xff" + b"\0\0\0\x05" + b"\x02" + b"\x03in" + b"\x03"
        b"\0\0\0\0" + b"\x04one" + b"\0"
        b"\0\0\0\x07" + b"\xc9\x01" + bytes(200) + b"\0"
        b"\0" + b"\0"
    )  # fmt: skip


def test_its_answer_is_read_as_aiokafka_knows_it() -> None:
    produce = Produce(ProduceRequest("id", -1, 5, []))
    raw = b"\x02\x03in\x03"
    for partition, error in ((0, 0), (1, 51)):
        offsets = (7).to_bytes(8, "big") + bytes(16)
        raw += partition.to_bytes(4, "big") + error.to_bytes(2, "big") + offsets + b"\x01\0\0"
    answer = produce.prepare(VERSIONS).RESPONSE_TYPE.decode(BytesIO(raw + b"\0" + bytes(4) + b"\0"))
    read = produce.read(answer)
    assert read.topics == [("in", [(0, 0, 7, 0, 0, [], None), (1, 19, 7, 0, 0, [], None)])]
    assert not read.is_fenced


@pytest.mark.parametrize(("error", "as_known"), [(0, 0), (51, 51), (90, 47)])
def test_the_end_of_a_transaction_has_the_next_epoch(error: int, as_known: int) -> None:
    end = EndTransaction(EndTxnRequest("id", 5, 6, True))
    request = end.prepare(VERSIONS)
    assert request.encode() == b"\x03id" + (5).to_bytes(8, "big") + b"\x00\x06\x01\x00"
    raw = bytes(4) + error.to_bytes(2, "big") + (5).to_bytes(8, "big") + b"\0\x07\0"
    assert end.read(request.RESPONSE_TYPE.decode(BytesIO(raw))) == (as_known, 5, 7)


async def connected(answers: Sequence[Any], brokers: int = 1) -> tuple[Any, list[Any]]:
    """A producer that is connected to nothing, and what it sends."""
    producer: Any = AIOKafkaProducer(bootstrap_servers="localhost:1", transactional_id="pinned")
    sent: list[Any] = []
    left = list(answers)

    async def send(_: int, request: Any, **__: Any) -> Any:
        sent.append(request)
        return left.pop(0)

    producer.client.send = send
    producer.client.cluster.brokers = lambda: [SimpleNamespace(nodeId=n) for n in range(brokers)]
    send_once(producer)
    return producer, sent


def has_features(level: int) -> Any:
    return AskVersion().prepare(VERSIONS).RESPONSE_TYPE.decode(BytesIO(features(level)))


async def test_several_brokers_would_add_at_the_same_time() -> None:
    producer, sent = await connected([], brokers=3)
    assert await use_version_2(producer) is None
    assert sent == []


async def test_the_next_transaction_has_the_new_epoch_and_new_sequences() -> None:
    """If not: the brokers refuse everything after the first transaction."""
    ended = SimpleNamespace(error_code=0, producer_id=5, producer_epoch=7)
    producer, sent = await connected([has_features(2), ended])
    assert await use_version_2(producer)
    manager = producer._txn_manager
    manager.set_pid_and_epoch(5, 6)
    manager.begin_transaction()
    manager.maybe_add_partition_to_txn(IN_0)
    assert not manager.partitions_to_add()
    assert not manager.is_empty_transaction()
    manager.increment_sequence_number(IN_0, 3)
    await producer.client.send(0, EndTxnRequest("pinned", 5, 6, True))
    assert isinstance(sent[-1], EndTransaction)
    assert (manager.producer_id, manager.producer_epoch) == (5, 7)
    assert manager.sequence_number(IN_0) == 0


async def test_a_refused_epoch_ends_the_producer() -> None:
    refused = SimpleNamespace(topics=[("in", [(0, 47, 0, 0, 0, [], None, {})], {})])
    producer, _ = await connected([has_features(2), refused])
    await use_version_2(producer)
    producer._txn_manager.set_pid_and_epoch(5, 6)
    producer._txn_manager.begin_transaction()
    await producer.client.send(0, ProduceRequest("pinned", -1, 5, []))
    assert isinstance(failure_between_calls(producer), ProducerFenced)


async def test_a_broker_without_the_request_is_an_error_like_others() -> None:
    with pytest.raises(IncompatibleBrokerVersion):
        EndTransaction(EndTxnRequest("id", 5, 6, True)).prepare({})


async def direct(*answers: Any) -> tuple[Direct, Any, list[Any]]:
    """Transactions past the sender, by a producer that is connected to nothing."""
    producer, sent = await connected([has_features(2), *answers])
    transactions = await use_version_2(producer)
    assert transactions is not None
    producer._txn_manager.set_pid_and_epoch(5, 6)
    return transactions, producer, sent


def stored(*errors: int) -> Any:
    """An answer to a produce request: of partition n the error and the offset 10 + n."""
    partitions = [(n, error, 10 + n, 0, 0, [], None, {}) for n, error in enumerate(errors)]
    return SimpleNamespace(topics=[("in", partitions, {})])


def batches(count: int) -> list[tuple[str, int, PackedBatch]]:
    packed = []
    for partition in range(count):
        records = RecordBatches(1_000)
        records.append((b"key", b"value", []))
        packed.append(("in", partition, PackedBatch(records.batches[0])))
    return packed


async def test_two_requests_past_the_sender_commit_a_transaction() -> None:
    ended = SimpleNamespace(error_code=0, producer_id=5, producer_epoch=7)
    transactions, producer, sent = await direct(stored(0, 0), ended)
    assert await transactions.produce(batches(2)) == [10, 11]
    await transactions.end()
    assert [type(each) for each in sent] == [AskVersion, Produce, EndTransaction]
    assert (producer._txn_manager.producer_id, producer._txn_manager.producer_epoch) == (5, 7)


async def test_a_part_that_is_not_stored_is_left_to_the_sender() -> None:
    """If not: a transaction is committed without it."""
    transactions, producer, _ = await direct(stored(0, 51))
    assert await transactions.produce(batches(2)) is None
    assert producer._txn_manager.state is TransactionState.READY


@pytest.mark.parametrize(("code", "error"), [(90, ProducerFenced), (51, ConcurrentTransactions)])
async def test_after_an_end_that_was_refused_nothing_more_is_sent(
    code: int, error: type[Exception]
) -> None:
    ended = SimpleNamespace(error_code=code, producer_id=-1, producer_epoch=-1)
    transactions, _, sent = await direct(stored(0), ended)
    await transactions.produce(batches(1))
    with pytest.raises(error):
        await transactions.end()
    with pytest.raises(error):
        await transactions.produce(batches(1))
    assert len(sent) == 3
