"""One micro-batch of one partition, between the job's rows and its state. Imports no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.catalog import Catalog, Configuration
from ringfaust.core.state import State
from ringfaust.processor.outbox import Buffer, Outputs
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.stored_rows import (
    POSITIONS_KEY,
    read_json,
    read_positions,
    read_record,
    write_json,
    write_record,
)
from ringfaust.spark.ring.pages import PagedMap, PageStore

_WAITING_KEY = b"\0waiting"
"""Row with the paused topics (R60, R90). For each: the queue it waits for, and the first and end
number of its waiting records."""
_STARTED_KEY = b"\0started"
"""Row with the `first_batch` of the last `JobStart` that this partition has processed."""
_WAITING_PREFIX = b"\xff"
_RECORDS_PER_OUTPUT = 4_000
"""Outputs are handed over after this many records."""
_RECORDS_PER_WRITE = 32_000
"""Rows are written after this many records. A row that appears and disappears in between is never
written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """The configuration that decides what a batch does."""

    processor_config: ProcessorConfig
    catalog: Catalog


def batch_rules(worker: WorkerConfig, queues: QueuesConfig, first: QueuesConfig) -> BatchRules:
    """The rules that follow from a configuration.

    `first` is the configuration before any was applied, of partitions that have kept nothing
    (R128).
    """
    direct, repartitioned = queues.split_routes(worker.partitions)
    processor_config = ProcessorConfig(
        control_topic=worker.topic(Role.CONTROL),
        repartition_topic="",  # the shuffle replaces it
        routes=[*direct, *repartitioned],
        max_record_bytes=worker.max_record_bytes,
        log_is_clock=worker.clock == "log",
        cloud_events_of=worker.application if worker.cloud_events else "",
        partitions=worker.partitions,
        spread=frozenset(route.topic for route in repartitioned),
        configuration=Configuration(0, first.document(), "the job's queues.yaml"),
    )
    return BatchRules(processor_config=processor_config, catalog=first.catalog())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """What a run of the job found when it started."""

    ends: Mapping[str, Mapping[int, int]]
    """By topic and partition: one past the last record at that time. Time stands still until these
    records have been processed (docs/architecture.md#time)."""
    first_batch: int = 0
    """Number of the first batch that no earlier run has planned. Earlier batches are repeated."""
    rules: BatchRules | None = None
    """The configuration of that run; None: that of the current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """What all partitions of a job share."""

    rules: BatchRules
    """Of this run."""
    cache_bytes: int
    """Bound of the decoded state between two writes."""
    starts: Sequence[JobStart]
    """Of this run and earlier ones, oldest first."""

    def planner(self, batch: int) -> JobStart | None:
        """The run that first processed this batch, or None if it is unknown."""
        known = [start for start in self.starts if start.first_batch <= batch]
        return known[-1] if known else None


class MicroBatch(Generic[Buffer]):
    """A micro-batch: call `run` once, then `close`.

    A repeated batch has the same number, and the same time in ms since 1970. `new_buffer` returns
    an empty buffer for the records of one topic.
    """

    def __init__(
        self,
        config: OperatorConfig,
        partition: int,
        store: PageStore,
        now_ms: int,
        *,
        batch: int,
        new_buffer: Callable[[], Buffer],
    ) -> None:
        self._config = config
        planner = self._planner = config.planner(batch)
        self._partition = partition
        self._now_ms = now_ms
        self._rows = PagedMap(store)
        positions = read_positions(self._rows.get(POSITIONS_KEY))
        # A part of a repeated batch may be written. The rest must agree with it, even if the
        # configuration has changed since.
        rules = planner.rules if planner and planner.rules else config.rules
        self._log_is_clock = rules.processor_config.log_is_clock
        state = State(ByteStore(self._rows), rules.catalog)
        self._processor: Processor[Buffer] = Processor(
            rules.processor_config, state, positions, new_buffer
        )
        waiting = _read_waiting(self._rows.get(_WAITING_KEY))
        self._waiting: dict[str, list[int]] = {topic: at[1:] for topic, at in waiting.items()}
        for topic, (queue, *_) in waiting.items():
            self._processor.pause(topic, queue)

    @property
    def positions(self) -> Mapping[str, int]:
        """By topic that needs no repartitioning, the next offset to read."""
        return self._processor.positions

    def run(self, records: Sequence[FetchedRecord]) -> Iterator[Outputs[Buffer]]:
        """Advance time, then process the records.

        The outputs come in parts, which are the same whenever the batch is repeated.
        """
        self._start()
        self._tick()
        yield from self._resume_topics()
        for start in range(0, len(records), _RECORDS_PER_OUTPUT):
            some = records[start : start + _RECORDS_PER_OUTPUT]
            self._store_waiting(self._processor.take(some, self._now_ms))
            yield self._processor.outputs()
            yield from self._resume_topics()
            if (start + _RECORDS_PER_OUTPUT) % _RECORDS_PER_WRITE == 0:
                self._write()
        yield self._processor.outputs()

    def close(self) -> int | None:
        """Write the state. Returns when time has to advance next, in ms since 1970, or None."""
        paused = self._processor.paused_topics
        waiting = {topic: [paused[topic], *at] for topic, at in self._waiting.items()}
        self._rows.apply([(_WAITING_KEY, write_json(waiting) if waiting else None)])
        self._write()
        self._rows.flush()
        if self._log_is_clock:
            return None
        return self._processor.next_wake_ms()

    def _write(self) -> None:
        self._rows.apply(self._processor.writes().store)
        self._processor.committed(self._config.cache_bytes)

    def _start(self) -> None:
        """In the first micro-batch after a start, do what a worker does on opening a partition."""
        planner, noted = self._planner, self._rows.get(_STARTED_KEY)
        if planner and (noted is None or read_json(noted, "started") != planner.first_batch):
            self._rows.apply([(_STARTED_KEY, write_json(planner.first_batch))])
            self._processor.start()

    def _tick(self) -> None:
        if self._log_is_clock:
            return
        wake_ms = self._processor.next_wake_ms()
        if wake_ms is None or wake_ms > self._now_ms:
            return
        positions = self._processor.positions
        ends = self._planner.ends if self._planner else {}
        if all(
            positions.get(topic, 0) >= of.get(self._partition, 0)
            or topic in self._processor.paused_topics
            for topic, of in ends.items()
        ):
            self._processor.tick(self._now_ms)

    # --- paused topics ----------------------------------------------------------------------------
    # A job cannot go back in a topic as a worker does. It stores the records that have to wait.

    def _store_waiting(self, records: Sequence[FetchedRecord]) -> None:
        for record in records:
            numbers = self._waiting.setdefault(record.topic, [0, 0])
            row = (_waiting_key(record.topic, numbers[1]), write_record(record))
            self._rows.apply([row])
            numbers[1] += 1

    def _resume_topics(self) -> Iterator[Outputs[Buffer]]:
        """Process the waiting records of topics whose queue has been resumed."""
        processor = self._processor
        for topic, queue in list(processor.paused_topics.items()):
            if not processor.accepts_sends(queue):
                continue
            processor.resume(topic)
            first, end = self._waiting.pop(topic, (0, 0))
            for number in range(first, end):
                key = _waiting_key(topic, number)
                raw = self._rows.get(key)
                assert raw is not None
                record = FetchedRecord(*read_record(raw))
                if processor.take([record], self._now_ms):
                    self._waiting[topic] = [number, end]
                    break
                self._rows.apply([(key, None)])
            yield processor.outputs()


def _waiting_key(topic: str, number: int) -> bytes:
    return _WAITING_PREFIX + b"%b\0%b" % (topic.encode(), number.to_bytes(8, "big"))


def is_job_row(key: bytes) -> bool:
    """Whether only a job has this row. A worker reads waiting records again instead (R90)."""
    return key.startswith(_WAITING_PREFIX) or key in (_WAITING_KEY, _STARTED_KEY)


def waiting_topics(rows: Mapping[bytes, bytes]) -> set[str]:
    """Topics that have waiting records in this state."""
    return set(_read_waiting(rows.get(_WAITING_KEY)))


def _read_waiting(raw: bytes | None) -> dict[str, Any]:
    return dict(read_json(raw, "waiting")) if raw else {}
