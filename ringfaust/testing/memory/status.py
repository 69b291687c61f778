"""What the worker of a `MemoryBroker` publishes to the status topic: its queues, and itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from ringfaust import __version__, compiled
from ringfaust.core import levels
from ringfaust.core.address import address_of
from ringfaust.core.model import Counts
from ringfaust.core.state import State
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import OutRecord
from ringfaust.protocol.status import (
    QueueState,
    queue_key,
    settings_text,
    worker_key,
    write_queue_status,
)

WORKER = "memory"


def declared_in(state: State, number: int, partitions: int) -> list[str]:
    """The queues that the configuration names, and that a partition publishes before their use."""
    names = state.catalog.declared_names()
    return [name for name in names if partition_of(address_of(name) or name, partitions) == number]


def queue_rows(state: State, number: int, names: Iterable[str], now_ms: int) -> Iterator[OutRecord]:
    """Yield the rows of queues as they are now. There are no rates: time stands still."""
    for name in names:
        queue = state.queue(name)
        if queue is None:
            yield queue_key(name), None, []
            continue
        row = queue.row()
        told = QueueState(
            Counts(*row.counts).stored(), tuple(sorted(row.paused)), row.attached, row.size_bytes,
            settings_text(row.applied),
        )  # fmt: skip
        oldest_ms = queue.lowest().enqueued_ms if queue.counts.ready else 0
        value = write_queue_status(
            told, partition=number, time_ms=now_ms, oldest_ms=oldest_ms, rates={}, evicted_by={}
        )
        yield queue_key(name), value, []


def worker_row(level: Mapping[int, int], queues: int, started_ms: int, now_ms: int) -> OutRecord:
    """The row of the worker: it is always ready. `level`: of each partition (R129)."""
    row = {
        "time_ms": now_ms, "started_ms": started_ms, "host": WORKER, "version": __version__,
        "engine": compiled.KIND, "ready": True, "problems": [], "partitions": [*level],
        "lag": {}, "recovering": {}, "queues": queues, "published": queues,
        "levels": [levels.OLDEST, levels.NEWEST], "level": level,
    }  # fmt: skip
    return worker_key(WORKER), json.dumps(row).encode(), []
