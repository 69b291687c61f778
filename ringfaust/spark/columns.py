"""A job's rows as records in the order in which they are processed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from ringfaust.protocol.records import FetchedRecord, Headers

IN_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "flat")
"""`flat`: the headers as name, value, name, value …; null for a record without headers."""


def read_records(frames: Iterable[pd.DataFrame]) -> list[FetchedRecord]:
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
    # The same as FetchedRecord(...), without a Python call for each record.
    make: Any = partial(tuple.__new__, FetchedRecord)
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
