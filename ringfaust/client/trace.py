"""Find out what happened to a message, from the events topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.client.brokers import stop
from ringfaust.client.connection import Connection, ConnectOptions, refuse_unknown
from ringfaust.client.errors import ClientError
from ringfaust.client.lifecycles import Lifecycle, Search, Trace, place_of
from ringfaust.protocol import headers as h
from ringfaust.protocol.names import topic_name
from ringfaust.protocol.records import Role

_FETCH_BYTES = 8_000_000
"""Of one answer: the fastest. A larger one is copied outside the caches of the processor."""
_POLL_MS = 5_000
_MOST_RECORDS = 20
"""How many producers' records a trace looks at."""
_MOST_KEYED = 20
"""With a key: how many of its latest records in a partition are traced."""
_KEYED_AMONG = 100_000
"""With a key: how many of the latest records of a partition are searched at least. Their own times
do not bound this: a producer's clock may be wrong."""


async def trace(
    target: str = "",
    *,
    key: str = "",
    topics: Iterable[str] = (),
    since_ms: int,
    **options: Unpack[ConnectOptions],
) -> Trace:
    """Search the events for a message.

    Args:
        target: its id, or its record as topic/partition/offset.
        key: instead of `target`, the key of its record: the latest 20 records with that key in
            each partition. It looks at those since `since_ms`, at the latest 100,000 at least.
        topics: where to look for the key: the producers' topics.
        since_ms: search no earlier events, in ms since 1970.
        options: see `ConnectOptions`.

    Raises:
        ClientError: the application has no events topic.
        KafkaError: the brokers cannot be reached or refuse the client.
        TypeError: there is no such option.
    """
    refuse_unknown(options, ConnectOptions)
    connection = Connection(options)
    reader = connection.brokers.consumer(
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        check_crcs=False,
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    try:
        await connection.start()
        await reader.start()
        known = await reader.topics()
        events = topic_name(connection.application, Role.EVENTS)
        if events not in known:
            raise ClientError(
                f"there is no topic {events}: check the application name "
                f"({connection.application!r})"
            )
        wanted = [target] if target else []
        if key:
            for topic in topics:
                if topic in known:
                    for number in sorted(await connection.producer.partitions_for(topic)):
                        place = TopicPartition(topic, number)
                        wanted += await _records_with_key(reader, place, key, since_ms)
        search = Search(wanted)
        if wanted:
            numbers = await connection.producer.partitions_for(events)
            places = [TopicPartition(events, each) for each in sorted(numbers)]
            await _read(reader, places, search, since_ms)
        lifecycles = await _with_redrives(reader, known, search.lifecycles())
        hint = (
            ""
            if lifecycles or not target
            else await _about_record(connection, reader, known, target)
        )
        return Trace(tuple(lifecycles), since_ms, search.records, hint)
    finally:
        await stop(reader)
        await connection.close()


async def _read(
    reader: AIOKafkaConsumer, places: Sequence[TopicPartition], search: Search, since_ms: int
) -> None:
    """Read partitions from that time to their ends."""
    ends = await _seek(reader, places, since_ms)
    while ends:
        batches = await reader.getmany(timeout_ms=_POLL_MS)
        for records in batches.values():
            for record in records:
                search.look(record.value or b"")
        await _drop_finished(reader, ends)


async def _seek(
    reader: AIOKafkaConsumer, places: Sequence[TopicPartition], since_ms: int
) -> dict[TopicPartition, int]:
    """Go to that time in each partition; return the ends of those that have records after it."""
    reader.assign(places)
    ends = await reader.end_offsets(places)
    starts = await reader.offsets_for_times({place: since_ms for place in places})
    for place in places:
        found = starts[place]
        reader.seek(place, ends[place] if found is None else found.offset)
    remaining = dict(ends)
    await _drop_finished(reader, remaining)
    return remaining


async def _drop_finished(reader: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> None:
    """Leave out the partitions that were read to their ends. Markers count: they have offsets."""
    for place in list(ends):
        if await reader.position(place) >= ends[place]:
            del ends[place]
            reader.pause(place)


async def _records_with_key(
    reader: AIOKafkaConsumer, place: TopicPartition, key: str, since_ms: int
) -> list[str]:
    """The latest records of a partition with that key, as topic/partition/offset."""
    await _seek(reader, [place], since_ms)
    ends = await reader.end_offsets([place])
    begin = (await reader.beginning_offsets([place]))[place]
    first = min(await reader.position(place), ends[place] - _KEYED_AMONG)
    reader.resume(place)
    reader.seek(place, max(first, begin))
    await _drop_finished(reader, ends)
    found: deque[str] = deque(maxlen=_MOST_KEYED)
    raw = key.encode()
    while ends:
        batches = await reader.getmany(timeout_ms=_POLL_MS)
        for records in batches.values():
            found.extend(
                f"{place.topic}/{place.partition}/{record.offset}"
                for record in records
                if record.key == raw
            )
        await _drop_finished(reader, ends)
    return [*found]


async def _with_redrives(
    reader: AIOKafkaConsumer, known: Iterable[str], lifecycles: Sequence[Lifecycle]
) -> list[Lifecycle]:
    """Add what the producers' records of the latest lifecycles say about redrives."""
    found = list(lifecycles)
    for number, lifecycle in list(enumerate(found))[-_MOST_RECORDS:]:
        place, offset = _place(lifecycle.source)
        if place is not None and place.topic in known:
            headers = await _headers_at(reader, place, offset)
            if h.REDRIVE_OF in headers:
                found[number] = replace(lifecycle, redrives=int(headers[h.REDRIVES]))
    return found


def _place(source: str) -> tuple[TopicPartition | None, int]:
    """Read topic/partition/offset; None if it is not of that form."""
    found = place_of(source)
    return (TopicPartition(found[0], found[1]), found[2]) if found else (None, 0)


async def _headers_at(
    reader: AIOKafkaConsumer, place: TopicPartition, offset: int
) -> dict[str, bytes]:
    """The headers of one record; empty if it is deleted."""
    reader.assign([place])
    begin = (await reader.beginning_offsets([place]))[place]
    end = (await reader.end_offsets([place]))[place]
    if not begin <= offset < end:
        return {}
    reader.seek(place, offset)
    fetched = await reader.getmany(timeout_ms=_POLL_MS, max_records=1)
    records = fetched.get(place, ())
    return dict(records[0].headers) if records and records[0].offset == offset else {}


async def _about_record(
    connection: Connection, reader: AIOKafkaConsumer, known: Iterable[str], target: str
) -> str:
    """What is known about the record of a message that no event names."""
    place, offset = _place(target)
    if place is None:
        return ""
    topic, partition = place
    if topic not in known:
        return f"there is no topic {topic}"
    if partition not in await connection.producer.partitions_for(topic):
        return f"topic {topic} has no partition {partition}"
    begin = (await reader.beginning_offsets([place]))[place]
    end = (await reader.end_offsets([place]))[place]
    if offset >= end:
        return f"that record does not exist yet: the next offset of {topic}/{partition} is {end}"
    if offset < begin:
        return f"that record is deleted: {topic}/{partition} begins at offset {begin}"
    return f"that record is in the topic; {topic}/{partition} ends at offset {end}"
