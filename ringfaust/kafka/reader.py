"""Read whole topics as a plain Kafka client does: committed records only, up to their end now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from ringfaust.errors import RingfaustError
from ringfaust.protocol.records import InRecord

_FETCH_BYTES = 4 * 1024 * 1024
_POLL_MS = 500

Take = Callable[[Sequence[InRecord]], None]
"""Takes records of one partition, in order."""


class CannotRead(RingfaustError):
    """A topic that has to be read whole cannot be: it is not there, or lost its oldest records."""


async def read_whole(
    client: Mapping[str, Any],
    topics: Collection[str],
    take: Take,
    progress: Callable[[int], None] = lambda records: None,
    *,
    from_first: bool = True,
) -> None:
    """Give all records of the topics to `take`; those of a partition in order.

    Args:
        client: options of any Kafka client, with `bootstrap_servers`.
        topics: their names.
        take: called with as many records of one partition as came together.
        progress: called with the number of records read since the last call.
        from_first: refuse a topic that has lost its first records.

    Raises:
        CannotRead: a topic is missing, or (`from_first`) its first records are gone.
        KafkaError: the brokers do not answer as they should.
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
        await _start(consumer, topics)
        ends = await _ends(consumer, from_first)
        # The end is reached when the position is there, not when a record is: what stands last
        # are transaction markers, which are never handed out.
        while ends:
            fetched = await consumer.getmany(*ends, timeout_ms=_POLL_MS)
            for records in fetched.values():
                take(records)
                progress(len(records))
            for tp in [tp for tp, end in ends.items() if await consumer.position(tp) >= end]:
                del ends[tp]
                consumer.pause(tp)
    finally:
        await consumer.stop()


async def _start(consumer: AIOKafkaConsumer, topics: Collection[str]) -> None:
    try:
        await consumer.start()
    except UnknownTopicOrPartitionError as error:
        raise CannotRead(f"one of these topics is not there: {', '.join(topics)}") from error
    except KafkaError as error:
        raise CannotRead(f"the brokers do not answer: {error}") from error


async def _ends(consumer: AIOKafkaConsumer, from_first: bool) -> dict[TopicPartition, int]:
    """Where each partition ends now, empty ones left out. Sets positions to the beginning."""
    tps = sorted(consumer.assignment())
    begins = await consumer.beginning_offsets(tps)
    for tp, begin in begins.items():
        if begin and from_first:
            raise CannotRead(
                f"topic {tp.topic}, partition {tp.partition}, begins at offset {begin}: its first "
                "records are gone (retention), and with them what could be proved"
            )
        consumer.seek(tp, begin)
    found = await consumer.end_offsets(tps)
    return {tp: end for tp, end in found.items() if end > begins[tp]}
