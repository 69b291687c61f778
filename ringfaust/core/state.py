"""The state of one partition: its tables, and the queues and addresses that are decoded now."""

from __future__ import annotations

from typing import NamedTuple

from ringfaust.core import levels, limits
from ringfaust.core.address import Address, AddressRow, address_of
from ringfaust.core.catalog import Catalog, Configuration
from ringfaust.core.model import Counts, Unfinished
from ringfaust.core.queue import Queue, QueueRow
from ringfaust.core.table import TIMED_ROW_BYTES, Kind, Ordered, Rows, Store, TableWrites, WriteSet


class Clock(NamedTuple):
    """The numbers of the partition that only grow."""

    now_ms: int = 0
    """The latest time of a step; it never goes back (docs/architecture.md#time)."""
    step: int = 0
    """The number of the last step that changed anything."""
    deliveries: int = 0
    """The number of the last delivery."""
    level: int = levels.OLDEST
    """The feature level that the partition uses (R129)."""


class State:
    """What the engine works on. A host takes `writes`, commits them, and calls `committed`."""

    def __init__(self, store: Store, catalog: Catalog, *, refill: int = limits.REFILL) -> None:
        """Read what is there.

        Args:
            store: the committed state.
            catalog: what the host declares, as long as no configuration was applied (R128).
            refill: rows read from the store at a time.
        """
        self.write_set = WriteSet(store, refill)
        self._configuration_rows = Rows(self.write_set, Kind.CONFIGURATION, "")
        self.configuration: Configuration | None = self._configuration_rows.get(0)
        """The one that was applied last; None: none was."""
        self.catalog = catalog if self.configuration is None else self.configuration.catalog()
        self.queues: dict[str, Queue] = {}
        """Decoded queues, by name; those that were changed longest ago come first."""
        self.changed_queues: dict[Queue, None] = {}
        """Queues that the batch may have changed, in the order of their first change."""
        self.addresses: dict[str, Address] = {}
        """Decoded addresses, by name."""
        self._changed_addresses: dict[Address, None] = {}
        self._undeclared: dict[str, Address] = {}
        """Addresses that are no longer declared, and have changes that the store does not have."""
        self.address_rows = Rows(self.write_set, Kind.ADDRESS, "")
        self.xids = Ordered(self.write_set, Kind.XID, "", fresh=False)
        """Undecided distributed transactions, in order of begin (R81)."""
        self.wakes = Ordered(self.write_set, Kind.WAKE, "", fresh=False, row_bytes=TIMED_ROW_BYTES)
        """When each queue is swept next. No name: when a distributed transaction may time out."""
        self.clock_rows = Rows(self.write_set, Kind.CLOCK, "")
        self.queue_rows = Rows(self.write_set, Kind.QUEUE, "")
        self._unfinished_rows = Rows(self.write_set, Kind.UNFINISHED, "")
        self.unfinished: Unfinished | None = self._unfinished_rows.get(0)
        """The command that continues in the next transaction, before any other (R114)."""
        self._stored_unfinished = self.unfinished
        self.rows_cost = 0
        """What rows of queues count: of those that this step decodes, and of those that it is the
        first of its batch to change (R121)."""
        self._deleted: dict[str, Queue] = {}
        """Deleted queues that the store still has; a new one must not see their rows."""
        self._deleted_in_flight: dict[str, Queue] = {}
        self._sessions: dict[str, Ordered] = {}
        self._operations: dict[int, Ordered] = {}
        clock: Clock = self.clock_rows.get(0) or Clock()
        self.now_ms, self.step, self.deliveries, self.level = clock

    def clock(self) -> Clock:
        """The numbers as they are now."""
        return Clock(self.now_ms, self.step, self.deliveries, self.level)

    # --- finding and decoding --------------------------------------------------------------------

    def queue(self, name: str) -> Queue | None:
        """The queue of that name: decoded from the store, or created if the catalog declares it."""
        queue = self.queues.get(name)
        if queue is None:
            row: QueueRow | None = self.queue_rows.get(name)
            if row is not None:
                rows = 1 + row.attached + Counts(*row.counts).delivering
                self.rows_cost += limits.ROW_COST_BYTES * rows
                spec = self.catalog.spec_of_stored(name, row.settings)
                queue = self.queues[name] = Queue(self.write_set, name, spec, row)
                queue.is_passed_over = self.catalog.declares_address(name)
            elif self.catalog.declares(name):
                if address_of(name):  # only its address can create it; this is for reading
                    return Queue(self.write_set, name, self.catalog.spec(name, {}), None)
                queue = self.create(name, {})
        return queue

    def receiver(self, name: str) -> Queue | None:
        """The queue that gets what is sent to that name, if it is decoded."""
        queue = self.queues.get(name)
        return None if queue is None or queue.is_passed_over else queue

    def exists(self, name: str) -> bool:
        """Whether the queue is stored, or will be with this batch, or is declared by its name.

        A queue that only a pattern declares is decoded when it is asked for, but exists from its
        first change.
        """
        queue = self.queues.get(name)
        is_changed = queue is not None and queue in self.changed_queues
        return is_changed or self.catalog.names(name) or self.queue_rows.get(name) is not None

    def stored_queues(self, after: str | None, most: int) -> list[tuple[str, QueueRow]]:
        """Up to `most` queues behind a name, in order, as they were when last committed.

        For what looks at all queues now and then: to merge the changes of a batch takes longer.
        """
        return list(self.write_set.store.scan(Kind.QUEUE, "", 0, after, most))

    def forget_queue(self, queue: Queue) -> None:
        """Free a queue that was decoded only to look at it, and has no changes."""
        assert queue not in self.changed_queues
        del self.queues[queue.name]
        queue.forget(held=True)

    def create(self, name: str, settings: dict[str, object]) -> Queue:
        """Create a queue with settings of its own.

        Raises:
            BadSetting: a setting is invalid.
        """
        spec = self.catalog.spec(name, settings)
        queue = self._deleted.pop(name, None) or self._deleted_in_flight.pop(name, None)
        if queue is None:
            queue = Queue(self.write_set, name, spec, None)
        else:
            queue.reset(spec)
        queue.settings = settings
        self.queues[name] = queue
        return queue

    def delete(self, queue: Queue) -> None:
        """Delete the row of an emptied queue, and stop using it (R90)."""
        self.queue_rows.delete(queue.name)
        del self.queues[queue.name]
        del self.changed_queues[queue]
        self._deleted[queue.name] = queue

    def address(self, name: str) -> Address | None:
        """The address of that name, or None if the catalog does not declare it."""
        address = self.addresses.get(name)
        if address is None:
            if not self.catalog.declares_address(name):  # most names: saves reading the store
                return None
            address = self._undeclared.pop(name, None)
            row: AddressRow | None = None if address else self.address_rows.get(name)
            settings = address.settings if address else row.settings if row else {}
            spec = self.catalog.address(name, settings)
            assert spec is not None
            if address is None:
                address = Address(self.write_set, name, spec, row)
            else:
                address.use_spec(spec)
            self.addresses[name] = address
        return address

    def leave_address(self, name: str, queue: str) -> None:
        """Take a queue that is deleted out of its address, also of one that is not declared now."""
        address = self.address(name) or self._undeclared.get(name)
        if address is not None:
            if queue in address.members:
                self.use_address(address)
                address.leave(queue)
            return
        row: AddressRow | None = self.address_rows.get(name)
        if row is not None and queue in row.members:
            members = tuple([each for each in row.members if each != queue])
            self.address_rows.put(name, row._replace(members=members))

    def most_active_consumers(self, queue: Queue) -> int:
        """How many consumers of a queue may be active at once; -1 for any number (R11, R70)."""
        most, address_name = queue.spec.max_active_consumers, address_of(queue.name)
        if most < 0 and address_name and not queue.spec.shared:
            address = self.address(address_name)
            if address is not None and address.spec.routing == "multicast":
                return 1
        return most

    def operations(self, xid: int) -> Ordered:
        """The operations of a distributed transaction, by its number, in order."""
        table = self._operations.get(xid)
        if table is None:
            table = Ordered(self.write_set, Kind.OPERATION, "", xid, fresh=False)
            self._operations[xid] = table
        return table

    def session(self, name: str) -> Ordered:
        """The consumers of a session, by (queue, consumer)."""
        table = self._sessions.get(name)
        if table is None:
            table = Ordered(self.write_set, Kind.SESSION, "", name, fresh=False)
            self._sessions[name] = table
        return table

    def next_wake_ms(self) -> int | None:
        """When a sweep is due, or None."""
        key = self.wakes.first_key()
        return None if key is None else int(key[0])

    # --- another configuration -------------------------------------------------------------------

    def configure(self, configuration: Configuration, catalog: Catalog) -> None:
        """Use another configuration from now on (R128). Decoded queues keep their settings.

        Those that exist only because the one before declared them are forgotten.
        """
        self.configuration, self.catalog = configuration, catalog
        self._configuration_rows.put(0, configuration)
        for queue in list(self.queues.values()):
            is_new = not (queue.sequence or queue.orders or queue in self.changed_queues)
            if is_new and self.queue_rows.get(queue.name) is None:
                del self.queues[queue.name]
        for address in list(self.addresses.values()):
            if address.retained.is_stored and address not in self._changed_addresses:
                # Its next use decodes it again: there may be too many to compare all of them now.
                self.addresses.pop(address.name).forget()
                continue
            spec = catalog.address(address.name, address.settings)
            if spec is not None:
                address.use_spec(spec)
            else:
                self._undeclared[address.name] = self.addresses.pop(address.name)

    def save_rows(self) -> None:
        """Put the rows of what the batch has changed so far, for a scan of all rows."""
        for queue in self.changed_queues:
            self.queue_rows.put(queue.name, queue.row())
        for address in self._changed_addresses:
            self.address_rows.put(address.name, address.row())

    def raise_level(self, level: int) -> None:
        """Use a feature level from now on (R129)."""
        self.level = level
        self.clock_rows.put(0, self.clock())

    # --- time ------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Move the time of an idle partition forward."""
        self.now_ms = max(now_ms, self.now_ms)
        self.clock_rows.put(0, self.clock())

    def wake_by(self, queue: Queue, at_ms: int) -> None:
        """Have the queue swept at that time at the latest."""
        if queue.wake_ms:
            if queue.wake_ms <= at_ms:
                return
            self.wakes.delete((queue.wake_ms, queue.name))
        queue.wake_ms = at_ms
        self.wakes.put_new((at_ms, queue.name), True)

    def clear_wake(self, queue: Queue) -> None:
        """Cancel the queue's next sweep."""
        if queue.wake_ms:
            self.wakes.delete((queue.wake_ms, queue.name))
            queue.wake_ms = 0

    def wake_for_xids_by(self, at_ms: int) -> None:
        """Have the distributed transactions looked at then."""
        self.wakes.put((at_ms, ""), True)

    def clear_wake_for_xids(self, at_ms: int) -> None:
        """Cancel the wake of the distributed transactions at that time."""
        self.wakes.delete((at_ms, ""))

    # --- a batch ---------------------------------------------------------------------------------

    def use(self, queue: Queue) -> None:
        """Have the queue stored with this batch; call it before changing the queue."""
        if queue.row_cost and queue not in self.changed_queues:
            self.rows_cost += queue.row_cost
        self.changed_queues[queue] = None

    def use_address(self, address: Address) -> None:
        """Have the address stored with this batch; call it before changing the address."""
        self._changed_addresses[address] = None

    def changed_names(self) -> list[str]:
        """The names of the queues that the batch may have changed, or has deleted."""
        return [*[queue.name for queue in self.changed_queues], *self._deleted]

    def writes(self) -> list[TableWrites]:
        """All changes since the last call, to be committed as one. They are in flight until then.

        Call it again only after `committed`.

        Raises:
            BrokenAccounts: a queue's counts do not add up (R100).
        """
        writes = self.write_set
        if self.unfinished != self._stored_unfinished:
            self._stored_unfinished = self.unfinished
            if self.unfinished is None:
                self._unfinished_rows.delete(0)
            else:
                self._unfinished_rows.put(0, self.unfinished)
        if not self.changed_queues and not self._changed_addresses and not writes.dirty:
            return []
        self.clock_rows.put(0, self.clock())
        for queue in self.changed_queues:
            row = queue.row()
            queue.history.save()
            self.queue_rows.put(queue.name, row)
            self.queues[queue.name] = self.queues.pop(queue.name)
        self.changed_queues.clear()
        for address in self._changed_addresses:
            self.address_rows.put(address.name, address.row())
        self._changed_addresses.clear()
        self._deleted_in_flight, self._deleted = self._deleted, {}
        writes.in_flight, writes.dirty = writes.dirty, []
        return [table.writes() for table in writes.in_flight]

    def committed(self, cache_bytes: int) -> None:
        """Note that the writes are in the store, and free memory above `cache_bytes`."""
        self.write_set.cache_bytes = cache_bytes
        for table in self.write_set.in_flight:
            table.committed()
        self.write_set.in_flight = []
        self._deleted_in_flight = {}
        self._sessions = {name: t for name, t in self._sessions.items() if t.is_dirty}
        self._operations = {xid: t for xid, t in self._operations.items() if t.is_dirty}
        if self._undeclared:
            self._undeclared = {
                name: each
                for name, each in self._undeclared.items()
                if each.retained.is_dirty or each in self._changed_addresses
            }
        if self.write_set.cached_bytes > cache_bytes or len(self.queues) > QUEUES_DECODED:
            self._shrink(cache_bytes // 2)

    def _shrink(self, cache_bytes: int) -> None:
        """Forget the messages of queues that were changed longest ago, or the whole queues.

        Queues that the next batch has already changed stay: their changes are in their tables.
        """
        for name in [a.name for a in self.addresses.values() if a not in self._changed_addresses]:
            self.addresses.pop(name).forget()
        idle = [queue for queue in self.queues.values() if queue not in self.changed_queues]
        excess = len(self.queues) - QUEUES_DECODED // 2 if len(self.queues) > QUEUES_DECODED else 0
        for number, queue in enumerate(idle):
            if number < excess:
                del self.queues[queue.name]
            elif self.write_set.cached_bytes <= cache_bytes:
                break
            queue.forget(held=number < excess)
        for queue in self.queues.values():
            if self.write_set.cached_bytes <= cache_bytes:
                return
            queue.trim(cache_bytes)
        if self.write_set.cached_bytes > cache_bytes:
            self.wakes.shed(self.write_set.cached_bytes - cache_bytes)


QUEUES_DECODED = 100_000
"""Most queues held decoded, of whatever size: each takes about 2.5 kB without its messages."""
