"""Read topics up to their present end, as a plain Kafka client: committed records only.

Where a docstring says nothing else, what fails raises `KafkaError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from ringfaust.errors import RingfaustError
from ringfaust.protocol.records import InRecord
from ringfaust.transactional.clients import connected
from ringfaust.transactional.vendor import stop_client

_FETCH_BYTES = 4 * 1024 * 1024
_POLL_MS = 20
"""A log ends in markers, for which the client returns nothing: its position must be looked at."""

_FIRST_STEP_BACK = 32
"""In offsets. Any number of transaction markers may follow the last record."""

RecordHandler = Callable[[Sequence[InRecord]], None]
"""Called with records of one partition, in order."""


class CannotRead(RingfaustError):
    """A topic cannot be read in full: it does not exist, or its oldest records are gone."""


def committed_reader(client: Mapping[str, Any]) -> AbstractAsyncContextManager[AIOKafkaConsumer]:
    """A consumer of committed records, to which nothing is assigned yet.

    Args:
        client: options of any Kafka client.
    """
    return connected(
        AIOKafkaConsumer(**client, isolation_level="read_committed", auto_offset_reset="none")
    )


def subscribed_reader(
    client: Mapping[str, Any], topics: Collection[str]
) -> AbstractAsyncContextManager[AIOKafkaConsumer]:
    """A consumer of committed records, to which all partitions of the topics are assigned.

    Args:
        client: options of any Kafka client.
        topics: their names.
    """
    return connected(AIOKafkaConsumer(*topics, **client, isolation_level="read_committed"))


async def read_to_end(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], max_records: int | None = None
) -> AsyncIterator[Sequence[Any]]:
    """Yield records of the assigned partitions until each is read up to its end.

    The position decides, not the last record: a log often ends in transaction markers, which
    consumers never see. A batch may contain records beyond the end.

    Args:
        consumer: positioned at the first record to read. Partitions that are done are paused.
        ends: the end offset of each partition.
        max_records: the most records in one batch, over all partitions.

    Yields:
        Records of one partition, in order.
    """
    left = set(ends)
    while True:
        done = {tp for tp in left if await consumer.position(tp) >= ends[tp]}
        left -= done
        if not left:
            return
        if done:
            consumer.pause(*done)
        fetched = await consumer.getmany(*left, timeout_ms=_POLL_MS, max_records=max_records)
        for records in fetched.values():
            yield records


async def last_record(
    consumer: AIOKafkaConsumer, tp: TopicPartition, begin: int, end: int
) -> Any | None:
    """The last record in a range of offsets, which often ends in markers; None: there is none.

    Args:
        consumer: has the partition assigned. It is left at any position.
        tp: the partition.
        begin: the first offset of the range.
        end: the first offset behind it.
    """
    back, upper = _FIRST_STEP_BACK, end
    while upper > begin:
        at = max(begin, upper - back)
        consumer.seek(tp, at)
        last = None
        async for records in read_to_end(consumer, {tp: upper}):
            before = [record for record in records if record.offset < upper]
            last = before[-1] if before else last
        if last is not None:
            return last
        upper, back = at, back * 8
    return None


async def read_whole(
    client: Mapping[str, Any],
    topics: Collection[str],
    take: RecordHandler,
    progress: Callable[[int], None] = lambda records: None,
    *,
    from_first: bool = True,
) -> None:
    """Pass every record of the topics to `take`, in order within each partition.

    Args:
        client: options for any Kafka client, including `bootstrap_servers`.
        topics: names of the topics.
        take: called with each batch of records of one partition.
        progress: called with the number of records read since the last call.
        from_first: refuse a topic that has lost its first records.

    Raises:
        CannotRead: a topic is missing, or (`from_first`) its first records are gone.
    """
    if not topics:
        return
    consumer = AIOKafkaConsumer(
        *topics,
        **client,
        isolation_level="read_committed",
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    try:
        await _start(consumer, client, topics)
        ends = await _seek_to_first(consumer, from_first)
        async for records in read_to_end(consumer, ends):
            take(records)
            progress(len(records))
    finally:
        await stop_client(consumer)


async def first_offsets(
    client: Mapping[str, Any], topics: Collection[str]
) -> dict[tuple[str, int], int]:
    """By topic and partition, the first offset that exists, where that is not 0.

    Raises:
        CannotRead: a topic is missing.
    """
    consumer = AIOKafkaConsumer(*topics, **client, auto_offset_reset="earliest")
    try:
        await _start(consumer, client, topics)
        begins = await consumer.beginning_offsets(sorted(consumer.assignment()))
        return {(tp.topic, tp.partition): begin for tp, begin in begins.items() if begin}
    finally:
        await stop_client(consumer)


async def require_topics(client: Mapping[str, Any], topics: Collection[str]) -> None:
    """Check that topics exist. A consumer that subscribes to one that does not asks for 40 s.

    Raises:
        CannotRead: a topic is missing.
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    async with connected(AIOKafkaConsumer(**client)) as asking:
        missing = sorted(set(topics) - await asking.topics())
    if missing:
        raise CannotRead(f"there is no topic {', '.join(missing)}: check the application name")


async def _start(
    consumer: AIOKafkaConsumer, client: Mapping[str, Any], topics: Collection[str]
) -> None:
    try:
        await require_topics(client, topics)
        await consumer.start()
    except KafkaError as error:
        reason = type(error).__name__
        raise CannotRead(
            f"no Kafka broker answers at {client['bootstrap_servers']} ({reason}). Check "
            "bootstrap_servers in worker.yaml or --bootstrap-servers"
        ) from error


async def _seek_to_first(consumer: AIOKafkaConsumer, from_first: bool) -> dict[TopicPartition, int]:
    """Seek every partition to its first record. Returns the ends, without empty partitions."""
    tps = sorted(consumer.assignment())
    begins = await consumer.beginning_offsets(tps)
    for tp, begin in begins.items():
        if begin and from_first:
            raise CannotRead(
                f"topic {tp.topic}, partition {tp.partition}, begins at offset {begin}: retention "
                "removed its first records, so the accounts cannot be proved"
            )
        consumer.seek(tp, begin)
    ends = await consumer.end_offsets(tps)
    return {tp: end for tp, end in ends.items() if end > begins[tp]}
