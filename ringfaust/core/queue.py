"""One queue, decoded: its tables, its numbers, and the arithmetic of its order. No policy.

What may happen to a message is decided in `engine`; here is only how it is done: where a message
stands, who is lowest, who is next. Each method keeps tables and counts in step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ringfaust.core import limits
from ringfaust.core.model import (
    Consumer,
    Counts,
    Delivery,
    Message,
    time_of,
    timed_key,
)
from ringfaust.core.selector import compile_selector
from ringfaust.core.settings import QueueSpec
from ringfaust.core.settlement_history import SettlementHistory
from ringfaust.core.table import Kind, Ordered, Rows, WriteSet
from ringfaust.errors import BrokenAccounts

SCHEDULED = -1
"""In an expiry row, in place of a lane: the message is scheduled."""


class QueueRow(NamedTuple):
    """What is stored of a queue beside its tables; the fields are those of `Queue`."""

    settings: dict[str, object]
    """Set while running; the rest comes from the configuration."""
    applied: dict[str, object]
    """All that it was set to when it was stored, where that is no default."""
    counts: tuple[int, ...]
    level_counts: tuple[int, ...]
    sequence: int
    orders: int
    cursors: tuple[tuple[int, int, int], ...]
    """(consumer priority, attach order of who had the last delivery, its deliveries in a row)."""
    paused: tuple[str, ...]
    wake_ms: int
    expiring: int
    attached: int
    departures: tuple[int, int]
    size_bytes: int = 0
    non_persistent: int = 0


def _nothing_yet(spec: QueueSpec) -> dict[str, object] | None:
    """A new queue needs nothing done for its settings, but for its window (R12)."""
    return {} if spec.window else None


class Queue:
    """See the head of this file."""

    def __init__(
        self, write_set: WriteSet, name: str, spec: QueueSpec, row: QueueRow | None
    ) -> None:
        """`row` None: the queue is new."""
        self.write_set = write_set
        self.name = name
        self.set_to(spec)
        self.applied: dict[str, object] | None = row.applied if row else _nothing_yet(spec)
        """What it was set to before it was decoded; None once the engine has seen to that."""
        row = row or QueueRow({}, {}, (), (0,) * limits.PRIORITIES, 0, 0, (), (), 0, 0, 0, (0, 0))
        self.settings = row.settings
        self.counts = Counts(*row.counts)
        self.level_counts = list(row.level_counts)
        self.sequence = row.sequence
        """The last sequence number given."""
        self.orders = row.orders
        """The last attach order given."""
        self.cursors = {level: (order, run) for level, order, run in row.cursors}
        """By consumer priority: attach order of who had the last delivery, how many in a row."""
        self.paused = set(row.paused)
        self.wake_ms = row.wake_ms
        """When the partition's wake table names this queue; 0: it does not."""
        self.expiring = row.expiring
        """Rows in `expiry`."""
        self.size_bytes = row.size_bytes
        """Of all its messages (R60)."""
        self.non_persistent = row.non_persistent
        """How many of its messages are not persistent (R82)."""
        self.orphans = 0
        """Deliveries whose consumer has left, and that wait for a decision (R81)."""
        self._lanes: dict[int, Ordered] = {}
        self._last_lane = 0
        counts = self.counts
        self.scheduled = Ordered(
            write_set, Kind.SCHEDULED, name, fresh=not counts.scheduled, weighs=True
        )
        self.expiry = Ordered(write_set, Kind.EXPIRY, name, fresh=not row.expiring)
        self.deliveries = Ordered(write_set, Kind.DELIVERY, name, fresh=not counts.delivering)
        self.consumer_rows = Ordered(write_set, Kind.CONSUMER, name, fresh=not row.attached)
        self.groups = Rows(write_set, Kind.GROUP, name)
        self.history = SettlementHistory(write_set, name, row.departures)
        self.used_step = 0
        """The step that used it last: who was used longest ago is forgotten first."""
        self._load_consumers()

    def set_to(self, spec: QueueSpec) -> None:
        """It has new settings; what is asked with each message is worked out here, once."""
        self.spec = spec
        self.is_limited = max(spec.max_messages, spec.max_bytes, spec.max_message_bytes) >= 0
        self.as_artemis = spec.compat == "artemis"
        self.wants = compile_selector(spec.selector) if spec.selector else None
        """What it takes of its address' messages; None: all (R70)."""

    # --- consumers -------------------------------------------------------------------------------

    def _load_consumers(self) -> None:
        self.consumers: dict[str, Consumer] = {c.name: c for _, c in self.consumer_rows}
        if self.counts.delivering:
            for _, delivery in self.deliveries:
                self._count_in(delivery)
        self.level()

    def _count_in(self, delivery: Delivery) -> None:
        """Its consumer, if it is still there, holds it."""
        if delivery.is_orphan:
            self.orphans += 1
            return
        consumer = self.consumers[delivery.consumer]
        consumer.held.setdefault(delivery.message.id, []).append(delivery.number)
        consumer.in_flight += 1
        consumer.held_bytes += delivery.message.size_bytes

    def level(self) -> None:
        """Sort the consumers anew: highest priority first, each in attach order (R11)."""
        by_level: dict[int, list[Consumer]] = {}
        for consumer in self.consumers.values():
            by_level.setdefault(consumer.priority, []).append(consumer)
        self.levels = [(level, by_level[level]) for level in sorted(by_level, reverse=True)]

    def add_consumer(self, consumer: Consumer) -> None:
        """It joins, last in the attach order."""
        self.consumers[consumer.name] = consumer
        self.consumer_rows.put_new(consumer.order, consumer)
        self.level()
        self._reset_cursors()

    def _reset_cursors(self) -> None:
        """With Artemis, the first is next whenever a consumer joins or leaves (C12)."""
        if self.as_artemis:
            self.cursors.clear()

    def save_consumer(self, consumer: Consumer) -> None:
        """Something of it has changed."""
        self.consumer_rows.put(consumer.order, consumer)

    def drop_consumer(self, consumer: Consumer) -> None:
        """It leaves; the groups it owned are free (R14)."""
        del self.consumers[consumer.name]
        self.consumer_rows.delete(consumer.order)
        self.level()
        self._reset_cursors()
        after = None
        while rows := self.groups.scan(after, self.write_set.refill):
            for group, order in rows:
                if order == consumer.order:
                    self.groups.delete(group)
            after = rows[-1][0]

    def owner(self, group: str) -> Consumer | None:
        """Who owns the message group (R14)."""
        order = self.groups.get(group)
        if order is None:
            return None
        return next((c for c in self.consumers.values() if c.order == order), None)

    def has_open_consumer(self) -> bool:
        """Could anybody be handed a message?"""
        return any(consumer.is_open() for consumer in self.consumers.values())

    def taker(self, message: Message) -> Consumer | None:
        """Who gets this message now, or None (R11, R14, R15)."""
        if message.group and (owner := self.owner(message.group)) is not None:
            return owner if owner.takes(message) else None
        for level, consumers in self.levels:
            last, run = self.cursors.get(level, (0, 0))
            following = None
            wrapped = None
            for consumer in consumers:
                if not consumer.takes(message):
                    continue
                if consumer.order == last and run < self.spec.batch:
                    return consumer
                if consumer.order > last:
                    following = following or consumer
                else:
                    wrapped = wrapped or consumer
            if following or wrapped:
                return following or wrapped
        return None

    # --- the ring --------------------------------------------------------------------------------

    def lane(self, number: int) -> Ordered:
        """The ready messages of one priority: lane = 9 − priority."""
        lane = self._lanes.get(number)
        if lane is None:
            fresh = not self.level_counts[number]
            lane = Ordered(self.write_set, Kind.RING, self.name, number, fresh=fresh, weighs=True)
            self._lanes[number] = lane
        return lane

    def lane_of(self, message: Message) -> Ordered:
        """The ready messages of its priority."""
        return self.lane(limits.PRIORITIES - 1 - message.priority)

    def place(self, message: Message) -> None:
        """It becomes ready, at its position."""
        lane = limits.PRIORITIES - 1 - message.priority
        self.lane(lane).put_new(message.position, message)
        self._last_lane = lane
        self.level_counts[lane] += 1
        self.counts.ready += 1
        if message.expires_at_ms:
            self._will_expire(message, lane, message.position)

    def unplace(self, message: Message) -> None:
        """It is no longer ready."""
        lane = limits.PRIORITIES - 1 - message.priority
        self.lane(lane).delete(message.position)
        self.level_counts[lane] -= 1
        self.counts.ready -= 1
        if message.expires_at_ms:
            self._will_not_expire(message)

    def in_order(self) -> Iterator[Message]:
        """The ready messages in delivery order (R14). They may be unplaced meanwhile."""
        for lane, count in enumerate(self.level_counts):
            if count:
                for _, message in self.lane(lane):
                    yield message

    def lowest(self) -> Message:
        """The ready message of the lowest position, whatever its priority (R3 oldest)."""
        only = self._last_lane
        if self.level_counts[only] == self.counts.ready:  # as in most rings: one priority
            return self.lane(only).first()[1]  # type: ignore[index, no-any-return]
        rows = [self.lane(i).first() for i, count in enumerate(self.level_counts) if count]
        found: list[Message] = [row[1] for row in rows if row is not None]
        return min(found, key=lambda message: (message.position, message.sequence))

    def victim(self) -> Message:
        """Which ready message leaves an overfull ring (R3, R4); the expired are gone already."""
        if self.spec.evict == "oldest":
            return self.lowest()
        return next(self.in_order()) if self.spec.evict == "head" else self.least()

    def least(self) -> Message:
        """The oldest ready message of the lowest priority (R3 lowest_priority)."""
        lane = max(i for i, count in enumerate(self.level_counts) if count)
        return self.lane(lane).first()[1]  # type: ignore[index, no-any-return]

    def is_ready(self, message: Message) -> bool:
        """Does it stand in the ring?"""
        lane = limits.PRIORITIES - 1 - message.priority
        return self.level_counts[lane] > 0 and self.lane(lane).get(message.position) is not None

    # --- limits ----------------------------------------------------------------------------------

    def exceeds(self, messages: int, size_bytes: int) -> bool:
        """Would so much be beyond a limit (R60)?"""
        spec = self.spec
        return 0 <= spec.max_messages < messages or 0 <= spec.max_bytes < size_bytes

    def is_full(self, without: Collection[Message] = ()) -> bool:
        """Is there no room for one more, were it ever so small? Then `block` stops pulling."""
        size_bytes = self.size_bytes - sum(message.size_bytes for message in without)
        return self.exceeds(self.counts.messages - len(without) + 1, size_bytes + 1)

    def weigh(self, message: Message) -> None:
        """A message comes in."""
        self.size_bytes += message.size_bytes
        if not message.persistent:
            self.non_persistent += 1

    def unweigh(self, message: Message) -> None:
        """A message is gone, by whatever way."""
        self.size_bytes -= message.size_bytes
        if not message.persistent:
            self.non_persistent -= 1

    # --- the schedule and expiry -----------------------------------------------------------------

    def due_together(self, now_ms: int) -> list[Message]:
        """Who is due next: one message, or with Artemis all of one due time (C4)."""
        if not self.counts.scheduled:
            return []
        due: list[Message] = []
        for key, message in self.scheduled:
            if time_of(key) > now_ms or (due and time_of(key) != due[0].due_ms):
                break
            due.append(message)
            if not self.as_artemis:
                break
        return due

    def schedule(self, message: Message) -> None:
        """It waits until its `due_ms`."""
        key = timed_key(message.due_ms, message.sequence)
        self.scheduled.put_new(key, message)
        self.counts.scheduled += 1
        if message.expires_at_ms:
            self._will_expire(message, SCHEDULED, key)

    def unschedule(self, message: Message) -> None:
        """It waits no longer."""
        self.scheduled.delete(timed_key(message.due_ms, message.sequence))
        self.counts.scheduled -= 1
        if message.expires_at_ms:
            self._will_not_expire(message)

    def is_scheduled(self, message: Message) -> bool:
        """Does it wait?"""
        return self.scheduled.get(timed_key(message.due_ms, message.sequence)) is not None

    def _will_expire(self, message: Message, lane: int, key: int) -> None:
        self.expiry.put_new(timed_key(message.expires_at_ms, message.sequence), (lane, key))
        self.expiring += 1

    def _will_not_expire(self, message: Message) -> None:
        self.expiry.delete(timed_key(message.expires_at_ms, message.sequence))
        self.expiring -= 1

    def first_expired(self, now_ms: int) -> tuple[Message, bool] | None:
        """Who expired first, by (time, sequence), and whether it is scheduled; None: nobody."""
        row = self.expiry.first() if self.expiring and not self.as_artemis else None
        if row is None or time_of(row[0]) > now_ms:
            return None
        lane, key = row[1]
        table = self.scheduled if lane == SCHEDULED else self.lane(lane)
        return table.get(key), lane == SCHEDULED  # type: ignore[return-value]

    # --- deliveries ------------------------------------------------------------------------------

    def hand_over(self, delivery: Delivery, consumer: Consumer) -> None:
        """The message, unplaced before, is this consumer's now; its turn is counted (R11)."""
        self.deliveries.put_new(delivery.number, delivery)
        self._count_in(delivery)
        self.counts.delivering += 1

    def move_cursor(self, consumer: Consumer) -> None:
        """A delivery went to this consumer: the pointer of its priority moves (R11)."""
        last, run = self.cursors.get(consumer.priority, (0, 0))
        goes_on = consumer.order == last and run < self.spec.batch
        self.cursors[consumer.priority] = (consumer.order, run + 1 if goes_on else 1)

    def skip_consumer(self) -> None:
        """With Artemis, the consumer that meets an expired message has had its turn (C12)."""
        level, consumers = self.levels[0]
        last, _ = self.cursors.get(level, (0, 0))
        following = (consumer for consumer in consumers if consumer.order > last)
        self.cursors[level] = (next(following, consumers[0]).order, self.spec.batch)

    def end(self, delivery: Delivery) -> None:
        """The delivery is over, however; its credit is free again."""
        if delivery.is_orphan:
            self.orphans -= 1
        else:
            consumer = self.consumers[delivery.consumer]
            numbers = consumer.held[delivery.message.id]
            numbers.remove(delivery.number)
            if not numbers:
                del consumer.held[delivery.message.id]
            consumer.in_flight -= 1
            consumer.held_bytes -= delivery.message.size_bytes
        self.deliveries.delete(delivery.number)
        self.counts.delivering -= 1

    def held_by(self, consumer: Consumer) -> list[Delivery]:
        """Its unsettled deliveries, in the order they were handed over."""
        return [delivery for delivery in self._all_of(consumer) if not delivery.xid]

    def _all_of(self, consumer: Consumer) -> list[Delivery]:
        numbers = sorted(number for held in consumer.held.values() for number in held)
        return [self.deliveries.get(number) for number in numbers]  # type: ignore[misc]

    def settle_in(self, delivery: Delivery, xid: str) -> None:
        """The delivery is settled, if the distributed transaction is committed (R81)."""
        self.deliveries.put(delivery.number, delivery._replace(xid=xid))

    def orphan(self, consumer: Consumer) -> None:
        """It leaves; what it has settled in undecided transactions stays behind (R81)."""
        for delivery in self._all_of(consumer):
            self.deliveries.put(delivery.number, delivery._replace(is_orphan=True))
            self.orphans += 1
        consumer.held.clear()
        consumer.in_flight = consumer.held_bytes = 0

    # --- storing ---------------------------------------------------------------------------------

    def row(self) -> QueueRow:
        """What is to be stored of it beside its tables (R101); the accounts are checked first.

        Raises:
            BrokenAccounts: they do not add up (R100).
        """
        self.check()
        self.history.save()
        counts = self.counts
        return QueueRow(
            settings=self.settings,
            applied=self.spec.set_fields(),
            counts=tuple(getattr(counts, name) for name in counts.__slots__),
            level_counts=tuple(self.level_counts),
            sequence=self.sequence,
            orders=self.orders,
            cursors=tuple((level, *turn) for level, turn in sorted(self.cursors.items())),
            paused=tuple(sorted(self.paused)),
            wake_ms=self.wake_ms,
            expiring=self.expiring,
            attached=len(self.consumers),
            departures=self.history.departures,
            size_bytes=self.size_bytes,
            non_persistent=self.non_persistent,
        )

    def check(self) -> None:
        """Check that the accounts balance (R100).

        Raises:
            BrokenAccounts: they do not.
        """
        counts = self.counts
        in_flight = sum(c.in_flight for c in self.consumers.values())
        promises = {
            "added = held + gone": counts.added == counts.messages + counts.gone,
            "ready = sum of the lanes": counts.ready == sum(self.level_counts),
            "delivering = sum over consumers": counts.delivering == in_flight + self.orphans,
            "no count is negative": min(counts.ready, counts.delivering, counts.scheduled) >= 0,
        }
        for promise, holds in promises.items():
            if not holds:
                raise BrokenAccounts(self.name, promise, f"{counts.as_dict()}, {in_flight=}")

    def begin_anew(self, spec: QueueSpec) -> None:
        """It was emptied and deleted, and is made again within the same batch."""
        self.set_to(spec)
        self.counts = Counts()
        self.sequence = self.size_bytes = self.non_persistent = 0
        self.orders = 0
        self.cursors = {}
        self.paused = set()
        self.history.departures = (0, 0)
        self.applied = _nothing_yet(spec)

    def forget(self) -> None:
        """Give the memory of all windows back. Only when no change is pending."""
        for table in (*self._lanes.values(), self.scheduled, self.expiry, self.deliveries):
            table.forget()

    def trim(self, cache_bytes: int) -> None:
        """Shorten the windows to about `cache_bytes`; the front of each stays."""
        for table in (*self._lanes.values(), self.scheduled):
            excess = self.write_set.cached_bytes - cache_bytes
            if excess > 0:
                table.shed(excess)
