"""The rings as a stateful operator: grouped by partition, a turn for each micro-batch.

What Spark promises and the host needs: a group has one owner at a time, its state is committed with
the batch, and a batch that is done again has the same records, the same time and the same state
before it. The turn is deterministic, so what comes out of it is the same to the byte: the sink may
repeat records, but never alters them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ringfaust.protocol.records import InRecord, Role
from ringfaust.spark.columns import HEADER_COLUMNS, read_records, write_frames
from ringfaust.spark.ring.micro_batch import Plan, Turn
from ringfaust.spark.ring.pages import Leaves

OUTPUT = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("layout", IntegerType(), nullable=False),
        *(StructField(name, BinaryType()) for name in HEADER_COLUMNS),
        StructField("names", ArrayType(StringType())),
        StructField("contents", ArrayType(BinaryType())),
    ]
)
"""Rows that go out. Where `layout` is -1 the headers are those of `names` and `contents`."""

_NUMBER = StructType([StructField("number", LongType())])
_PAGE = StructType([StructField("page", BinaryType())])
_GC_THRESHOLDS = (100_000, 50, 100)
"""As a worker's: most garbage is freed by reference counts."""
_TIMER = -1
"""Beside the pages: the timer that is set, if any; setting one anew each time costs calls."""


def _batch() -> int:
    """Number of the micro-batch under way; Spark has no other word for it in a task."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    assert number is not None, "a stateful operator runs in a batch of a query"
    return int(number)


class _StatePages:
    """Pages in a map state; the group's key says whose."""

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
    """See the head of this file."""

    def __init__(self, plan: Plan, topics: Mapping[Role, str], seats: Sequence[int]) -> None:
        """`topics`: our topics' names by role. `seats`: a group's number for each partition."""
        self._plan = plan
        self._topics = dict(topics)
        self._partitions = {seat: partition for partition, seat in enumerate(seats)}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once for each task."""
        gc.set_threshold(*_GC_THRESHOLDS)
        self._handle = handle
        self._pages = _StatePages(handle.getMapState("pages", _NUMBER, _PAGE))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Take a partition's records."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        yield from self._turn(key, read_records(rows), now_ms, fired_ms=None)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Let time act on a partition."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._turn(key, [], now_ms, fired_ms)

    def handleInitialState(  # noqa: N802
        self,
        key: Any,
        initialState: pd.DataFrame,
        timerValues: Any,  # noqa: N803
    ) -> None:
        """Take over the rows of a worker's changelog (columns row_key, row_value)."""
        leaves = Leaves(self._pages)
        leaves.apply(
            (bytes(row_key), bytes(row_value))
            for row_key, row_value in zip(
                initialState["row_key"], initialState["row_value"], strict=True
            )
        )
        leaves.flush()

    def close(self) -> None:
        """Nothing is open."""

    def _turn(
        self, key: Any, records: list[InRecord], now_ms: int, fired_ms: int | None
    ) -> Iterator[pd.DataFrame]:
        partition = self._partitions[int(key[0])]
        turn = Turn(self._plan, partition, self._pages, now_ms, _batch())
        for outputs in turn.run(records):
            yield from write_frames(outputs, self._topics, partition)
        self._set_timer(turn.close(), now_ms, fired_ms)

    def _set_timer(self, wake_ms: int | None, now_ms: int, fired_ms: int | None) -> None:
        """A timer that comes too early does no harm; one that comes too late must not be."""
        if self._plan.processor_config.log_is_clock:
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
