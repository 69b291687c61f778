"""The commands of distributed transactions: begin, prepare, commit and rollback by xid (R81).

The operations of an undecided transaction are stored in order. Its sends are nowhere else until the
commit. Its acks mark their deliveries, which stay *delivering* even if the consumer leaves: they
are neither evicted nor delivered again.
"""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.handlers.addresses import Addresses
from ringfaust.core.handlers.consumers import Consumers
from ringfaust.core.model import Delivery, Message, Operation, Stage, XidRow
from ringfaust.core.queue import Queue
from ringfaust.core.refusal import CommandRefused, Idle, bad
from ringfaust.core.transitions import Transitions, deliveries, send_of, unsent, xids

COMMIT, UNDO = "commit", "undo"
"""Stages of commands (R114)."""


class Transactions:
    """Handles the commands of distributed transactions, and the sends and acks made in them."""

    def __init__(
        self, transitions: Transitions, consumers: Consumers, addresses: Addresses
    ) -> None:
        self._transitions = transitions
        self._state = transitions.state
        self._consumers = consumers
        self._addresses = addresses

    # --- the transaction -------------------------------------------------------------------------

    def begin(self, begin: c.Begin) -> None:
        """Open a transaction (R81)."""
        name = begin.xid
        if not name or len(name) > limits.NAME_CHARS:
            raise bad(name, f"an xid has from 1 to {limits.NAME_CHARS} characters")
        names = [row.name for _, row in self._state.xids]
        if name in names:
            raise bad(name, "a transaction of that xid is open")
        if len(names) >= limits.XIDS:
            raise bad(name, f"{limits.XIDS} transactions are open in this partition")
        xids.begin(self._state, name)

    def prepare(self, prepare: c.Prepare) -> None:
        """Prepare a transaction: from now on it survives restarts (R81)."""
        number, row = self._find_open(prepare.xid)
        xids.prepare(self._state, number, row)

    def commit(self, commit: c.Commit) -> None:
        """Apply the operations in the order made, each as a command of its own (R81)."""
        number, row = self._find(commit.xid)
        if not row.prepared:
            raise bad(row.name, "it is not prepared; prepare it first, or roll it back")
        self._transitions.perform(Stage(COMMIT, "", (number, row.name)))

    def commit_stage(self, stage: Stage) -> None:
        """Apply as many operations as fit into this transaction (R114)."""
        number, name = stage.args
        while (operation := xids.take_operation(self._state, number)) is not None:
            if operation.message is not None:
                self._transitions.spend(operation.message.size_bytes)
                self._apply_send(operation.queue, operation.message, operation.number)
            else:
                self._transitions.spend(0)
                self._apply_ack(operation, name)
                self._addresses.auto_delete()
            if self._transitions.stages or not self._transitions.has_room:
                self._transitions.stages.append(stage)
                return
        xids.remove(self._state, number)
        self._transitions.out.append(e.Decided("", name, True))

    def rollback(self, rollback: c.RollbackXid) -> None:
        """Forget the sends, and return what was settled, per queue as one set (R81)."""
        number, row = self._find(rollback.xid)
        self._transitions.perform(Stage(UNDO, "", (number, row.name)))

    def start(self, _: c.Start) -> None:
        """Roll back what was not prepared when the host stopped, in order of begin (R81)."""
        undecided = [(number, row) for number, row in self._state.xids if not row.prepared]
        if not undecided:
            raise Idle
        for number, row in undecided:
            self._transitions.perform(Stage(UNDO, "", (number, row.name)))

    # --- operations ------------------------------------------------------------------------------

    def send(self, send: c.Send) -> None:
        """Hold a send until the commit; its times count from now (R81)."""
        number, row = self._find_open(send.xid)
        operation = Operation(send.queue, unsent(send), send.redrives)
        xids.add_operation(self._state, number, row, operation)
        self._transitions.out.append(e.Pending(send.queue, row.name, send.id))

    def ack(self, ack: c.Ack) -> None:
        """Hold an ack until the commit; the delivery stays as it is until then (R81)."""
        number, row = self._find_open(ack.xid)
        queue, delivery = self._consumers.find_delivery(ack)
        self._transitions.expire(queue)
        for other_queue, held in self._consumers.covered(queue, delivery):
            self._state.use(other_queue)
            deliveries.settle_in_xid(other_queue, held, row.name)
            operation = Operation(other_queue.name, None, held.number)
            row = xids.add_operation(self._state, number, row, operation)
            self._transitions.out.append(e.Pending(other_queue.name, row.name, held.message.id))

    # --- finding and ending ----------------------------------------------------------------------

    def _find(self, xid: str) -> tuple[int, XidRow]:
        for number, row in self._state.xids:
            if row.name == xid:
                return number, row
        raise bad(xid, "no transaction of that xid is open")

    def _find_open(self, xid: str) -> tuple[int, XidRow]:
        """A transaction that takes more operations."""
        number, row = self._find(xid)
        if row.prepared:
            raise bad(xid, "it is prepared; now it can be committed or rolled back")
        if row.operations >= limits.XID_OPERATIONS:
            raise bad(xid, f"a transaction has at most {limits.XID_OPERATIONS} operations")
        return number, row

    def _apply_send(self, destination: str, message: Message, redrives: int) -> None:
        send = send_of(message, destination, message.enqueued_ms, message.due_ms)
        try:
            self._addresses.send(send._replace(redrives=redrives))
        except CommandRefused as no:  # only this send: the other operations take effect
            refused = e.Refused(destination, no.reason, message.id, no.text)
            self._transitions.out.append(refused)

    def _apply_ack(self, operation: Operation, xid: str) -> None:
        queue = self._transitions.queue(operation.queue)
        delivery: Delivery | None = queue.deliveries.get(operation.number)
        assert delivery is not None and delivery.xid == xid, "nobody else can settle it"
        self._transitions.run(queue, self._transitions.acked, delivery)
        self._consumers.check_auto_delete(queue)

    def undo_stage(self, stage: Stage) -> None:
        """Roll a transaction back, in one step: `limits.XID_OPERATIONS` bounds it."""
        number, xid = stage.args
        by_queue: dict[str, list[int]] = {}
        while (operation := xids.take_operation(self._state, number)) is not None:
            if operation.message is None:
                by_queue.setdefault(operation.queue, []).append(operation.number)
        xids.remove(self._state, number)
        for name, numbers in by_queue.items():
            queue = self._transitions.queue(name)
            self._transitions.run(queue, self._return, numbers)
            self._consumers.check_auto_delete(queue)
        self._transitions.out.append(e.Decided("", xid, False))

    def _return(self, queue: Queue, numbers: list[int]) -> None:
        returning: list[Delivery] = [queue.deliveries.get(each) for each in numbers]  # type: ignore[misc]
        self._transitions.requeue(queue, returning, delayed=True, acked=numbers)
