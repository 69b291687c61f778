"""The engine as a host drives it, and its state and effects in the naive model's terms."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.commands import Command, Send, Start
from ringfaust.core.engine import Engine, Step
from ringfaust.core.model import Consumer, Delivery, Message, time_of
from ringfaust.core.selector import Selector
from ringfaust.core.settings import AddressSpec, QueueSpec
from ringfaust.core.state import State
from ringfaust.core.table import Key, Kind, Row, Store, TableWrites
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import Payload
from ringfaust.protocol.stored_rows import encode_writes, without_bodies
from tests.legal_effects import LegalEffects
from tests.model.copying import use_copiers
from tests.model.naive import Model
from tests.model.naive_parts import Fact
from tests.model.naive_queue import PAST, Held, Queue

ALL = 10**9
PAYLOAD = Payload(None, b"body", (("h", b"1"),), "in/0/7")
Writes = Iterable[tuple[Row, Any | None]]


_IMMUTABLE = (Catalog, Message, Delivery, Payload, QueueSpec, AddressSpec, Selector)
copy._deepcopy_dispatch |= dict.fromkeys(_IMMUTABLE, copy._deepcopy_atomic)  # type: ignore[attr-defined]


def rows_of(writes: Iterable[TableWrites]) -> list[tuple[Row, Any | None]]:
    """The changed rows, one by one."""
    return [
        ((kind, queue, part, key), value)
        for kind, queue, part, rows in writes
        for key, value in rows.items()
    ]


def _encode(writes: Writes) -> list[tuple[bytes, bytes | None]]:
    return encode_writes((*head, {key: value}) for (*head, key), value in writes)


class DictStore:
    """A Store of Python values. They are pickled, since some (Consumer) can be changed in place."""

    def __init__(self, rows: dict[Row, bytes] | None = None) -> None:
        self.rows = rows or {}

    def __deepcopy__(self, memo: object) -> DictStore:
        return DictStore(dict(self.rows))

    def get(self, row: Row) -> Any | None:
        raw = self.rows.get(row)
        if raw is None:
            return None
        value = pickle.loads(raw)
        return Consumer(**value) if row[0] == Kind.CONSUMER else value

    def scan(self, kind: int, queue: str, part: Any, after: Key | None, most: int) -> list[Any]:
        table = (kind, queue, part)
        keys = sorted(
            row[3] for row in self.rows if row[:3] == table and (after is None or row[3] > after)
        )
        return [(key, self.get((*table, key))) for key in keys[:most]]

    def apply(self, writes: Writes) -> None:
        for row, value in writes:
            if value is None:
                self.rows.pop(row, None)
            elif isinstance(value, Consumer):  # what it holds is not stored
                self.rows[row] = pickle.dumps({name: getattr(value, name) for name in _STORED})
            else:
                self.rows[row] = pickle.dumps(value)

    def replay(self, writes: Writes) -> None:
        """As the changelog has it (R82)."""
        self.apply((row, _without_body(row[0], value)) for row, value in writes)

    def lose_bodies(self) -> None:
        """The store is gone and made again from the changelog."""
        self.replay([(row, self.get(row)) for row in self.rows])


use_copiers(DictStore)

_STORED = [
    f.name
    for f in fields(Consumer)
    if f.name not in ("held", "positions", "in_flight", "held_bytes")
]
_STORED.remove("compiled")


def _without_body(kind: int, value: Any) -> Any:
    if kind == Kind.DELIVERY and value is not None:
        return value._replace(message=_without_body(Kind.RING, value.message))
    if kind in (Kind.RING, Kind.SCHEDULED) and value is not None and not value.persistent:
        payload = Payload(None, None, (), value.payload.source)
        return value._replace(payload=payload, is_bodyless=True)
    return value


class BytesStore(ByteStore):
    """The hosts' byte store."""

    def __init__(self) -> None:
        self.durable = MemoryKeyValue()
        super().__init__(self.durable)

    def apply(self, writes: Writes) -> None:
        self.durable.apply(_encode(writes))

    def replay(self, writes: Writes) -> None:
        """As the changelog has it (R82)."""
        self.durable.apply(without_bodies(_encode(writes)))

    def lose_bodies(self) -> None:
        """The store is gone and made again from the changelog."""
        self.durable.apply(without_bodies(list(self.durable.items_from(b""))))


