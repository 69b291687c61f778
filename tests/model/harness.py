"""The engine as a host drives it, and its state and effects in the naive model's terms."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ringfaust.core import effect as e
from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.command import Command
from ringfaust.core.engine import Engine
from ringfaust.core.model import Consumer, time_of
from ringfaust.core.state import State
from ringfaust.core.table import Key, Kind, Row, Store
from ringfaust.hosts.store import ByteStore, MemoryKeyValue, encode_writes
from ringfaust.wire.record import Payload
from tests.model.naive import Model
from tests.model.naive_parts import Fact

ALL = 10**9
PAYLOAD = Payload(None, b"body", (("h", b"1"),), "in/0/7")


class DictStore:
    """A Store of Python values. They are pickled, since some (Consumer) can be changed in place."""

    def __init__(self, rows: dict[Row, bytes] | None = None) -> None:
        self.rows = rows or {}

    def __deepcopy__(self, memo: object) -> DictStore:
        return DictStore(dict(self.rows))

    def get(self, row: Row) -> Any | None:
        raw = self.rows.get(row)
        return None if raw is None else pickle.loads(raw)

    def scan(self, kind: int, queue: str, lane: Any, after: Key | None, most: int) -> list[Any]:
        table = (kind, queue, lane)
        keys = sorted(
            row[3] for row in self.rows if row[:3] == table and (after is None or row[3] > after)
        )
        return [(key, self.get((*table, key))) for key in keys[:most]]

    def apply(self, writes: Iterable[tuple[Row, Any | None]]) -> None:
        for row, value in writes:
            if value is None:
                self.rows.pop(row, None)
            elif isinstance(value, Consumer):  # what it holds is not stored
                self.rows[row] = pickle.dumps(replace(value, held={}, in_flight=0))
            else:
                self.rows[row] = pickle.dumps(value)


class BytesStore(ByteStore):
    """The hosts' byte store."""

    def __init__(self) -> None:
        self.durable = MemoryKeyValue()
        super().__init__(self.durable)

    def apply(self, writes: Iterable[tuple[Row, Any | None]]) -> None:
        self.durable.apply(encode_writes(writes))


class Partition:
    """An engine over a store."""

    def __init__(
        self, store: DictStore | BytesStore, queues: dict[str, Any], cache_bytes: int = 1 << 30
    ) -> None:
        self.store = store
        self.catalog = Catalog(queues, {})
        self.cache_bytes = cache_bytes
        self.start()

    def start(self) -> None:
        """Begin with what is durable; all else is lost."""
        self.flying: list[tuple[Row, Any | None]] | None = None
        self.state = State(self.store, self.catalog)
        self.engine = Engine(self.state)

    def step(self, command: Command, now_ms: int) -> list[e.Effect]:
        return self.engine.step(command, now_ms)

    def commit(self) -> list[tuple[Row, Any | None]]:
        """Make all durable that was done."""
        self.land()
        self.take_off()
        return self.land()

    def take_off(self) -> None:
        """The batch is on its way to be durable; the next may begin meanwhile."""
        assert self.flying is None
        self.flying = list(self.state.writes())

    def land(self) -> list[tuple[Row, Any | None]]:
        """What flies, if anything, is durable."""
        landed, self.flying = self.flying, None
        if landed is not None:
            self.store.apply(landed)
            self.state.settle(self.cache_bytes)
        return landed or []

    def would_be_durable(self) -> DictStore | BytesStore:
        """The rows as a commit would leave them; the partition itself is not touched."""
        shared = {id(it): it for it in (self.catalog, PAYLOAD)}
        state, flying = copy.deepcopy((self.state, self.flying), shared)
        store: DictStore | BytesStore = state.book.store  # type: ignore[assignment]
        if flying is not None:
            store.apply(flying)
            state.settle(1 << 30)
        store.apply(state.writes())
        return store


