"""A batch is one transaction: all of it is committed or nothing, whatever fails."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.producer.sender import SendProduceReqHandler

from ringfaust.kafka.admin import connected_admin
from ringfaust.kafka.names import second_transactional_id
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.transactions import TransactionalProducer
from ringfaust.processor.outbox import Outputs
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import OutgoingRecord, Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.transactional.vendor import Direct
from ringfaust.transactional.writer import TransactionalWriter, opened
from tests.broker.slow import hear_before

pytestmark = pytest.mark.kafka


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"], autouse=True)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of transactions: that of older brokers and of clusters, and Kafka 4's."""
    if request.param == 1:

        async def not_used(_: AIOKafkaProducer) -> None:
            return

        monkeypatch.setattr("ringfaust.transactional.writer.use_version_2", not_used)
    return int(request.param)


async def new_topics(broker: EmbeddedBroker, **max_bytes: int) -> dict[str, str]:
    """Topics of one partition by role, each with a maximum message size."""
    names = {role: f"commit-{role}-{uuid.uuid4().hex[:8]}" for role in max_bytes}
    async with connected_admin({"bootstrap_servers": broker.bootstrap_servers}) as admin:
        await admin.create_topics(
            [
                NewTopic(names[role], 1, 1, topic_configs={"max.message.bytes": str(most)})
                for role, most in max_bytes.items()
            ]
        )
    return names


def new_producer(servers: str, names: dict[str, str], **options: Any) -> TransactionalProducer:
    """One that writes to these topics, with the changelog's name as its own; not started."""
    client, name = {"bootstrap_servers": servers}, names["changelog"]
    return TransactionalProducer(name, 0, names, client, name, **options)


