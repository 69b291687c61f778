"""The rings as a stateful operator: for each partition one `MicroBatch` per micro-batch.

Spark guarantees what the rings need: a group has one owner at a time, its state is committed with
the batch, and a repeated batch has the same records, the same time and the same state before it.
A micro-batch is deterministic, so its output is the same to the byte, and what was written before
is left out.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from ringfaust.protocol.records import FetchedRecord, Headers
from ringfaust.spark.ring.micro_batch import MicroBatch, OperatorConfig
from ringfaust.spark.ring.pages import PagedMap
from ringfaust.spark.ring.writer import COUNTS, OutputTarget, Part, Place, RingWriter, new_batches
from ringfaust.spark.vendor import current_batch

OUTPUT = StructType([StructField(name, LongType()) for name in COUNTS])
"""Spark only gets how many records were written: `RingWriter` writes them."""

IN_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "flat")
"""`flat`: the headers as name, value, name, value …; null for a record without headers."""
STATE_VARIABLE = "pages"
_NUMBER = StructType([StructField("number", LongType())])
_PAGE = StructType([StructField("page", BinaryType())])
_GC_THRESHOLDS = (100_000, 50, 100)
"""As in a worker: reference counts free most garbage."""
_TIMER = -1
"""Page number under which the time of the registered timer is stored. Registering it again in each
batch would cost calls to the JVM."""


class _StatePages:
    """Pages in a map state of the current group."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, number: int) -> bytes | None:
        found = self._state.getValue((number,))
        return None if found is None else bytes(found[0])

    def put(self, number: int, page: bytes) -> None:
        self._state.updateValue((number,), (page,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))


class RingOperator(StatefulProcessor):
    """Processes the partitions of a task; Spark calls its methods."""

    def __init__(
        self, config: OperatorConfig, target: OutputTarget, shuffle_keys: Sequence[int]
    ) -> None:
        self._config = config
        self._target = target
        self._partitions = {key: partition for partition, key in enumerate(shuffle_keys)}
        self._phases: Counter[int] = Counter()
        """How often each partition was processed in this task."""
        self._writer: RingWriter | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Set up a task."""
        gc.set_threshold(*_GC_THRESHOLDS)
        self._handle = handle
        self._pages = _StatePages(handle.getMapState(STATE_VARIABLE, _NUMBER, _PAGE))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Process a partition's records."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        return self._process(key, read_records(rows), now_ms, fired_ms=None)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Advance a partition's time."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        return self._process(key, [], now_ms, fired_ms)

    def handleInitialState(  # noqa: N802
        self,
        key: Any,
        initialState: pd.DataFrame,
        timerValues: Any,  # noqa: N803
    ) -> None:
        """Begin with the rows of a worker's changelog (columns row_key, row_value)."""
        rows = PagedMap(self._pages)
        rows.apply(
            (bytes(row_key), bytes(row_value))
            for row_key, row_value in zip(
                initialState["row_key"], initialState["row_value"], strict=True
            )
        )
        rows.flush()

    def close(self) -> None:
        """Commit the outputs. Spark calls it before it commits the task's state."""
        if self._writer is not None:
            self._writer.close()

    def _process(
        self, key: Any, records: list[FetchedRecord], now_ms: int, fired_ms: int | None
    ) -> Iterator[pd.DataFrame]:
        partition, number = self._partitions[int(key[0])], current_batch()
        batch = MicroBatch(
            self._config, partition, self._pages, now_ms, batch=number, new_buffer=new_batches
        )
        if self._writer is None:
            self._writer = RingWriter(self._target, partition % self._target.tasks)
        counts = dict.fromkeys(COUNTS, 0)
        for part, outputs in enumerate(batch.run(records)):
            place = Place(number, self._phases[partition], part)
            self._writer.write(Part(partition, place, outputs, dict(batch.positions)))
            for (role, _), written in outputs.items():
                if role in counts:
                    counts[role] += len(written)
        self._phases[partition] += 1
        self._set_timer(batch.close(), now_ms, fired_ms)
        return iter([pd.DataFrame([counts])])

    def _set_timer(self, wake_ms: int | None, now_ms: int, fired_ms: int | None) -> None:
        """Register a timer unless an earlier one is registered, which does no harm."""
        if self._config.rules.processor_config.log_is_clock:
            return
        raw = self._pages.get(_TIMER)
        set_ms = int(raw) if raw else None
        if set_ms is not None and set_ms == fired_ms:
            self._pages.remove(_TIMER)
            set_ms = None
        if wake_ms is not None and (set_ms is None or wake_ms < set_ms):
            at_ms = max(wake_ms, now_ms + 1)
            self._handle.registerTimer(at_ms)
            self._pages.put(_TIMER, b"%d" % at_ms)


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
