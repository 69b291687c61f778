"""Find out what happened to a message, from the events topic."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Unpack

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from ringfaust.client.brokers import stop
from ringfaust.client.connection import Connection, ConnectOptions, refuse_unknown
from ringfaust.client.errors import ClientError
from ringfaust.client.lifecycles import MOST_EVENTS, Lifecycle, Search, Trace, place_of
from ringfaust.errors import ProtocolError
from ringfaust.protocol.names import topic_name
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.routes import read_send

_FETCH_BYTES = 8_000_000
"""Of one answer: the fastest. A larger one is copied outside the caches of the processor."""
_POLL_MS = 5_000
_PARTITIONS_AT_ONCE = 32
"""Of each one, up to `_FETCH_BYTES` are in memory."""
_MOST_RECORDS = 20
"""How many producers' records a trace reads one by one."""
_MOST_KEYED = 20
"""With a key: how many of its latest records in a partition are traced."""
_MOST_PENDING = 100
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
    async with _opened(options) as (connection, reader, known, events):
        keyed: dict[str, int] = {}
        left_out: list[str] = []
        for topic in topics if key else ():
            if topic in known:
                numbers = sorted(await connection.producer.partitions_for(topic))
                places = [TopicPartition(topic, each) for each in numbers]
                left_out += await _look_for_key(reader, places, key, since_ms, keyed)
            else:
                left_out.append(f"topic {topic}, which does not exist")
        wanted = [target] if target else [*keyed]
        search = Search(wanted)
        if wanted:
            numbers = sorted(await connection.producer.partitions_for(events))
            places = [TopicPartition(events, each) for each in numbers]
            await _read(reader, places, lambda record: search.look(record.value or b""), since_ms)
        if search.is_full:
            left_out.append(f"events after the first {MOST_EVENTS:,}")
        lifecycles = search.lifecycles()
        left_out += await _add_redrives(reader, known, lifecycles, keyed)
        hint = (
            ""
            if lifecycles or not target
            else await _about_record(connection, reader, known, target)
        )
        return Trace(tuple(lifecycles), since_ms, search.records, hint, tuple(left_out))


async def pending_in(
    xid: str, *, since_ms: int, **options: Unpack[ConnectOptions]
) -> list[Mapping[str, Any]]:
    """Return the `pending` events of a distributed transaction (R81): its first 100 sends and acks.

    Args:
        xid: its name.
        since_ms: search no earlier events, in ms since 1970.
        options: see `ConnectOptions`.

    Raises:
        ClientError: the application has no events topic.
        KafkaError: the brokers cannot be reached or refuse the client.
        TypeError: there is no such option.
    """
    needle = quoted(xid).encode()
    found: list[Mapping[str, Any]] = []

    def look(record: ConsumerRecord) -> None:
        raw = record.value or b""
        if needle not in raw:
            return
        lines = (json.loads(line) for line in raw.split(b"\n") if needle in line)
        found.extend(each for each in lines if (each["event"], each.get("xid")) == ("pending", xid))
        del found[_MOST_PENDING:]

    async with _opened(options) as (connection, reader, _, events):
        numbers = sorted(await connection.producer.partitions_for(events))
        await _read(reader, [TopicPartition(events, each) for each in numbers], look, since_ms)
    return found


@asynccontextmanager
async def _opened(
    options: ConnectOptions,
) -> AsyncIterator[tuple[Connection, AIOKafkaConsumer, set[str], str]]:
    """A connection, a reader, the topics that exist, and which of them has the events."""
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
        yield connection, reader, known, events
    finally:
        await stop(reader)
        await connection.close()


async def _read(
    reader: AIOKafkaConsumer,
    places: Sequence[TopicPartition],
    look: Callable[[ConsumerRecord], None],
    since_ms: int,
    latest: int = 0,
) -> None:
    """Read partitions from that time to their ends, and the latest records at least.

    Args:
        reader: it is assigned these partitions.
        places: the partitions.
        look: gets each record.
        since_ms: in ms since 1970.
        latest: how many records of each partition to read at least.
    """
    for start in range(0, len(places), _PARTITIONS_AT_ONCE):
        part = places[start : start + _PARTITIONS_AT_ONCE]
        ends = await _seek(reader, part, since_ms, latest)
        while ends:
            batches = await reader.getmany(timeout_ms=_POLL_MS)
            for records in batches.values():
                for record in records:
                    look(record)
            await _drop_finished(reader, ends)


