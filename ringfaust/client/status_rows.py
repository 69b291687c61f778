"""What the status topic says about a queue and a worker, and the checks of what is read there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ringfaust.protocol.lifecycle import COUNTS, Counts
from ringfaust.protocol.records import NOT_A_ROW
from ringfaust.protocol.status import time_to_overwrite_s

STALE_MS = 20_000
"""A worker that has been silent for so long is not running, or cannot reach the brokers."""

_KNOWN = 1_000
_NO_LIMIT = -1


class QueueRates(NamedTuple):
    """Messages a second, over the last seconds."""

    added: float = 0.0
    acked: float = 0.0
    evicted: float = 0.0
    expired: float = 0.0
    dead: float = 0.0


_NO_RATES = QueueRates()
_NONE: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """What a queue was like when its worker last published it."""

    queue: str
    partition: int
    """The partition in which it lives."""
    time_ms: int
    """When it was like this, in ms since 1970. Nothing is published while nothing changes."""
    counts: Counts
    rates: QueueRates
    """0 for a queue that changes less often than once a second."""
    evicted_by: Mapping[str, int]
    """Evictions by reason (R6), since its worker has had the partition."""
    size_bytes: int
    """Of all its messages."""
    oldest_ms: int
    """Send time of its oldest ready message, in ms since 1970; 0: none is ready."""
    consumers: int
    """How many are attached."""
    paused: tuple[str, ...]
    """What is paused: dispatch, pulling (R90)."""
    settings: Mapping[str, Any]
    """Those in effect that differ from the defaults."""

    @property
    def ring_size(self) -> int:
        """How many messages may be ready; -1: no limit."""
        size = self.settings.get("ring_size", _NO_LIMIT)
        return size if isinstance(size, int) else _NO_LIMIT

    def time_to_overwrite_s(self) -> float | None:
        """How long until arrivals push out the oldest ready message, at the rates of the row.

        None: it has no ring or no ready message, or no more messages come than leave.
        """
        return time_to_overwrite_s(self.counts.ready, self.ring_size, self.rates._asdict())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedPartition:
    """A partition that cannot go on, and waits for an order (R123)."""

    partition: str
    """Its number; or TOPIC/NUMBER, for a partition of a topic that is repartitioned."""
    at: str
    """The input record that it cannot get past: topic/partition/offset. Empty: it is no record."""
    reason: str
    """What went wrong."""
    remedy: str
    """What to do."""
    since_ms: int
    """Since when, in ms since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """What a worker reported."""

    worker: str
    """Its name: host, process and a random part."""
    time_ms: int
    """When it said so, in ms since 1970: at least every 5 seconds."""
    started_ms: int
    host: str
    version: str
    engine: str
    """compiled, or pure Python."""
    is_ready: bool
    problems: tuple[str, ...]
    """Why it is not: the first few reasons."""
    partitions: tuple[int, ...]
    """Those that it serves now."""
    lag: Mapping[int, int]
    """By partition: records that it has not read yet; those that are 0 are left out."""
    recovering: Mapping[int, int]
    """By partition that is not ready: about how many records it must read before it is."""
    clock_skew_ms: int | None
    """By how much its clock was ahead of the brokers'; None: not measured yet (R115)."""
    queues: int
    """How many it has, as last counted."""
    published: int
    """Of how many of them it publishes the status: at most 100,000."""
    stopped: tuple[StoppedPartition, ...] = ()
    """Its partitions that cannot go on: the first 100."""
    standbys: Mapping[int, int | None] = field(default_factory=dict)
    """By partition whose standby it is: records of the changelog that it has not applied yet; None:
    that is not known yet (R127)."""
    levels: tuple[int, int] = (1, 1)
    """The oldest and the newest feature level that it supports (R129)."""
    level: Mapping[int, int] = field(default_factory=dict)
    """By partition that it serves: the feature level in use."""

    def is_stale(self, now_ms: int) -> bool:
        """Whether it has been silent for so long that it is not running, as far as is known."""
        return now_ms - self.time_ms > STALE_MS


def read_queue_status(queue: str, partition: int, value: bytes) -> QueueStatus | None:
    """Read the row of a queue.

    Args:
        queue: its name, from the key.
        partition: the partition of the record.
        value: the record's.

    Returns:
        None if it is not a row that this version understands. Unknown fields are ignored.
    """
    try:
        row = json.loads(value)
        return QueueStatus(
            queue=queue,
            partition=partition,
            time_ms=_whole(row["time_ms"]),
            counts=Counts(*[_whole(row["counts"].get(name, 0)) for name in COUNTS]),
            rates=_rates(row["rates"]) if row.get("rates") else _NO_RATES,
            evicted_by=_numbers(row["evicted_by"]) if row.get("evicted_by") else _NONE,
            size_bytes=_whole(row["bytes"]),
            oldest_ms=_whole(row["oldest_ms"]),
            consumers=_whole(row["consumers"]),
            paused=tuple(map(_text, row["paused"])),
            settings=_settings(json.dumps(row["settings"])),
        )
    except NOT_A_ROW:
        return None


def read_worker_status(worker: str, value: bytes) -> WorkerStatus | None:
    """Read the row of a worker; see `read_queue_status`."""
    try:
        row = json.loads(value)
        skew_ms = row.get("clock_skew_ms")
        return WorkerStatus(
            worker=worker,
            time_ms=_whole(row["time_ms"]),
            started_ms=_whole(row["started_ms"]),
            host=_text(row["host"]),
            version=_text(row["version"]),
            engine=_text(row["engine"]),
            is_ready=bool(row["ready"]),
            problems=tuple(map(_text, row["problems"])),
            partitions=tuple(map(_whole, row["partitions"])),
            lag=_by_partition(row["lag"]),
            recovering=_by_partition(row["recovering"]),
            clock_skew_ms=None if skew_ms is None else _whole(skew_ms),
            queues=_whole(row["queues"]),
            published=_whole(row["published"]),
            stopped=tuple(map(_stopped, row.get("stopped", ()))),
            standbys={
                int(number): None if behind is None else _whole(behind)
                for number, behind in row.get("standbys", {}).items()
            },
            levels=_levels(row.get("levels", [1, 1])),
            level=_by_partition(row.get("level", {})),
        )
    except NOT_A_ROW:
        return None


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _numbers(row: Any) -> Mapping[str, int]:
    return {name: _whole(value) for name, value in row.items()}


def _by_partition(row: Any) -> Mapping[int, int]:
    return {int(number): _whole(value) for number, value in row.items()}


def _levels(row: Any) -> tuple[int, int]:
    oldest, newest = row
    return _whole(oldest), _whole(newest)


def _stopped(row: Any) -> StoppedPartition:
    texts = {name: _text(row[name]) for name in ("partition", "at", "reason", "remedy")}
    return StoppedPartition(**texts, since_ms=_whole(row["since_ms"]))


def _rates(row: Any) -> QueueRates:
    return QueueRates(*[float(row.get(name, 0.0)) for name in QueueRates._fields])


@lru_cache(_KNOWN)
def _settings(text: str) -> Mapping[str, Any]:
    """Settings, which thousands of queues share."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError
    return found
