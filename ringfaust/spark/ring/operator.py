"""The rings as a stateful operator: for each partition one `MicroBatch` per micro-batch.

Spark guarantees what the rings need: a group has one owner at a time, its state is committed with
the batch, and a repeated batch has the same records, the same time and the same state before it.
A micro-batch is deterministic, so its output is the same to the byte. The sink may repeat records
but never changes them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
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
from ringfaust.spark.ring.micro_batch import MicroBatch, OperatorConfig
from ringfaust.spark.ring.pages import PagedMap
from ringfaust.spark.vendor import current_batch

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
"""Output rows. Where `layout` is -1, `names` and `contents` hold the headers."""

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
    """Processes the partitions of a task; Spark calls its methods.

    Args:
        config: shared by all partitions.
        topics: names of the output topics by role.
        shuffle_keys: the group key of each partition.
    """

    def __init__(
        self, config: OperatorConfig, topics: Mapping[Role, str], shuffle_keys: Sequence[int]
    ) -> None:
        self._config = config
        self._topics = dict(topics)
        self._partitions = {key: partition for partition, key in enumerate(shuffle_keys)}

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
        yield from self._process(key, read_records(rows), now_ms, fired_ms=None)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Advance a partition's time."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._process(key, [], now_ms, fired_ms)

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
        """Do nothing: nothing is open."""

    def _process(
        self, key: Any, records: list[InRecord], now_ms: int, fired_ms: int | None
    ) -> Iterator[pd.DataFrame]:
        partition = self._partitions[int(key[0])]
        batch = MicroBatch(self._config, partition, self._pages, now_ms, current_batch())
        for outputs in batch.run(records):
            yield from write_frames(outputs, self._topics, partition)
        self._set_timer(batch.close(), now_ms, fired_ms)

    def _set_timer(self, wake_ms: int | None, now_ms: int, fired_ms: int | None) -> None:
        """Register a timer unless an earlier one is registered, which does no harm."""
        if self._config.processor_config.log_is_clock:
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
