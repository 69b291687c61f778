"""The rows of the status topic: what they are called, and how those of queues are written.

A row is JSON. Fields are added over time and never change their meaning, so a reader skips what it
does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, NamedTuple, cast

from ringfaust.core.model import Counts
from ringfaust.protocol.records import NOT_A_ROW

Kind = Literal["queue", "worker"]

RATES = ("added", "acked", "evicted", "expired", "dead")
"""The counts of which a row has rates."""


def time_to_overwrite_s(ready: int, ring_size: int, rates: Mapping[str, float]) -> float | None:
    """How long until arrivals push out the oldest ready message, at these rates.

    Args:
        ready: how many messages are ready.
        ring_size: how many may be; -1: no limit.
        rates: by name, see `RATES`: a second.

    Returns:
        None if it has no ring or no ready message, or no more messages come than leave.
    """
    left = sum(rates.get(name, 0.0) for name in ("acked", "expired", "dead"))
    growth = rates.get("added", 0.0) - left
    if not ready or ring_size <= 0 or growth <= 0:
        return None
    return max(ring_size - ready + 1, 1) / growth


CAUGHT_UP_RECORDS = 10_000
"""A standby that has the changelog but for so many records is caught up: to apply them takes less
than a second (R127)."""

_COUNTS = tuple(each.name for each in fields(Counts))


def queue_key(queue: str) -> bytes:
    """The key of a queue's row."""
    return f"queue/{queue}".encode()


def worker_key(worker: str) -> bytes:
    """The key of a worker's row."""
    return f"worker/{worker}".encode()


_SIGN = b"alive/"
SIGNS = 4
"""How many signs a worker gives in the time after which a silent one is gone. So one is gone once
another with the same interval has given one more than that since its last sign."""


class Sign(NamedTuple):
    """A sign of life of a worker (R126)."""

    worker: str
    """Its identity."""
    interval_ms: int = 0
    """How often it gives one; 0: it does not say."""
    is_alive: bool = True
    """False: it stops, or another worker has removed it from the group."""


def sign_key(worker: str) -> bytes:
    """The key of a worker's sign of life (R126), which readers of queues and workers skip."""
    return _SIGN + worker.encode()


def write_sign(sign: Sign, time_ms: int) -> bytes | None:
    """The value of a sign that is given at `time_ms`."""
    if not sign.is_alive:
        return None
    return _to_json({"time_ms": time_ms, "interval_ms": sign.interval_ms}).encode()


def read_sign(key: bytes | None, value: bytes | None) -> Sign | None:
    """A record as a sign of life; None: it is none. Whatever its value is, the worker lives."""
    if key is None or not key.startswith(_SIGN):
        return None
    worker = key.removeprefix(_SIGN).decode(errors="replace")
    if not worker:
        return None
    try:
        interval_ms = int(json.loads(value or b"{}")["interval_ms"])
    except NOT_A_ROW:
        interval_ms = 0
    return Sign(worker, max(interval_ms, 0), value is not None)


def read_time_ms(value: bytes) -> int | None:
    """When a worker wrote its row, or a sign of life; None: it is no such row."""
    try:
        return int(json.loads(value)["time_ms"])
    except NOT_A_ROW:
        return None


def read_key(key: bytes | None) -> tuple[Kind, str] | None:
    """What a row is about: queue or worker, and its name. None: it is not one of ours."""
    try:
        kind, slash, name = (key or b"").decode().partition("/")
    except UnicodeDecodeError:
        return None
    is_known = kind in ("queue", "worker") and slash and name
    return (cast(Kind, kind), name) if is_known else None


_to_json = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` would create an encoder for each row."""


class QueueState(NamedTuple):
    """The part of a queue's row whose change makes a new row."""

    counts: tuple[int, ...]
    """In the order of the fields of `Counts`."""
    paused: tuple[str, ...]
    consumers: int
    size_bytes: int
    settings: str
    """JSON: those that differ from the defaults."""


def settings_text(settings: Mapping[str, object]) -> str:
    """Settings as `QueueState` has them."""
    return json.dumps(dict(settings), separators=(",", ":"), sort_keys=True)


def write_queue_status(
    state: QueueState,
    *,
    partition: int,
    time_ms: int,
    oldest_ms: int,
    rates: Mapping[str, float],
    evicted_by: Mapping[str, int],
) -> bytes:
    """The value of a queue's row.

    Args:
        state: what it holds, how it is set.
        partition: the partition in which the queue lives.
        time_ms: when it was so.
        oldest_ms: send time of its oldest ready message; 0: none is ready.
        rates: by name, see `RATES`: a second. Those that are 0 are left out.
        evicted_by: evictions by reason, since the partition was opened.
    """
    counts = {name: n for name, n in zip(_COUNTS, state.counts, strict=True) if n}
    row = {
        "time_ms": time_ms,
        "partition": partition,
        "counts": counts,
        "rates": rates,
        "evicted_by": evicted_by,
        "bytes": state.size_bytes,
        "oldest_ms": oldest_ms,
        "consumers": state.consumers,
        "paused": state.paused,
    }
    head = _to_json(row)
    return f'{head[:-1]},"settings":{state.settings}}}'.encode()


def read_queue_state(value: bytes) -> tuple[QueueState, bool]:
    """The part of a queue's row whose change makes a new row, and whether it has rates.

    Raises:
        ValueError: it is no such row.
    """
    try:
        row: dict[str, Any] = json.loads(value)
        counts = row["counts"]
        state = QueueState(
            tuple(counts.get(name, 0) for name in _COUNTS),
            tuple(row["paused"]),
            row["consumers"],
            row["bytes"],
            settings_text(row["settings"]),
        )
        hash(state)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a row of a queue: {error!r}") from None
    return state, bool(row.get("rates"))
