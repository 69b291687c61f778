"""A partition without Kafka, for tests of what a worker tells about its partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from faust.types import TP

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import FetchedRecord, Headers, OutRecord
from ringfaust.protocol.routes import Route
from ringfaust.worker.partition.numbers import PartitionNumbers

NOW_MS = 1_000_000


class Partition:
    """The work of a partition, as far as metrics and status look at it."""

    def __init__(self, rings: dict[str, Any], number: int = 0) -> None:
        shared = ProcessorConfig(
            control_topic="control", repartition_topic="hop", routes=[Route("in", "{header:to}")],
            max_record_bytes=9_000, log_is_clock=False,
        )  # fmt: skip
        self.store = MemoryKeyValue()
        state = State(ByteStore(self.store), Catalog(rings, {}, {}))
        self.processor: Processor[list[OutRecord]] = Processor(shared, state, {}, list)
        self.processor.observe(evictions=False, counts=True)
        self.number = number
        self.unit = str(number)
        self.name = f"partition {number}"
        self.tps = {TP("in", number)}
        self.is_caught_up = True
        self.blocked = ""
        self.remaining_records = 0
        self.numbers = PartitionNumbers()
        self.now_ms = NOW_MS

    @property
    def state(self) -> State:
        return self.processor.state

    @property
    def positions(self) -> Mapping[str, int]:
        return self.processor.positions

    @property
    def paused_topics(self) -> Mapping[str, str]:
        return self.processor.paused_topics

    def wall_ms(self) -> int:
        return self.now_ms

    def send(self, queue: str, *ids: str) -> None:
        """Send a message each second, and commit."""
        for each in ids:
            headers = [("to", queue.encode()), ("ringfaust-id", each.encode())]
            self._take("in", b"x", headers)
            self.now_ms += 1_000
        self.commit()

    def do(self, command: dict[str, Any]) -> None:
        """Carry out a control command, and commit."""
        self._take("control", json.dumps(command).encode())
        self.commit()

    def _take(self, topic: str, value: bytes, headers: Headers = ()) -> None:
        offset = self.positions.get(topic, 0)
        record = FetchedRecord(
            topic, self.number, offset, self.now_ms, value=value, headers=headers
        )
        self.processor.take([record], self.now_ms)

    def commit(self) -> None:
        activity, outputs = self.processor.activity(), self.processor.outputs()
        self.store.apply(self.processor.writes().store)
        self.processor.committed(1 << 20)
        self.numbers.commit(outputs, activity, 0.02)