def fact(effect: e.Effect) -> Fact:
    """An effect in the model's form."""
    match effect:
        case e.Added(queue, m):
            return ("added", queue, m.id, m.sequence)
        case e.Scheduled(queue, m):
            return ("scheduled", queue, m.id, m.sequence)
        case e.Dispatched(queue, d):
            m = d.message
            return ("dispatched", queue, d.consumer, m.id, m.attempts, m.handovers)
        case e.Acked(queue, d):
            return ("acked", queue, d.consumer, d.message.id)
        case e.Returned(queue, _, m, due_ms):
            return ("returned", queue, m.id, m.attempts, due_ms)
        case e.Evicted(queue, m, reason, cause, ring_size, ready):
            return ("evicted", queue, m.id, str(reason), cause, ring_size, ready)
        case e.Expired(queue, m, consumer):
            return ("expired", queue, m.id, consumer)
        case e.Dead(queue, m, reason, consumer, text):
            return ("dead", queue, m.id, str(reason), consumer, text)
        case e.Due(queue, m) | e.Removed(queue, m):
            return (type(effect).__name__.lower(), queue, m.id)
        case e.MovedOut(queue, m, to):
            return ("moved_out", queue, m.id, to)
        case e.Refused(queue, reason):
            return ("refused", queue, str(reason))
        case _:  # the rest has plain fields
            return (type(effect).__name__.lower(), *effect)


def by_queue(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """Order is promised within a queue only."""
    found: dict[str, list[Fact]] = {}
    for one in facts:
        found.setdefault(one[1], []).append(one)
    return found


# --- state --------------------------------------------------------------------------------------


def view_of_store(store: Store, name: str) -> dict[str, Any] | None:
    """One queue as its durable rows have it, in the terms of `view_of_model`."""
    row = store.get((Kind.QUEUE, "", 0, name))
    if row is None:
        return None

    def table(kind: Kind, lane: Any = 0) -> list[tuple[Any, Any]]:
        return store.scan(kind, name, lane, None, ALL)

    consumers = [k for _, k in table(Kind.CONSUMER)]
    deliveries = [d for _, d in table(Kind.DELIVERY)]
    ready = [m for lane in range(limits.PRIORITIES) for _, m in table(Kind.RING, lane)]
    names = {k.order: k.name for k in consumers}
    return {
        "settings": row.settings,
        "counts": dict(zip(_COUNTS, row.counts, strict=True)),
        "paused": sorted(row.paused),
        "sequence": row.sequence,
        "ready": [(m.id, m.sequence, m.attempts, m.handovers) for m in ready],
        "delivering": {
            k.name: [(d.number, d.message.id) for d in deliveries if d.consumer == k.name]
            for k in consumers
        },
        "scheduled": [
            (time_of(key), m.sequence, m.id, m.attempts) for key, m in table(Kind.SCHEDULED)
        ],
        "expiring": [time_of(key) for key, _ in table(Kind.EXPIRY)],
        "consumers": [
            (k.name, k.credit, k.priority, k.ack_mode, k.session, k.active, k.seen_ms)
            for k in consumers
        ],
        "owners": {group: names[order] for group, order in table(Kind.GROUP)},
    }


_COUNTS = (
    "ready", "delivering", "scheduled", "added", "acked", "evicted", "expired", "dead", "refused",
    "removed", "moved_out", "lost",
)  # fmt: skip


def view_of_model(model: Model, name: str) -> dict[str, Any] | None:
    """One queue of the model."""
    q = model.queues.get(name)
    if q is None:
        return None
    waiting = q.ready + [m for _, m in q.scheduled]
    return {
        "settings": q.own,
        "counts": {k: v for k, v in q.all_counts().items() if k != "messages"},
        "paused": sorted(q.paused),
        "sequence": q.sequences,
        "ready": [(m.id, m.sequence, m.attempts, m.handovers) for m in q.in_delivery_order()],
        "delivering": {
            k.name: [(h.number, h.message.id) for h in q.held_by(k.name)] for k in q.consumers
        },
        "scheduled": [(due, m.sequence, m.id, m.attempts) for due, m in q.by_due_time()],
        "expiring": sorted(m.expires_ms for m in waiting if m.expires_ms),
        "consumers": [
            (k.name, k.credit, k.priority, k.mode, k.session, k.active, k.seen_ms)
            for k in sorted(q.consumers, key=lambda k: k.order)
        ],
        "owners": q.owners,
    }


def first_thing_to_do(model: Model, name: str) -> int | None:
    """When the queue needs its next sweep, by the model."""
    q = model.queues[name]
    times = [m.expires_ms for m in q.ready + [m for _, m in q.scheduled] if m.expires_ms]
    times += [due for due, _ in q.scheduled]
    if q.spec.consumer_timeout:
        times += [k.seen_ms + q.spec.consumer_timeout for k in q.consumers]
    return min(times, default=None)
