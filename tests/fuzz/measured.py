"""A partition that is driven as a worker drives it, and that measures each of its transactions."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import FetchedRecord, Headers, OutRecord, Role
from ringfaust.protocol.routes import Route
from tests.records import new_record

CONTROL, IN, HOP = "control", "in", "hop"
CACHE_BYTES = 8 << 20


class Cost(NamedTuple):
    """What one transaction has cost."""

    cause: str
    """The command or record that it began with."""
    input_bytes: int
    record_bytes: int
    """Of all records for topics."""
    row_bytes: int
    """Of all rows for the changelog."""
    largest_record: int
    largest_row: int
    grown_bytes: int
    """The most memory that it held beyond what was there before; 0: not measured."""
    cpu_s: float

    @property
    def written_bytes(self) -> int:
        """What the transaction writes."""
        return self.record_bytes + self.row_bytes


class Measured:
    """A partition over a store in memory. Each transaction is committed, and measured."""

    def __init__(
        self, catalog: Catalog, *, most_bytes: int = 900_000, batch: int = 500,
        traces: bool = False, now_ms: int = 1_000,
    ) -> None:  # fmt: skip
        """`batch`: most records in a transaction; `traces`: measure memory, which takes time."""
        self._config = ProcessorConfig(
            control_topic=CONTROL, repartition_topic=HOP, routes=[Route(IN, "{key}")],
            max_record_bytes=most_bytes, log_is_clock=False,
        )  # fmt: skip
        self._catalog = catalog
        self.store = MemoryKeyValue()
        self._offsets = {CONTROL: 0, IN: 0}
        self._batch = batch
        self._traces = traces
        self.now_ms = now_ms
        self.costs: list[Cost] = []
        self.replies: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._open({})

    def _open(self, positions: Mapping[str, int]) -> None:
        state = State(ByteStore(self.store), self._catalog)
        self.processor: Processor[list[OutRecord]] = Processor(self._config, state, positions, list)
        self.processor.is_cut = True

    def reopen(self) -> None:
        """Start again from what is stored, as after a crash."""
        self._open(self.processor.positions)
        self.processor.start()
        self._commit("start", 0, time.process_time())
        self._go_on("start")

    # --- input -----------------------------------------------------------------------------------

    def command(self, kind: str, **fields: Any) -> FetchedRecord:
        """A control record."""
        value = json.dumps({"type": kind, **fields}).encode()
        return self._record(CONTROL, value, (), None)

    def message(self, queue: str, value: bytes, headers: Headers = ()) -> FetchedRecord:
        """A producer's record."""
        return self._record(IN, value, headers, queue.encode())

    def _record(
        self, topic: str, value: bytes, headers: Headers, key: bytes | None
    ) -> FetchedRecord:
        offset = self._offsets[topic]
        self._offsets[topic] = offset + 1
        return new_record(topic, offset, value, headers, key)

    def say(self, kind: str, **fields: Any) -> None:
        """Take one command."""
        self.take([self.command(kind, **fields)])

    def take(self, records: Sequence[FetchedRecord]) -> None:
        """Take records, in transactions of up to `batch` records."""
        waiting = iter(records)
        while batch := next(waiting, None):
            rest = _first(batch, waiting, self._batch)
            self._measure(_cause(batch), rest)

    def tick(self) -> None:
        """Do what is due, until nothing is."""
        while (at_ms := self.processor.next_wake_ms()) is not None and at_ms <= self.now_ms:
            began = self._begin()
            self.processor.tick(self.now_ms)
            self._commit("tick", 0, began)
            self._go_on("tick")

    def _measure(self, cause: str, records: Iterator[FetchedRecord]) -> None:
        taken = _Counted(records)
        began = self._begin()
        self.processor.take(taken, self.now_ms)
        self._commit(cause, taken.size_bytes, began)
        self._go_on(cause)

    def _go_on(self, cause: str) -> None:
        while self.processor.is_unfinished:
            began = self._begin()
            self.processor.go_on()
            self._commit(cause, 0, began)

    # --- a transaction ---------------------------------------------------------------------------

    def _begin(self) -> float:
        if self._traces:
            tracemalloc.start()
        return time.process_time()

    def _commit(self, cause: str, input_bytes: int, began_s: float) -> None:
        processor = self.processor
        outputs = processor.outputs()
        writes = processor.writes().store
        cpu_s = time.process_time() - began_s
        grown = tracemalloc.get_traced_memory()[1] if self._traces else 0
        tracemalloc.stop()
        records = [len(_bytes_of(each)) for made in outputs.values() for each in made]
        rows = [len(key) + len(value or b"") for key, value in writes]
        self.costs.append(
            Cost(
                cause, input_bytes, sum(records), sum(rows), max(records, default=0),
                max(rows, default=0), grown, cpu_s,
            )
        )  # fmt: skip
        for (role, _), made in outputs.items():
            lines = [line for _, value, _ in made for line in (value or b"").split(b"\n")]
            if role is Role.REPLIES:
                self.replies += map(json.loads, lines)
            elif role is Role.EVENTS:
                self.events += map(json.loads, lines)
        self.store.apply(writes)
        processor.committed(CACHE_BYTES)


class _Counted(Iterator[FetchedRecord]):
    """Counts the bytes of the records that are taken from an iterator."""

    def __init__(self, records: Iterator[FetchedRecord]) -> None:
        self._records = records
        self.size_bytes = 0

    def __next__(self) -> FetchedRecord:
        record = next(self._records)
        self.size_bytes += len(record.value or b"")
        return record


def _first(
    record: FetchedRecord, rest: Iterator[FetchedRecord], most: int
) -> Iterator[FetchedRecord]:
    """Up to `most` records; those that are not taken stay in `rest`."""
    yield record
    for _ in range(most - 1):
        if (following := next(rest, None)) is None:
            return
        yield following


def _cause(record: FetchedRecord) -> str:
    if record.topic != CONTROL:
        return "send"
    return str(json.loads(record.value or b"{}").get("type", "?"))


def _bytes_of(record: OutRecord) -> bytes:
    """What a record brings to its topic, apart from Kafka's own few bytes."""
    key, value, headers = record
    return (key or b"") + (value or b"") + b"".join(n.encode() + (v or b"") for n, v in headers)