class Partition:
    """An engine over a store."""

    def __init__(
        self,
        store: DictStore | BytesStore,
        queues: dict[str, Any],
        cache_bytes: int = 1 << 30,
        *,
        refill: int = limits.REFILL,
        addresses: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        step_transitions: int = limits.STEP_TRANSITIONS,
        crashes_in_steps: bool = False,
    ) -> None:
        self.store = store
        self.step_transitions = step_transitions
        self.crashes_in_steps = crashes_in_steps
        self.cuts = 0
        self.catalog = Catalog(queues, settings or {}, addresses or {})
        self.cache_bytes = cache_bytes
        self.refill = refill
        self.legal_effects = LegalEffects()
        self.start()

    def start(self) -> None:
        """Begin with what is durable; all else is lost."""
        self.legal_effects.crash()
        self.in_flight: list[tuple[Row, Any | None]] | None = None
        self.state = State(self.store, self.catalog, refill=self.refill)
        self.engine = Engine(self.state, self.step_transitions)

    def step(self, command: Command, now_ms: int) -> Step:
        """The whole command, in as many transactions as it needs (R114)."""
        if isinstance(command, Start):
            return self._look().followed_by(self._step(command, now_ms))
        return self._step(command, now_ms)

    def _look(self) -> Step:
        """What a crash has taken is gone before anything else (R82)."""
        lost = self.engine.look()
        self.legal_effects.take(lost, self.state)
        while self.engine.is_looking:
            self.cuts += 1
            if self.crashes_in_steps:
                self.commit()
            more = self.engine.go_on()
            self.legal_effects.take(more, self.state)
            lost = lost.followed_by(more)
        return lost

    def _step(self, command: Command, now_ms: int) -> Step:
        step = self.engine.begin(command, now_ms)
        self.legal_effects.take(step, self.state)
        while self.engine.is_unfinished:
            self.cuts += 1
            if self.crashes_in_steps:
                self.commit()
                self.start()
            rest = self.engine.go_on()
            self.legal_effects.take(rest, self.state)
            step = step.followed_by(rest)
        return step

    def commit(self) -> list[tuple[Row, Any | None]]:
        """Make all durable that was done."""
        self.finish_commit()
        self.begin_commit()
        return self.finish_commit()

    def begin_commit(self) -> None:
        """The batch is on its way to be durable; the next may begin meanwhile."""
        assert self.in_flight is None
        self.in_flight = rows_of(self.state.writes())
        self.legal_effects.begin_commit(self.state)

    def finish_commit(self) -> list[tuple[Row, Any | None]]:
        """What flies, if anything, is durable."""
        written, self.in_flight = self.in_flight, None
        if written is not None:
            self.store.apply(written)
            self.legal_effects.committed()
            self.state.committed(self.cache_bytes)
        return written or []

    def would_be_durable(self) -> DictStore | BytesStore:
        """The rows as a commit would leave them; the partition itself is not touched."""
        state = self.state
        changed = (state.write_set.dirty, state.changed_queues, state._changed_addresses)
        if self.in_flight is None and not any(changed):
            return self.store
        state, in_flight = copy.deepcopy((state, self.in_flight))
        store: DictStore | BytesStore = state.write_set.store  # type: ignore[assignment]
        if in_flight is not None:
            store.apply(in_flight)
            state.committed(1 << 30)
        store.apply(rows_of(state.writes()))
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
            said = text if m.sequence else ""  # of a refused send the words are free
            return ("dead", queue, m.id, str(reason), consumer, said)
        case e.Due(queue, m) | e.Removed(queue, m) | e.Lost(queue, m) | e.Unrouted(queue, m):
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


def queue_names(store: Store) -> list[str]:
    """All queues that are stored."""
    return [name for name, _ in store.scan(Kind.QUEUE, "", 0, None, ALL)]


def view_of_store(store: Store, name: str) -> dict[str, Any] | None:
    """One queue as its durable rows have it, in the terms of `view_of_model`."""
    row = store.get((Kind.QUEUE, "", 0, name))
    if row is None:
        return None

    def table(kind: Kind, part: Any = 0) -> list[tuple[Any, Any]]:
        return list(store.scan(kind, name, part, None, ALL))

    consumers = [k for _, k in table(Kind.CONSUMER)]
    deliveries = [d for _, d in table(Kind.DELIVERY)]
    ready = messages_of(store, name, Kind.RING)
    names = {k.order: k.name for k in consumers}
    own = [d for d in deliveries if not d.is_orphan]
    return {
        "settings": row.settings,
        "counts": dict(zip(_COUNTS, row.counts, strict=True)),
        "bytes": row.size_bytes,
        "non_persistent": row.non_persistent,
        "paused": sorted(row.paused),
        "sequence": row.sequence,
        "cursors": list(row.cursors),
        "ready": [(m.id, m.sequence, m.attempts, m.handovers, m.is_bodyless) for m in ready],
        "delivering": {
            k.name: [(d.number, d.message.id, d.xid) for d in own if d.consumer == k.name]
            for k in consumers
        },
        "orphans": [(d.number, d.consumer, d.xid) for d in deliveries if d.is_orphan],
        "scheduled": [
            (time_of(key), m.sequence, m.id, m.attempts, m.is_bodyless)
            for key, m in table(Kind.SCHEDULED)
        ],
        "expiring": [time_of(key) for key, _ in table(Kind.EXPIRY)],
        "consumers": [
            (
                k.name, k.credit, k.priority, k.ack_mode, k.session, k.active, k.seen_ms,
                k.selector, k.credit_bytes,
            )
            for k in consumers
        ],
        "owners": {
            group: names[row.owner] for group, row in table(Kind.GROUP) if row.owner in names
        },
        "groups": {group: row.messages for group, row in table(Kind.GROUP) if row.messages},
        "idle groups": [group for _, group in table(Kind.IDLE_GROUP)],
    }  # fmt: skip


