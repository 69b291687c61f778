"""Distributed transactions: begin, prepare, then commit or rollback by xid (R81).

What was done in one waits in the state, in order. Its sends are nowhere else until the commit; its
acks mark their deliveries, which stay *delivering*, whoever leaves: neither evicted nor delivered.
"""

from __future__ import annotations

from typing import NamedTuple

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.commands.addresses import Addresses
from ringfaust.core.commands.consumers import Consumers
from ringfaust.core.model import Delivery, Message
from ringfaust.core.refusal import Idle, Refused, bad
from ringfaust.core.transitions import Transitions, send_of, unsent


class XidRow(NamedTuple):
    """An undecided distributed transaction (R81)."""

    name: str
    prepared: bool
    operations: int
    """How many were done in it."""


class Operation(NamedTuple):
    """What was done in a distributed transaction: a send, or an ack where there is no message."""

    queue: str
    """Where it is sent to, or the delivery's queue."""
    message: Message | None
    number: int
    """Of the delivery; of a send, how often it was sent again (R43)."""


class Transactions:
    """The undecided transactions of one partition."""

    def __init__(self, ring: Transitions, consumers: Consumers, addresses: Addresses) -> None:
        self._ring = ring
        self._state = ring.state
        self._consumers = consumers
        self._addresses = addresses

    # --- the transaction -------------------------------------------------------------------------

    def begin(self, begin: c.Begin) -> None:
        """It is open."""
        name = begin.xid
        if not name or len(name) > limits.NAME_CHARS:
            raise bad(name, f"an xid has from 1 to {limits.NAME_CHARS} characters")
        numbers = [number for number, row in self._state.xids]
        if any(row.name == name for _, row in self._state.xids):
            raise bad(name, "a transaction of that xid is open")
        if len(numbers) >= limits.XIDS:
            raise bad(name, f"{limits.XIDS} transactions are open in this partition")
        self._state.xids.put_new(max(numbers, default=0) + 1, XidRow(name, False, 0))

    def prepare(self, prepare: c.Prepare) -> None:
        """From here on it survives restarts."""
        number, row = self._open(prepare.xid)
        self._state.xids.put(number, row._replace(prepared=True))

    def commit(self, commit: c.Commit) -> None:
        """Each operation takes effect, in the order made, as a command of its own."""
        number, row = self._find(commit.xid)
        if not row.prepared:
            raise bad(row.name, "it is not prepared; prepare it first, or roll it back")
        operations = self._close(number)
        for operation in operations:
            if operation.message is not None:
                self._sent(operation.queue, operation.message, operation.number)
            else:
                self._acked(operation, row.name)
                self._addresses.auto_delete()
        self._ring.out.append(e.Decided("", row.name, True))

    def rollback(self, rollback: c.RollbackXid) -> None:
        """What was sent in it is forgotten; what was settled returns, per queue as one set."""
        number, row = self._find(rollback.xid)
        self._undo(number, row)

    def start(self, _: c.Start) -> None:
        """What was not prepared when the host ended is rolled back, in order of begin."""
        undone = [(number, row) for number, row in self._state.xids if not row.prepared]
        if not undone:
            raise Idle
        for number, row in undone:
            self._undo(number, row)

    # --- what is done in it ----------------------------------------------------------------------

    def send(self, send: c.Send) -> None:
        """It waits for the commit; its times count from now."""
        number, row = self._open(send.xid)
        self._keep(number, row, Operation(send.queue, unsent(send), send.redrives))
        self._ring.out.append(e.Pending(send.queue, row.name, send.id))

    def ack(self, ack: c.Ack) -> None:
        """It waits for the commit; the delivery is kept as it is until then."""
        number, row = self._open(ack.xid)
        queue, delivery = self._consumers.settled(ack)
        for other_queue, held in self._consumers.covered(queue, delivery):
            self._state.use(other_queue)
            other_queue.settle_in(held, row.name)
            row = self._keep(number, row, Operation(other_queue.name, None, held.number))
            self._ring.out.append(e.Pending(other_queue.name, row.name, held.message.id))

    def _keep(self, number: int, row: XidRow, operation: Operation) -> XidRow:
        row = row._replace(operations=row.operations + 1)
        self._state.operations(number).put_new(row.operations, operation)
        self._state.xids.put(number, row)
        return row

    # --- finding and ending ----------------------------------------------------------------------

    def _find(self, xid: str) -> tuple[int, XidRow]:
        for number, row in self._state.xids:
            if row.name == xid:
                return number, row
        raise bad(xid, "no transaction of that xid is open")

    def _open(self, xid: str) -> tuple[int, XidRow]:
        """One in which more may be done."""
        number, row = self._find(xid)
        if row.prepared:
            raise bad(xid, "it is prepared; now it can be committed or rolled back")
        if row.operations >= limits.XID_OPERATIONS:
            raise bad(xid, f"a transaction has at most {limits.XID_OPERATIONS} operations")
        return number, row

    def _close(self, number: int) -> list[Operation]:
        """It is no longer there; what was done in it."""
        table = self._state.operations(number)
        rows = list(table)
        for key, _ in rows:
            table.delete(key)
        self._state.xids.delete(number)
        return [operation for _, operation in rows]

    def _sent(self, destination: str, message: Message, redrives: int) -> None:
        send = send_of(message, destination, message.enqueued_ms, message.due_ms)
        try:
            self._addresses.send(send._replace(redrives=redrives))
        except Refused as no:  # it alone: the others take effect
            self._ring.out.append(e.Refused(destination, no.reason, message.id, no.text))

    def _acked(self, operation: Operation, xid: str) -> None:
        queue = self._ring.queue(operation.queue)
        delivery: Delivery | None = queue.deliveries.get(operation.number)
        assert delivery is not None and delivery.xid == xid, "nobody else can settle it"
        self._state.use(queue)
        self._ring.expire(queue)
        self._ring.acked(queue, delivery)
        self._ring.dispatch(queue)
        self._consumers.check_auto_delete(queue)

    def _undo(self, number: int, row: XidRow) -> None:
        by_queue: dict[str, list[int]] = {}
        for operation in self._close(number):
            if operation.message is None:
                by_queue.setdefault(operation.queue, []).append(operation.number)
        for name, numbers in by_queue.items():
            queue = self._ring.queue(name)
            self._state.use(queue)
            returning: list[Delivery] = [queue.deliveries.get(each) for each in numbers]  # type: ignore[misc]
            self._ring.requeue(queue, returning, delayed=True, acked=numbers)
            self._ring.dispatch(queue)
            self._consumers.check_auto_delete(queue)
        self._ring.out.append(e.Decided("", row.name, False))