async def _seek(
    reader: AIOKafkaConsumer, places: Sequence[TopicPartition], since_ms: int, latest: int
) -> dict[TopicPartition, int]:
    """Go to where `_read` begins; return the ends of the partitions with records after that."""
    reader.assign(places)
    ends = await reader.end_offsets(places)
    starts = await reader.offsets_for_times({place: since_ms for place in places})
    begins = await reader.beginning_offsets(places) if latest else {}
    for place in places:
        found = starts[place]
        first = ends[place] if found is None else found.offset
        reader.seek(place, max(min(first, ends[place] - latest), begins.get(place, 0)))
    remaining = dict(ends)
    await _drop_finished(reader, remaining)
    return remaining


async def _drop_finished(reader: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> None:
    """Leave out the partitions that were read to their ends. Markers count: they have offsets."""
    for place in list(ends):
        if await reader.position(place) >= ends[place]:
            del ends[place]
            reader.pause(place)


async def _look_for_key(
    reader: AIOKafkaConsumer,
    places: Sequence[TopicPartition],
    key: str,
    since_ms: int,
    keyed: dict[str, int],
) -> list[str]:
    """Add the latest records with that key: how often the message of each was redriven, by source.

    Returns:
        What was left out.
    """
    raw = key.encode()
    found: dict[int, deque[ConsumerRecord]] = {
        place.partition: deque(maxlen=_MOST_KEYED) for place in places
    }
    seen: Counter[int] = Counter()

    def look(record: ConsumerRecord) -> None:
        if record.key == raw:
            found[record.partition].append(record)
            seen[record.partition] += 1

    await _read(reader, places, look, since_ms, _KEYED_AMONG)
    left_out = []
    for topic, partition in places:
        for record in found[partition]:
            keyed[f"{topic}/{partition}/{record.offset}"] = _redrives(record)
        if earlier := seen[partition] - len(found[partition]):
            left_out.append(f"earlier records with this key in {topic}/{partition}: {earlier}")
    return left_out


def _redrives(record: ConsumerRecord) -> int:
    """How often the message of a producer's record was redriven, as a worker reads it."""
    fetched = FetchedRecord(
        record.topic, record.partition, record.offset,
        key=record.key, value=record.value, headers=record.headers,
    )  # fmt: skip
    try:
        return read_send(fetched, "", "", 0).redrives
    except ProtocolError:
        return 0


async def _add_redrives(
    reader: AIOKafkaConsumer,
    known: Iterable[str],
    lifecycles: list[Lifecycle],
    read: Mapping[str, int],
) -> list[str]:
    """Add what the producers' records say about redrives.

    Args:
        reader: for the records that were not read yet.
        known: the topics that exist.
        lifecycles: to be completed.
        read: how often the messages of records that were read had been redriven, by source.

    Returns:
        What was left out.
    """
    unread = [number for number, each in enumerate(lifecycles) if each.source not in read]
    skipped = unread[:-_MOST_RECORDS]
    for number, lifecycle in enumerate(lifecycles):
        if number not in skipped:
            redrives = read.get(lifecycle.source)
            if redrives is None:
                redrives = await _redrives_of(reader, known, lifecycle.source)
            lifecycles[number] = replace(lifecycle, redrives=redrives)
    return [f"whether earlier messages were redriven: {len(skipped)}"] if skipped else []


async def _redrives_of(reader: AIOKafkaConsumer, known: Iterable[str], source: str) -> int:
    """How often the message of a record was redriven; 0 if the record is deleted."""
    place, offset = _place(source)
    if place is None or place.topic not in known:
        return 0
    reader.assign([place])
    begin = (await reader.beginning_offsets([place]))[place]
    end = (await reader.end_offsets([place]))[place]
    if not begin <= offset < end:
        return 0
    reader.seek(place, offset)
    fetched = await reader.getmany(timeout_ms=_POLL_MS, max_records=1)
    records = fetched.get(place, ())
    return _redrives(records[0]) if records and records[0].offset == offset else 0


def _place(source: str) -> tuple[TopicPartition | None, int]:
    """Read topic/partition/offset; None if it is not of that form."""
    found = place_of(source)
    return (TopicPartition(found[0], found[1]), found[2]) if found else (None, 0)


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
