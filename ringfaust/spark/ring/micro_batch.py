"""A micro-batch of one partition: the road between a job's rows and its state. No Spark in here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import POSITIONS_KEY, Processor, ProcessorConfig, read_positions
from ringfaust.processor.row_store import ByteStore
from ringfaust.protocol.records import InRecord, OutRecord
from ringfaust.protocol.stored_rows import read_record, write_record
from ringfaust.spark.columns import ConsumedRecord, Outputs
from ringfaust.spark.ring.pages import Leaves, Pages

_WAITING_KEY = b"\0waiting"
"""By topic that is blocked (R60, R90): the queue, and the numbers of what waits, from–to."""
_STARTED_KEY = b"\0started"
"""The start of the job whose `Start` this partition has had: its `first_batch`."""
_TAKE = 4_000
"""Records between two lots of outputs."""
_WRITE = 32_000
"""Records between two writes of what changed: what is born and dies between them is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a run of the job knew when it started."""

    started_ms: int
    ends: Mapping[str, Mapping[int, int]]
    """By topic and partition: one beyond the last record that was there. Time waits until it has
    been read (architecture 4)."""
    first_batch: int = 0
    """Number of the first batch that was not planned yet: one before it is done again as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all partitions of a job share."""

    processor_config: ProcessorConfig
    catalog: Catalog
    cache_bytes: int
    """Bound of the decoded state between two writes."""
    starts: Sequence[Start]
    """Of this run and those before, oldest first."""

    def ends(self, partition: int, now_ms: int) -> dict[str, int]:
        """What time waits for, by topic, in a batch of that time.

        A batch that is done again keeps its time, and so finds the run that first did it: what
        comes of it must not differ.
        """
        known = [start for start in self.starts if start.started_ms <= now_ms]
        if not known:
            return {}
        return {
            topic: ends[partition] for topic, ends in known[-1].ends.items() if partition in ends
        }

    def first_batch(self, batch: int) -> int | None:
        """With which batch the run began that first did this one; None: nobody has noted it."""
        known = [start.first_batch for start in self.starts if start.first_batch <= batch]
        return known[-1] if known else None


class Turn:
    """One micro-batch: `run` it, then `close` it."""

    def __init__(
        self, plan: Plan, partition: int, pages: Pages, now_ms: int, batch: int = 0
    ) -> None:
        """`batch`: its number. `now_ms`: its time. Both are the same if it is done again."""
        self._plan = plan
        self._batch = batch
        self._partition = partition
        self._now_ms = now_ms
        self._leaves = Leaves(pages)
        positions = read_positions(self._leaves.get(POSITIONS_KEY))
        state = State(ByteStore(self._leaves), plan.catalog)
        self._road: Processor[list[OutRecord]] = Processor(
            plan.processor_config, state, positions, list
        )
        waiting = json.loads(self._leaves.get(_WAITING_KEY) or b"{}")
        self._waiting: dict[str, list[int]] = {topic: at[1:] for topic, at in waiting.items()}
        self._road.blocked.update({topic: at[0] for topic, at in waiting.items()})

    def run(self, records: Sequence[InRecord]) -> Iterator[Outputs]:
        """Let time act, then take the records; what comes out, lot by lot."""
        self._start()
        self._tick()
        yield from self._go_on()
        for start in range(0, len(records), _TAKE):
            self._keep(self._road.take(records[start : start + _TAKE], self._now_ms))
            yield self._road.outputs()
            yield from self._go_on()
            if (start + _TAKE) % _WRITE == 0:
                self._write()
        yield self._road.outputs()

    def close(self) -> int | None:
        """Write the state; when time has to act next, or None."""
        waiting = {topic: [self._road.blocked[topic], *at] for topic, at in self._waiting.items()}
        was_waiting = self._leaves.get(_WAITING_KEY) is not None
        if waiting or was_waiting:
            row = json.dumps(waiting).encode() if waiting else None
            self._leaves.apply([(_WAITING_KEY, row)])
        self._write()
        self._leaves.flush()
        if self._plan.processor_config.log_is_clock:
            return None
        return self._road.state.next_wake_ms()

    def _write(self) -> None:
        self._leaves.apply(self._road.writes().store)
        self._road.state.committed(self._plan.cache_bytes)

    def _start(self) -> None:
        """The first turn after the job was started anew does what a worker does on opening."""
        first = self._plan.first_batch(self._batch)
        noted = None if first is None else b"%d" % first
        if noted is not None and self._leaves.get(_STARTED_KEY) != noted:
            self._leaves.apply([(_STARTED_KEY, noted)])
            self._road.start()

    def _tick(self) -> None:
        if self._plan.processor_config.log_is_clock:
            return
        wake_ms = self._road.state.next_wake_ms()
        if wake_ms is None or wake_ms > self._now_ms:
            return
        positions = self._road.positions
        ends = self._plan.ends(self._partition, self._now_ms)
        if all(
            positions.get(topic, 0) >= end or topic in self._road.blocked
            for topic, end in ends.items()
        ):
            self._road.tick(self._now_ms)

    # --- records of blocked topics ---------------------------------------------------------------
    # A job cannot go back in a topic, as a worker does: what it passed over it has to keep.

    def _keep(self, left: Sequence[InRecord]) -> None:
        for record in left:
            numbers = self._waiting.setdefault(record.topic, [0, 0])
            row = (_waiting_key(record.topic, numbers[1]), write_record(record))
            self._leaves.apply([row])
            numbers[1] += 1

    def _go_on(self) -> Iterator[Outputs]:
        """Take what waited for queues that are pulled again."""
        road = self._road
        for topic, queue in list(road.blocked.items()):
            if not road.is_pulled(queue):
                continue
            del road.blocked[topic]
            first, end = self._waiting.pop(topic, (0, 0))
            for number in range(first, end):
                key = _waiting_key(topic, number)
                raw = self._leaves.get(key)
                assert raw is not None
                record: InRecord = ConsumedRecord(*read_record(raw))  # type: ignore[assignment]
                if road.take([record], self._now_ms):
                    self._waiting[topic] = [number, end]
                    break
                self._leaves.apply([(key, None)])
            yield road.outputs()


def _waiting_key(topic: str, number: int) -> bytes:
    return b"\xff%b\0%b" % (topic.encode(), number.to_bytes(8, "big"))


def is_own(key: bytes) -> bool:
    """Is this a row that a worker has not? What waits, it reads again (R90)."""
    return key.startswith(b"\xff") or key in (_WAITING_KEY, _STARTED_KEY)


def waiting_topics(rows: Mapping[bytes, bytes]) -> set[str]:
    """Topics of which records wait in this state."""
    return set(json.loads(rows.get(_WAITING_KEY, b"{}")))