_COUNTS = ("ready", "delivering", "scheduled", *PAST)


def messages_of(store: Store, name: str, kind: Kind) -> list[Message]:
    """The messages of a queue in one kind of table."""
    levels = range(limits.PRIORITIES) if kind is Kind.RING else [0]
    rows = [value for part in levels for _, value in store.scan(kind, name, part, None, ALL)]
    return [row.message for row in rows] if kind is Kind.DELIVERY else rows


def bodyless_in(store: Store) -> set[tuple[str, int]]:
    """(queue, sequence number) of all messages without their bodies."""
    return {
        (name, m.sequence)
        for name in queue_names(store)
        for kind in (Kind.RING, Kind.SCHEDULED, Kind.DELIVERY)
        for m in messages_of(store, name, kind)
        if m.is_bodyless
    }


def view_of_model(model: Model, name: str) -> dict[str, Any] | None:
    """One queue of the model."""
    q = model.queues.get(name)
    if q is None:
        return None
    waiting = q.ready + [m for _, m in q.scheduled]
    ready = q.in_delivery_order()
    return {
        "settings": q.own,
        "counts": {k: v for k, v in q.all_counts().items() if k != "messages"},
        "bytes": sum(m.size_bytes for m in q.everything()),
        "non_persistent": len([m for m in q.everything() if not m.persistent]),
        "paused": sorted(q.paused),
        "sequence": q.sequences,
        "cursors": [(priority, *turn) for priority, turn in sorted(q.cursors.items())],
        "ready": [(m.id, m.sequence, m.attempts, m.handovers, m.is_bodyless) for m in ready],
        "delivering": {
            k.name: [
                (h.number, h.message.id, h.xid)
                for h in q.held
                if h.consumer == k.name and not h.is_orphan
            ]
            for k in q.consumers
        },
        "orphans": [(h.number, h.consumer, h.xid) for h in q.held if h.is_orphan],
        "scheduled": [
            (due, m.sequence, m.id, m.attempts, m.is_bodyless) for due, m in q.by_due_time()
        ],
        "expiring": sorted(m.expires_ms for m in waiting if m.expires_ms),
        "consumers": [
            (
                k.name, k.credit, k.priority, k.mode, k.session, k.active, k.seen_ms,
                k.selector, k.credit_bytes,
            )
            for k in sorted(q.consumers, key=lambda k: k.order)
        ],
        "owners": q.owners,
        "groups": dict(Counter(m.group for m in q.everything() if m.group)),
        "idle groups": q.idle_groups,
    }  # fmt: skip


def address_in_store(store: Store, name: str) -> dict[str, Any]:
    """An address as its rows have it: what was never changed has none."""
    row = store.get((Kind.ADDRESS, "", 0, name))
    kept = [m for _, m in store.scan(Kind.RETAINED, name, 0, None, ALL)]
    return {
        "settings": row.settings if row else {},
        "queues": list(row.members) if row else [],
        "kept": [(m.id, m.priority, m.expires_at_ms, m.persistent) for m in kept],
    }


def address_in_model(model: Model, name: str) -> dict[str, Any]:
    """An address of the model."""
    a = model.addresses.get(name)
    kept = a.kept if a else []
    if a and a.spec.compat == "artemis":
        kept = sorted(kept, key=lambda send: -send.priority)
    return {
        "settings": a.own if a else {},
        "queues": a.members if a else [],
        "kept": [(send.id, send.priority, send.expires_at_ms, send.persistent) for send in kept],
    }


def xids_in_store(store: Store) -> list[Any]:
    """The undecided distributed transactions, and what was done in them."""
    found = []
    for number, row in store.scan(Kind.XID, "", 0, None, ALL):
        rows = [row for _, row in store.scan(Kind.OPERATION, "", number, None, ALL)]
        done = [(op.queue, op.message.id if op.message else op.number) for op in rows]
        assert row.operations == len(done)
        found.append((row.name, row.owner, row.deadline_ms, done))
    return found


def xids_in_model(model: Model) -> list[Any]:
    """The same of the model."""
    return [
        (x.name, x.owner, 0 if x.is_prepared else x.until, [_done(each) for each in x.operations])
        for x in model.xids
    ]


def _done(operation: Send | tuple[Queue, Held]) -> tuple[str, Any]:
    if isinstance(operation, Send):
        return operation.queue, operation.id
    return operation[0].name, operation[1].number


def first_thing_to_do(model: Model, name: str) -> int | None:
    """When the queue needs its next sweep, by the model."""
    q = model.queues[name]
    waiting = q.ready + [m for _, m in q.scheduled]
    times = [m.expires_ms for m in waiting if m.expires_ms and not q.as_artemis]
    times += [due for due, _ in q.scheduled]
    if q.spec.consumer_timeout:
        times += [k.seen_ms + q.spec.consumer_timeout for k in q.consumers if k.name != "@window"]
    if q.spec.window_lease:
        times += [h.handed_ms + q.spec.window_lease for h in q.held_by("@window")]
    return min(times, default=None)
