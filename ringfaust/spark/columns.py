"""Records as columns: a job's rows become ordered records, its output records become rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers, InRecord, OutRecord, Role

IN_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "flat")
"""`flat`: the headers as name, value, name, value …; null for a record without headers."""

_MESSAGE = (h.QUEUE, h.ID, h.SEQUENCE, h.PRIORITY, h.ENQUEUED_MS, h.SOURCE)
_DISPATCHED = (*_MESSAGE, h.CONSUMER, h.DELIVERY, h.ATTEMPT, h.HANDOVERS)
_EVICTED = (
    *_MESSAGE, h.REASON, h.CAUSE, h.RING_SIZE, h.READY, h.TIME_MS, h.AGE_MS, h.HANDOVERS,
)  # fmt: skip
LAYOUTS = ((), _EVICTED, _DISPATCHED, (*_DISPATCHED, h.REDELIVERED))
"""The header names of nearly all records. If all records of a frame have the same ones, each header
becomes a column and the names are not sent: as lists they would cost more than the rest of the
record."""
HEADER_COLUMNS = tuple(f"header_{number}" for number in range(max(map(len, LAYOUTS))))

Outputs = Mapping[tuple[Role, int | None], list[OutRecord]]


class ConsumedRecord(NamedTuple):
    """A consumed record, as an `InRecord`."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_records(frames: Iterable[pd.DataFrame]) -> list[InRecord]:
    """Return the records of a micro-batch for one partition, in processing order.

    Spark delivers them in any order, and a repeated batch in another one, so the order depends on
    the records alone: within one log by offset, between logs by timestamp, then by topic and
    partition. The time of a log never goes back: a record's timestamp counts as no earlier than
    those before it.
    """
    whole = pd.concat(list(frames), ignore_index=True)
    columns = [whole[name].to_numpy() for name in IN_COLUMNS]
    order = _order(*columns[:4])
    *fields, flat = (column[order].tolist() for column in columns)
    headers = [_headers(pairs) if pairs is not None else () for pairs in flat]
    # The same as ConsumedRecord(...), without a Python call for each record.
    make: Any = partial(tuple.__new__, ConsumedRecord)
    return list(map(make, zip(*fields, headers, strict=True)))


def _order(topic: Any, partition: Any, offset: Any, timestamp: Any) -> Any:
    """The indexes of the rows, in processing order."""
    logs = pd.factorize(topic, sort=True)[0] * (int(partition.max()) + 1) + partition
    by_log = np.lexsort((offset, logs))
    logs, times = logs[by_log], timestamp[by_log].copy()
    starts = [0, *(np.flatnonzero(np.diff(logs)) + 1).tolist(), len(logs)]
    for start, end in pairwise(starts):
        times[start:end] = np.maximum.accumulate(times[start:end])
    return by_log[np.lexsort((logs, times))]


def _headers(flat: Any) -> Headers:
    return tuple(
        (name.decode("utf-8", "replace"), value)
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    )


def write_frames(
    outputs: Outputs, topics: Mapping[Role, str], partition: int
) -> Iterator[pd.DataFrame]:
    """Yield a frame for each topic, with its records in order."""
    for (role, _), records in outputs.items():
        keys, values, headers = zip(*records, strict=True)
        count = len(records)
        yield pd.DataFrame(
            {
                "topic": [topics[role]] * count,
                "partition": np.full(count, partition, dtype=np.int32),
                "key": _binary(keys),
                "value": _binary(values),
                **_header_columns(headers),
            }
        )


def _header_columns(headers: Sequence[Headers]) -> dict[str, Any]:
    """Columns by layout if the records share one, else lists of names and contents."""
    names = tuple(name for name, _ in headers[0])
    columns = _by_layout(headers, names) if names in LAYOUTS else None
    listed = headers if columns is None else None
    nothing = _binary([None] * len(headers))
    return {
        "layout": np.int32(-1 if columns is None else LAYOUTS.index(names)),
        **dict(zip_longest(HEADER_COLUMNS, columns or (), fillvalue=nothing)),
        # Lists: Spark converts them element by element, from Arrow arrays three times slower.
        "names": listed and [[name for name, _ in pairs] for pairs in listed],
        "contents": listed and [[content for _, content in pairs] for pairs in listed],
    }


def _by_layout(headers: Sequence[Headers], names: tuple[str, ...]) -> list[Any] | None:
    """A column for each name, or None if a record has other headers."""
    if set(map(len, headers)) != {len(names)}:
        return None
    flat: list[Any] = list(chain.from_iterable(chain.from_iterable(headers)))
    step = 2 * len(names)
    columns = []
    for at, name in enumerate(names):
        if flat[2 * at :: step].count(name) != len(headers):
            return None
        columns.append(_binary(flat[2 * at + 1 :: step]))
    return columns


def _binary(values: Sequence[bytes | None]) -> Any:
    """A column that Spark takes without converting it."""
    return pd.arrays.ArrowExtensionArray(pa.array(values, pa.binary()))
