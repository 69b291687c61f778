"""One queue, decoded: its tables, its numbers, and the questions asked about them.

The questions only read: who is lowest, who is next, who is expired, what is beyond a limit. What
happens to a message is decided in `transitions`, which change the tables and numbers of a queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ringfaust.core import limits
from ringfaust.core.address import row_bytes
from ringfaust.core.create import create
from ringfaust.core.model import WINDOW, Consumer, Counts, Group, Message, time_of, timed_key
from ringfaust.core.policy import POLICIES
from ringfaust.core.scan import NOWHERE, Scan
from ringfaust.core.selector import Selector, compile_selector
from ringfaust.core.sent_ids import SentIds
from ringfaust.core.settings import QueueSpec
from ringfaust.core.settlement_history import SettlementHistory
from ringfaust.core.table import TIMED_ROW_BYTES, Kind, Ordered, Rows, WriteSet
from ringfaust.errors import BrokenAccounts

Place = tuple[int, int]
"""Where a ready message stands: (level, position)."""

SCHEDULED = -1
"""In an expiry row, instead of a priority level: the message is scheduled."""


class QueueRow(NamedTuple):
    """What is stored of a queue, apart from its tables. The fields are those of `Queue`."""

    settings: dict[str, object]
    """Settings made at runtime; the others come from the configuration."""
    applied: Mapping[str, object]
    """All settings in effect when the row was stored, where they differ from the defaults."""
    counts: tuple[int, ...]
    level_counts: tuple[int, ...]
    sequence: int
    orders: int
    cursors: tuple[tuple[int, int, int], ...]
    """(consumer priority, attach order of the last receiver, its deliveries in a row)."""
    paused: tuple[str, ...]
    wake_ms: int
    expiring: int
    attached: int
    departures: tuple[int, int]
    size_bytes: int = 0
    non_persistent: int = 0
    groups: tuple[int, ...] = ()
    """Sequence of the first message counted in its group, the last idle number, and how many are
    idle. Empty in a row from before groups were counted."""
    sent_bounds: tuple[int, int] = (0, 0)
    """How many ids the dedup window has forgotten, and has ever remembered."""
    set_ms: Mapping[str, int] = {}
    """When each of `settings` was set. From before level 2 it is not known."""


def _new_row() -> QueueRow:
    return QueueRow({}, {}, (), (0,) * limits.PRIORITIES, 0, 0, (), (), 0, 0, 0, (0, 0))


def by_priority(consumers: Iterable[Consumer]) -> list[tuple[int, list[Consumer]]]:
    """Consumers by their priority, highest first, each in attach order (R11)."""
    found: dict[int, list[Consumer]] = {}
    for consumer in consumers:
        found.setdefault(consumer.priority, []).append(consumer)
    return [(priority, found[priority]) for priority in sorted(found, reverse=True)]


class Queue:
    """A decoded queue. Its attributes are read everywhere, and changed by `transitions` alone."""

    __slots__ = (  # so many attributes would take 2 kB more in a dict
        "_attached", "_by_order", "_consumer_rows", "_deliveries", "_expiry", "_groups",
        "_idle_groups", "_scheduled", "_sent_ids", "applied",
        "consumers", "consumers_by_priority", "counted_from",
        "counts", "cursors", "dedups", "expiring", "history", "idle", "is_limited", "last_idle",
        "last_level", "level_counts", "levels", "match_bytes", "name", "non_persistent", "orders",
        "orphans", "paused", "policy", "row_cost", "scanned", "scans", "searching", "selector",
        "sent_bounds", "sequence", "set_fields", "set_ms", "settings", "size_bytes", "spec",
        "is_passed_over", "wake_ms", "write_set",
    )  # fmt: skip

    def __init__(
        self, write_set: WriteSet, name: str, spec: QueueSpec, row: QueueRow | None
    ) -> None:
        """`row` None: the queue is new."""
        self.write_set = write_set
        self.name = name
        self.levels: dict[int, Ordered] = {}
        """The opened tables of ready messages; see `level`."""
        self._scheduled: Ordered | None = None
        self._expiry: Ordered | None = None
        self._deliveries: Ordered | None = None
        self._consumer_rows: Ordered | None = None
        self._groups: Rows | None = None
        self._idle_groups: Ordered | None = None
        self._sent_ids: SentIds | None = None
        self._decode(spec, row)
        self.history = SettlementHistory(write_set, name, row.departures if row else (0, 0))
        self.scans: dict[str, Scan] = {}
        """By the text of each selector of an attached consumer; "" if one has no selector."""
        self.scanned = [NOWHERE] * limits.PRIORITIES
        """By level: how far any of them has come at most."""
        self._attached = row.attached if row else 0
        """How many rows of consumers the store had when the queue was decoded."""
        self._decode_consumers()

    def _decode(self, spec: QueueSpec, row: QueueRow | None) -> None:
        self.use_spec(spec)
        # Of a new queue only a managed window is left to set up (R12).
        self.applied: Mapping[str, object] | None = (
            row.applied if row else {} if spec.window else None
        )
        """Its settings when it was stored; None once the engine has compared them with today's."""
        row = row or _new_row()
        self.settings = row.settings
        self.set_ms = row.set_ms
        """When each of them was set, if that is known."""
        self.counts = Counts(*row.counts)
        self.level_counts = list(row.level_counts)
        self.sequence = row.sequence
        """The last sequence number given."""
        self.orders = row.orders
        """The last attach order given."""
        self.cursors = {priority: (order, run) for priority, order, run in row.cursors}
        """By consumer priority: attach order of the last receiver, its deliveries in a row. Only of
        the priorities of attached consumers."""
        self.paused = row.paused
        """"dispatch" or "pulling", or both, in this order."""
        self.wake_ms = row.wake_ms
        """The time under which the wake table names this queue; 0 if it does not."""
        self.expiring = row.expiring
        """The number of rows in `expiry`."""
        self.size_bytes = row.size_bytes
        """Of all its messages (R60)."""
        self.non_persistent = row.non_persistent
        """How many of its messages are not persistent (R82)."""
        self.counted_from, self.last_idle, self.idle = row.groups or (row.sequence + 1, 0, 0)
        """Sequence of the first message that its group counts; the last number given to an idle
        group; how many groups are idle (R116)."""
        self.sent_bounds = row.sent_bounds
        """How many ids the dedup window has forgotten, and has ever remembered (R119)."""
        self.orphans: dict[int, tuple[str, str]] = {}
        """Deliveries that wait for a decision after their consumer has left (R81): by number, the
        consumer and the message id."""
        self.last_level = 0
        """The level that got the last ready message."""
        self.is_passed_over = False
        """Whether an address has got its name, so that no send comes to it (R70)."""

    def _decode_consumers(self) -> None:
        self.consumers: dict[str, Consumer] = {}
        if self._attached:
            self.consumers = {c.name: c for _, c in self.consumer_rows}
        self.group_consumers()  # rows were once stored with the cursors of all that ever attached
        if not self.counts.delivering:
            return
        for _, delivery in self.deliveries.walk():
            if delivery.is_orphan:
                self.orphans[delivery.number] = (delivery.consumer, delivery.message.id)
            else:
                self.consumers[delivery.consumer].hold(delivery)

    def group_consumers(self) -> None:
        """Group the attached consumers by priority. Without one, a priority needs no cursor.

        An attach order is never reused, so a later consumer is next with or without it (R11).
        """
        self.consumers_by_priority = by_priority(self.consumers.values())
        self._by_order: dict[int, Consumer] = {each.order: each for each in self.consumers.values()}
        attached = [priority for priority, _ in self.consumers_by_priority]
        self.cursors = {each: self.cursors[each] for each in attached if each in self.cursors}
        before, self.scans = self.scans, {}
        self.match_bytes = limits.LOOK_COST_BYTES * len(self.consumers)
        self.searching: list[Selector] = []
        """Those of consumers that search with LIKE: what that costs depends on the message."""
        for consumer in self.consumers.values():
            text = consumer.selector
            if consumer.compiled is not None:
                self.match_bytes += consumer.compiled.cost_bytes
                if consumer.compiled.likes:
                    self.searching.append(consumer.compiled)
            if text not in self.scans:
                self.scans[text] = before.get(text) or Scan(consumer.compiled)

    def use_spec(self, spec: QueueSpec) -> None:
        """Use these settings; what every message needs of them is worked out once, here."""
        self.spec = spec
        self.set_fields = spec.set_fields()
        """The settings that differ from the defaults."""
        self.row_cost = limits.CONFIGURED_COST * row_bytes(spec.selector)
        """What its selector, the only long setting, counts when its row is stored (R121)."""
        self.policy = POLICIES[spec.compat]
        self.is_limited = max(spec.max_messages, spec.max_bytes, spec.max_message_bytes) >= 0
        self.dedups = spec.dedup_window > 0
        self.selector = compile_selector(spec.selector) if spec.selector else None
        """Selects from the messages of its address; None: all of them (R70)."""

    def reset(self, spec: QueueSpec) -> None:
        """Make it new again: it was emptied and deleted, and is created within the same batch."""
        self._decode(spec, None)
        self.consumers = {}
        self.group_consumers()
        self.history.departures = (0, 0)

    # --- tables ----------------------------------------------------------------------------------

    # Of a hundred thousand queues most need none of these: each is opened when it is first used.
    # A table that is opened when its count is zero has no rows: one that had is open already.

    @property
    def scheduled(self) -> Ordered:
        """Scheduled messages, by (due time, sequence)."""
        table = self._scheduled
        if table is None:
            table = self._open(Kind.SCHEDULED, self.counts.scheduled, weighs=True)
            self._scheduled = table
        return table

    @property
    def expiry(self) -> Ordered:
        """When ready and scheduled messages expire, by (time, sequence)."""
        table = self._expiry
        if table is None:
            table = self._open(Kind.EXPIRY, self.expiring, row_bytes=TIMED_ROW_BYTES)
            self._expiry = table
        return table

    @property
    def deliveries(self) -> Ordered:
        """Unsettled deliveries, by number."""
        table = self._deliveries
        if table is None:
            table = self._open(Kind.DELIVERY, self.counts.delivering, weighs=True)
            self._deliveries = table
        return table

    @property
    def consumer_rows(self) -> Ordered:
        """Attached consumers, by attach order."""
        table = self._consumer_rows
        if table is None:
            table = self._consumer_rows = self._open(Kind.CONSUMER, self._attached)
        return table

    @property
    def groups(self) -> Rows:
        """Message groups, by name."""
        table = self._groups
        if table is None:
            table = self._groups = Rows(self.write_set, Kind.GROUP, self.name)
        return table

    @property
    def idle_groups(self) -> Ordered:
        """Message groups without a message, in the order in which they lost it."""
        table = self._idle_groups
        if table is None:
            table = self._idle_groups = self._open(Kind.IDLE_GROUP, self.idle)
        return table

    def _open(self, kind: Kind, rows: int, *, weighs: bool = False, row_bytes: int = 0) -> Ordered:
        return Ordered(
            self.write_set, kind, self.name, fresh=not rows, weighs=weighs, row_bytes=row_bytes
        )

    # --- consumers -------------------------------------------------------------------------------

    def owner(self, group: str) -> Consumer | None:
        """The consumer that owns a message group (R14)."""
        row: Group | None = self.groups.get(group)
        return None if row is None else self.owner_of(row)

    def owner_of(self, group: Group) -> Consumer | None:
        """The same, of a group that was looked up; None once its consumer has left."""
        # Orders are never reused, so a detach does not have to visit the groups it frees (R116).
        return self._by_order.get(group.owner)

    def places(self) -> tuple[int, int]:
        """How many consumers are active, and how many are backups, without that of a window."""
        attached = [consumer for consumer in self.consumers.values() if consumer.name != WINDOW]
        active = sum(consumer.active for consumer in attached)
        return active, len(attached) - active

    def has_open_consumer(self) -> bool:
        """Tell whether any consumer could be handed a message."""
        for consumer in self.consumers.values():  # noqa: SIM110 - `any` takes three times as long
            if consumer.is_open():
                return True
        return False

    def open_scans(self) -> list[Scan]:
        """The scans of the consumers that could be handed a message."""
        if len(self.scans) <= 1:  # as mostly
            return list(self.scans.values()) if self.has_open_consumer() else []
        texts = {each.selector: True for each in self.consumers.values() if each.is_open()}
        return [self.scans[text] for text in texts]

    def match_cost(self, message: Message) -> int:
        """What it counts to find out who takes a message, if all look at it (R121)."""
        cost = self.match_bytes
        for selector in self.searching:
            cost += selector.cost_of(message) - selector.cost_bytes
        return cost

    def taker(self, message: Message) -> Consumer | None:
        """The consumer that gets this message now, or None (R11, R14, R15)."""
        if message.group and (owner := self.owner(message.group)) is not None:
            return owner if owner.takes(message) else None
        for priority, consumers in self.consumers_by_priority:
            last, run = self.cursors.get(priority, (0, 0))
            following = wrapped = None
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

    def returning(self, consumers: Iterable[Consumer], last: int | None) -> list[int]:
        """Numbers of their unsettled deliveries in the order they return: newest first (R22).

        `last`: without those that were handed over after it; None: all.
        """
        held = [
            item
            for consumer in consumers
            for item in consumer.positions.items()
            if last is None or item[0] <= last
        ]
        return [number for number, _ in sorted(held, key=lambda item: (-item[1], item[0]))]

    # --- the ring --------------------------------------------------------------------------------

    def level(self, number: int) -> Ordered:
        """The ready messages of one priority; level 0 has priority 9."""
        level = self.levels.get(number)
        if level is None:
            fresh = not self.level_counts[number]
            level = Ordered(self.write_set, Kind.RING, self.name, number, fresh=fresh, weighs=True)
            self.levels[number] = level
        return level

    def level_of(self, message: Message) -> Ordered:
        """The ready messages of the message's priority."""
        return self.level(limits.PRIORITIES - 1 - message.priority)

    def table_of(self, level: int) -> Ordered:
        """The ready messages of a level, or the scheduled ones for `SCHEDULED`."""
        return self.scheduled if level == SCHEDULED else self.level(level)

    def in_order(self) -> Iterator[Message]:
        """The ready messages in delivery order (R14). They may be taken out meanwhile."""
        for _, message in self.in_order_after(None):
            yield message

    def in_order_after(self, place: Place | None) -> Iterator[tuple[Place, Message]]:
        """The ready messages behind a place in the delivery order, each with its place."""
        first, after = place or (0, None)
        for number, count in enumerate(self.level_counts):
            if count and number >= first:
                rows = self.level(number).walk(after if number == first else None)
                for position, message in rows:
                    yield (number, position), message

    def wanted(self, level: int, after: int, scans: list[Scan]) -> Iterator[Message]:
        """The messages of a level behind a position, in order, that a scan has not passed."""
        table = self.level(level)
        start = after
        ends = [scan.upto[level] for scan in scans]
        if ends and NOWHERE not in ends:
            upto = min(ends)
            late = {each for scan in scans for each in scan.late[level] if after < each <= upto}
            for message in map(table.get, sorted(late)):
                if message is not None:
                    yield message
            start = max(after, upto)
        for _, message in table.walk(None if start == NOWHERE else start):
            yield message

    def lowest(self) -> Message:
        """The ready message with the lowest position, of whatever priority (R3 oldest)."""
        only = self.last_level
        if self.level_counts[only] == self.counts.ready:  # as in most rings: one priority
            table = self.levels.get(only) or self.level(only)
            return table.first()[1]  # type: ignore[index, no-any-return]
        rows = [self.level(i).first() for i, count in enumerate(self.level_counts) if count]
        found: list[Message] = [row[1] for row in rows if row is not None]
        return min(found, key=lambda message: (message.position, message.sequence))

    def victim(self) -> Message:
        """The ready message that leaves an overfull ring (R3, R4). The expired are gone already."""
        if self.spec.evict == "oldest":
            return self.lowest()
        if self.spec.evict == "head":
            return next(self.in_order())
        return self.oldest_of_lowest_priority()

    def victim_with(self, message: Message) -> Message:
        """The victim if this message were ready as well, as the last of its priority (R60)."""
        if not self.counts.ready:
            return message
        victim = self.victim()
        if self.spec.evict == "head":
            return message if message.priority > victim.priority else victim
        if self.spec.evict == "lowest_priority":
            return message if message.priority < victim.priority else victim
        return victim

    def oldest_of_lowest_priority(self) -> Message:
        """The oldest ready message of the lowest priority (R3 lowest_priority)."""
        level = max(i for i, count in enumerate(self.level_counts) if count)
        return self.level(level).first()[1]  # type: ignore[index, no-any-return]

    def is_ready(self, message: Message) -> bool:
        """Tell whether the message is in the ring."""
        level = limits.PRIORITIES - 1 - message.priority
        return self.level_counts[level] > 0 and self.level(level).get(message.position) is not None

    # --- limits ----------------------------------------------------------------------------------

    def exceeds(self, messages: int, size_bytes: int) -> bool:
        """Tell whether so many messages of so many bytes would be beyond a limit (R60)."""
        spec = self.spec
        return 0 <= spec.max_messages < messages or 0 <= spec.max_bytes < size_bytes

    def is_full(self) -> bool:
        """Tell whether not even the smallest message has room; then `block` stops pulling (R60)."""
        return self.exceeds(self.counts.messages + 1, self.size_bytes + 1)

    # --- the dedup window ------------------------------------------------------------------------

    def sent_ids(self) -> SentIds:
        """The ids of the messages that came in; few queues keep them (R119)."""
        if self._sent_ids is None:
            self._sent_ids = SentIds(self.write_set, self.name)
        return self._sent_ids

    # --- the schedule and expiry -----------------------------------------------------------------

    def due_together(self, now_ms: int) -> list[int]:
        """Keys in the schedule of what comes due next: one message, or with Artemis more (C4)."""
        first = self.scheduled.first_key() if self.counts.scheduled else None
        if first is None or time_of(first) > now_ms:
            return []
        return self.policy.due_together(self.scheduled, first)

    def is_scheduled(self, message: Message) -> bool:
        """Tell whether the message is in the schedule."""
        return self.scheduled.get(timed_key(message.due_ms, message.sequence)) is not None

    def first_expired(self, now_ms: int) -> tuple[Message, bool] | None:
        """The message that expired first, by (time, sequence), and whether it is scheduled."""
        if self.policy.expires_when_met or not self.holds_expired(now_ms):
            return None
        level, key = self.expiry.first()[1]  # type: ignore[index]
        return self.table_of(level).get(key), level == SCHEDULED  # type: ignore[return-value]

    def holds_expired(self, now_ms: int) -> bool:
        """Whether a message has expired that is still here (R50, C1)."""
        row = self.expiry.first() if self.expiring else None
        return row is not None and time_of(row[0]) <= now_ms

    # --- storing ---------------------------------------------------------------------------------

    def row(self) -> QueueRow:
        """The row to store (R101). The accounts are checked first.

        Raises:
            BrokenAccounts: they do not add up (R100).
        """
        self.check()
        applied = self.set_fields if self.applied is None else self.applied
        cursors: tuple[tuple[int, int, int], ...] = ()
        if self.cursors:
            cursors = tuple([(first, *last) for first, last in sorted(self.cursors.items())])
        return create(  # type: ignore[no-any-return]
            QueueRow, self.settings, applied, self.counts.stored(),
            tuple(self.level_counts), self.sequence, self.orders, cursors, self.paused,
            self.wake_ms, self.expiring, len(self.consumers), self.history.departures,
            self.size_bytes, self.non_persistent, (self.counted_from, self.last_idle, self.idle),
            self.sent_bounds, self.set_ms,
        )  # fmt: skip

    def check(self) -> None:
        """Check that the accounts balance.

        Raises:
            BrokenAccounts: they do not (R100).
        """
        counts = self.counts
        in_flight = len(self.orphans)
        for consumer in self.consumers.values():
            in_flight += consumer.in_flight
        ready = 0
        for count in self.level_counts:  # `sum` takes three times as long
            ready += count
        broken = ""
        if counts.added != counts.messages + counts.gone:
            broken = "added = held + gone"
        elif counts.ready != ready:
            broken = "ready = sum of the priority levels"
        elif counts.delivering != in_flight:
            broken = "delivering = sum over consumers and orphans"
        elif counts.ready < 0 or counts.delivering < 0 or counts.scheduled < 0:
            broken = "no count is negative"
        if broken:
            raise BrokenAccounts(self.name, broken, f"{counts.as_dict()}, {in_flight=}")

    def forget(self, *, held: bool) -> None:
        """Free the memory of the decoded messages. Only when no change is pending.

        `held`: also of those that consumers hold, which are needed next.
        """
        for table in (*self.levels.values(), self._scheduled, self._expiry):
            if table is not None:
                table.forget()
        if held and self._deliveries is not None:
            self._deliveries.forget()

    def trim(self, cache_bytes: int) -> None:
        """Shorten the windows to about `cache_bytes`; the front of each stays decoded.

        What consumers hold comes last: it is needed next.
        """
        for table in (*self.levels.values(), self._scheduled, self._expiry, self._deliveries):
            excess = self.write_set.cached_bytes - cache_bytes
            if table is not None and excess > 0:
                table.shed(excess)