async def read_all(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    """The values of the committed records."""
    return [value for _, value in await stored(broker, topic)]


async def stored(broker: EmbeddedBroker, topic: str) -> list[tuple[int, bytes | None]]:
    """The offsets and values of the committed records."""
    tp = TopicPartition(topic, 0)
    found: list[tuple[int, bytes | None]] = []
    servers = broker.bootstrap_servers
    async with (
        AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer,
        AIOKafkaConsumer(bootstrap_servers=servers) as of_everything,
    ):
        consumer.assign([tp])
        end = await of_everything.end_offsets([tp])
        # A commit is answered before the markers are written that show its records to readers.
        while await consumer.end_offsets([tp]) != end:
            end = await of_everything.end_offsets([tp])
        consumer.seek(tp, 0)
        while await consumer.position(tp) < end[tp]:
            fetched = await consumer.getmany(tp, timeout_ms=200)
            found += [(record.offset, record.value) for record in fetched.get(tp, ())]
    return found


def packed(producer: TransactionalProducer, **values: bytes) -> Outputs[RecordBatches]:
    """One record for each role."""
    outputs: Outputs[RecordBatches] = {}
    for role, value in values.items():
        outputs[Role(role), None] = producer.new_batches()
        outputs[Role(role), None].append((None, value, []))
    return outputs


with_and_without_offsets = pytest.mark.parametrize(
    "offset", [1, None], ids=["with offsets", "without"]
)
"""Without, version 2 takes two requests, past aiokafka's sender."""


@with_and_without_offsets
async def test_a_refused_batch_aborts_the_whole_transaction(
    broker: EmbeddedBroker, offset: int | None
) -> None:
    names = await new_topics(broker, changelog=1 << 20, evicted=1 << 20, dispatched=1_000)
    producer = new_producer(broker.bootstrap_servers, names)
    await producer.start()
    outputs = packed(producer, evicted=b"small", dispatched=b"too large" * 1_000)
    with pytest.raises(KafkaError):
        await producer.commit(outputs, [(b"row", b"1")], input_offsets(names, offset))
    await producer.stop()

    again = new_producer(broker.bootstrap_servers, names)
    await again.start()  # aborts the transaction that the other left open
    try:
        assert await read_all(broker, names["evicted"]) == []
        assert await read_all(broker, names["changelog"]) == []
    finally:
        await again.stop()


async def test_what_an_error_leaves_open_is_aborted(broker: EmbeddedBroker) -> None:
    """Readers of its topics would wait for a minute."""
    names = await new_topics(broker, evicted=1 << 20, dispatched=1_000)
    writer = TransactionalWriter({"bootstrap_servers": broker.bootstrap_servers}, names["evicted"])
    records = [
        OutgoingRecord(names["evicted"], b"small", partition=0),
        OutgoingRecord(names["dispatched"], b"too large" * 1_000, partition=0),
    ]
    with pytest.raises(KafkaError):
        async with opened(writer):
            await writer.commit(partial(writer.send, records))
    async with asyncio.timeout(20):
        assert await read_all(broker, names["evicted"]) == []


async def test_a_block_that_is_cancelled_does_not_wait_for_brokers_that_are_away(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C would not end a command."""
    (name,) = (await new_topics(broker, evicted=1 << 20)).values()
    writer = TransactionalWriter({"bootstrap_servers": broker.bootstrap_servers}, name)
    is_asked = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        is_asked.set()
        await asyncio.Event().wait()

    async def work() -> None:
        async with opened(writer):
            monkeypatch.setattr(writer.producer.client, "send", never)
            records = [OutgoingRecord(name, b"x", partition=0)]
            await writer.commit(partial(writer.send, records))

    working = asyncio.create_task(work())
    async with asyncio.timeout(30):
        await is_asked.wait()
        working.cancel()
        await asyncio.wait({working})
    assert working.cancelled()


def input_offsets(names: dict[str, str], offset: int | None) -> dict[str, int]:
    return {} if offset is None else {names["evicted"]: offset}


@with_and_without_offsets
@pytest.mark.parametrize("between", [False, True], ids=["at once", "between two sends"])
async def test_a_fenced_producer_raises_producer_fenced(
    broker: EmbeddedBroker, between: bool, offset: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await new_topics(broker, changelog=1 << 20, evicted=1 << 20)
    zombie, owner = (new_producer(broker.bootstrap_servers, names) for _ in "ab")
    await zombie.start()
    await zombie.commit(packed(zombie, evicted=b"x"), [(b"row", b"1")], {names["evicted"]: 1})
    await owner.start()
    if between:
        hear_before(zombie._writers[0].producer, names["changelog"], monkeypatch)
    for _ in range(2):
        with pytest.raises(ProducerFenced):
            await zombie.commit(
                packed(zombie, evicted=b"x"), [(b"row", b"zombie")], input_offsets(names, offset)
            )
    await zombie.stop()
    await owner.commit(packed(owner, evicted=b"x"), [(b"row", b"2")], {names["evicted"]: 2})
    await owner.stop()
    assert await read_all(broker, names["changelog"]) == [b"1", b"2"]
    assert await read_all(broker, names["evicted"]) == [b"x", b"x"]


def requests_of(
    producer: TransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str]]:
    """The requests of both its producers from now on, each with the transactional id."""
    sent: list[tuple[str, str]] = []
    for each in (writer.producer for writer in producer._writers):
        send, name = each.client.send, each._txn_manager.transactional_id

        async def noted(
            node_id: int, request: Any, send: Any = send, name: str = name, **options: Any
        ) -> Any:
            sent.append((type(request).__name__, name))
            return await send(node_id, request, **options)

        monkeypatch.setattr(each.client, "send", noted)
    return sent


async def test_records_are_numbered_from_0_again_after_31_bits(broker: EmbeddedBroker) -> None:
    """If not: each partition fails once in two billion rows, and is opened again."""
    producer, names = await started(broker)
    for writer in producer._writers:
        numbers: Any = writer.producer._txn_manager._sequence_numbers  # type: ignore[union-attr]
        numbers[TopicPartition(names["changelog"], 0)] = 2**31 - 1
    for number in range(4):
        await producer.commit({}, [(b"row", b"%d" % number), (b"other", b"")], {})
    await producer.stop()
    found = await read_all(broker, names["changelog"])
    assert found == [b"0", b"", b"1", b"", b"2", b"", b"3", b""]


EVICTED_AND_ROWS = [(Role.EVICTED, None), (Role.CHANGELOG, None)]


async def commit_and_begin_next(
    producer: TransactionalProducer,
    value: bytes,
    outputs: Sequence[tuple[Role, int | None]] = EVICTED_AND_ROWS,
) -> None:
    """Commit a record, and begin the next transaction meanwhile."""
    committing = asyncio.ensure_future(
        producer.commit(packed(producer, evicted=value), [(value, value)], {})
    )
    await asyncio.sleep(0)
    if producer.begins_early:
        producer.begin_next(EVICTED_AND_ROWS[:1])
        producer.begin_next(outputs)
    await committing
    async with asyncio.timeout(30):
        while producer._writers[0].producer._txn_manager.partitions_to_add():
            await asyncio.sleep(0.01)


async def started(broker: EmbeddedBroker) -> tuple[TransactionalProducer, dict[str, str]]:
    """A producer with topics of its own, and their names."""
    names = await new_topics(broker, changelog=1 << 20, evicted=1 << 20)
    producer = new_producer(broker.bootstrap_servers, names)
    await producer.start()
    return producer, names


async def test_a_transaction_that_was_begun_early_needs_no_request_to_begin(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, names = await started(broker)
    for value in (b"1", b"2"):
        await commit_and_begin_next(producer, value)
    sent = requests_of(producer, monkeypatch)
    await producer.commit(packed(producer, evicted=b"3"), [(b"3", b"3")], {})
    kinds = [kind for kind, _ in sent if kind != "MetadataRequest"]
    assert kinds == ["ProduceRequest", "EndTxnRequest"]
    await producer.stop()
    assert await read_all(broker, names["evicted"]) == [b"1", b"2", b"3"]
    assert await read_all(broker, names["changelog"]) == [b"1", b"2", b"3"]


async def test_what_was_written_before_is_added_early_though_nobody_has_decided_it_yet(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, names = await started(broker)
    await producer.commit(packed(producer, evicted=b"1"), [(b"1", b"1")], {})
    await commit_and_begin_next(producer, b"2", EVICTED_AND_ROWS[:1])
    sent = requests_of(producer, monkeypatch)
    await producer.commit(packed(producer, evicted=b"3"), [(b"3", b"3")], {})
    kinds = [kind for kind, _ in sent if kind != "MetadataRequest"]
    assert kinds == ["ProduceRequest", "EndTxnRequest"]
    await producer.stop()
    assert await read_all(broker, names["changelog"]) == [b"1", b"2", b"3"]


async def test_a_transaction_that_was_begun_and_not_used_is_ended(
    broker: EmbeddedBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, names = await started(broker)
    await commit_and_begin_next(producer, b"1")
    sent = requests_of(producer, monkeypatch)
    await producer.stop()
    is_ended = ("EndTxnRequest", second_transactional_id(names["changelog"])) in sent
    assert is_ended == (version == 1)  # in version 2 the broker has not heard of it
    assert await read_all(broker, names["evicted"]) == [b"1"]


async def test_a_transaction_that_was_begun_early_is_fenced_with_its_producer(
    broker: EmbeddedBroker,
) -> None:
    zombie, names = await started(broker)
    owner = new_producer(broker.bootstrap_servers, names)
    await commit_and_begin_next(zombie, b"1")
    await owner.start()
    with pytest.raises(ProducerFenced):
        await zombie.commit(packed(zombie, evicted=b"x"), [(b"x", b"x")], {})
    await zombie.stop()
    await owner.commit(packed(owner, evicted=b"2"), [(b"2", b"2")], {})
    await owner.stop()
    assert await read_all(broker, names["evicted"]) == [b"1", b"2"]
    assert await read_all(broker, names["changelog"]) == [b"1", b"2"]


@pytest.mark.parametrize("is_stored", [False, True])
async def test_what_is_not_known_to_be_stored_is_sent_again_and_comes_once(
    broker: EmbeddedBroker, is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the number of a batch, the broker knows whether it has it."""
    producer, names = await started(broker)
    produce, lost = Direct.produce, 0

    async def lose(self: Direct, batches: Sequence[tuple[str, int, Any]]) -> None:
        nonlocal lost
        async with asyncio.timeout(60):
            while is_stored and await produce(self, batches) is None:
                await asyncio.sleep(0.01)  # the broker still ends the transaction before
        lost += 1

    ends = []
    for value in (b"1", b"2", b"3"):
        with monkeypatch.context() as patch:
            if value != b"2":
                patch.setattr(Direct, "produce", lose)
            ends += [await producer.commit(packed(producer, evicted=value), [(value, value)], {})]
    await producer.stop()
    assert lost == (0 if producer._writers[0]._direct is None else 2)
    assert await read_all(broker, names["evicted"]) == [b"1", b"2", b"3"]
    # Not 1, 3, 5: the marker of a transaction may come behind the record of the next one.
    expected = [(end - 1, value) for end, value in zip(ends, (b"1", b"2", b"3"), strict=True)]
    assert await stored(broker, names["changelog"]) == expected


async def test_an_error_of_the_senders_own_code_comes_out_as_it_is(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KafkaError would reopen the partition every second, forever."""
    producer, names = await started(broker)

    def broken(self: SendProduceReqHandler) -> None:
        raise struct.error("int too large to convert")

    monkeypatch.setattr(SendProduceReqHandler, "create_request", broken)
    for _ in range(2):  # the second time, the sender is gone already
        with pytest.raises(struct.error, match="int too large"):
            await producer.commit(
                packed(producer, evicted=b"x"), [(b"row", b"1")], input_offsets(names, 1)
            )
    await producer.stop()


async def test_many_rows_are_committed_without_being_collected(broker: EmbeddedBroker) -> None:
    """A move writes all rows of a partition; of 3 MB, at most two batches are held."""
    names = await new_topics(broker, changelog=1 << 21, evicted=1 << 20)
    producer = new_producer(broker.bootstrap_servers, names, timeout_ms=120_000)
    await producer.start()
    created = []
    new_batches = producer.new_batches

    def counted() -> RecordBatches:
        created.append(new_batches())
        return created[-1]

    producer.new_batches = counted  # type: ignore[method-assign]
    positions = {}

    def rows() -> Iterator[tuple[bytes, bytes | None]]:
        for number in range(300):
            yield b"%d" % number, b"%03d" % number * 3_400
        positions[names["evicted"]] = 7

    await producer.commit_rows(rows(), lambda: positions)
    await producer.stop()
    written = [value[:3] for value in await read_all(broker, names["changelog"])]
    assert written == [b"%03d" % n for n in range(300)]
    assert max(len(each.batches) for each in created) == 2
    client, evicted = {"bootstrap_servers": broker.bootstrap_servers}, (names["evicted"], 0)
    (committed,) = (await group_offsets(client, names["changelog"], [evicted])).values()
    assert committed.offset == 7
