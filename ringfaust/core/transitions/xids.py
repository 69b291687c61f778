"""The stages of distributed transactions, and the tables that hold them until the decision (R81).

The operations of an undecided transaction are stored in order. Its sends are nowhere else until the
commit. Its acks mark their deliveries, which stay *delivering* even if the consumer leaves: they
are neither evicted nor delivered again.
"""

from __future__ import annotations

from ringfaust.core import effects as e
from ringfaust.core.model import Delivery, Message, Operation, Stage, XidRow
from ringfaust.core.new import send_of, unsent
from ringfaust.core.queue import Queue
from ringfaust.core.state import State
from ringfaust.core.transitions.attaching import check_auto_delete, save_sign_of_life
from ringfaust.core.transitions.delivering import acked, dispatch, settle_in_xid
from ringfaust.core.transitions.leaving import expire
from ringfaust.core.transitions.opening import opened
from ringfaust.core.transitions.queues import auto_delete
from ringfaust.core.transitions.returning import requeue
from ringfaust.core.transitions.sending import send
from ringfaust.core.transitions.settling import covered
from ringfaust.core.work import Work

COMMIT, UNDO, UNDO_ALL = "commit", "undo", "undo all"
"""Stages of commands (R114)."""
BEGIN, PREPARE, HOLD_SEND, HOLD_ACK = "begin", "prepare", "hold send", "hold ack"
"""Stages that are performed at once."""


# --- until the decision --------------------------------------------------------------------------


def begin_stage(work: Work, stage: Stage) -> None:
    """Open a transaction, last in the order of begin."""
    xids = work.state.xids
    number = max((number for number, _ in xids), default=0) + 1
    xids.put_new(number, XidRow(stage.args[0], False, 0))


def prepare_stage(work: Work, stage: Stage) -> None:
    """Mark a transaction as prepared: from now on it survives restarts."""
    number, row = stage.args
    work.state.xids.put(number, row._replace(prepared=True))


def hold_send_stage(work: Work, stage: Stage) -> None:
    """Hold a send until the commit; its times count from now."""
    number, row, send = stage.args
    _add_operation(work.state, number, row, Operation(send.queue, unsent(send), send.redrives))
    work.effects.append(e.Pending(send.queue, row.name, send.id))


def hold_ack_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Hold an ack until the commit; the delivery stays as it is until then."""
    number, row, consumer, delivery = stage.args
    save_sign_of_life(work, queue, consumer)
    expire(work, queue)
    for other_queue, held in covered(work, queue, consumer, delivery):
        work.state.use(other_queue)
        settle_in_xid(other_queue, held, row.name)
        operation = Operation(other_queue.name, None, held.number)
        row = _add_operation(work.state, number, row, operation)
        work.effects.append(e.Pending(other_queue.name, row.name, held.message.id))


def _add_operation(state: State, number: int, row: XidRow, operation: Operation) -> XidRow:
    """Append an operation; the transaction's row after it."""
    row = row._replace(operations=row.operations + 1)
    state.operations(number).put_new(row.operations, operation)
    state.xids.put(number, row)
    return row


# --- the decision --------------------------------------------------------------------------------


def commit_stage(work: Work, stage: Stage) -> None:
    """Apply as many operations as fit into this transaction, in the order made (R81, R114)."""
    number, name = stage.args
    while (operation := _take_operation(work.state, number)) is not None:
        if operation.message is not None:
            work.spend(operation.message.size_bytes)
            _apply_send(work, operation.queue, operation.message, operation.number)
        else:
            work.spend(0)
            _apply_ack(work, operation, name)
            auto_delete(work)
        if work.is_full:
            work.stages.append(stage)
            return
    work.state.xids.delete(number)
    work.effects.append(e.Decided("", name, True))


def _take_operation(state: State, number: int) -> Operation | None:
    """Remove the first operation of a transaction, and return it; None if there is none."""
    table = state.operations(number)
    row = table.first()
    if row is None:
        return None
    table.delete(row[0])
    return row[1]  # type: ignore[no-any-return]


def _apply_send(work: Work, destination: str, message: Message, redrives: int) -> None:
    held = send_of(message, destination, message.enqueued_ms, message.due_ms)
    refused = send(work, held._replace(redrives=redrives))
    if refused is not None:  # only this send: the other operations take effect
        work.effects.append(refused._replace(about=message.id))


def _apply_ack(work: Work, operation: Operation, xid: str) -> None:
    queue = opened(work, operation.queue)
    delivery: Delivery | None = queue.deliveries.get(operation.number)
    assert delivery is not None and delivery.xid == xid, "nobody else can settle it"
    work.state.use(queue)
    expire(work, queue)
    acked(work, queue, delivery)
    dispatch(work, queue)
    check_auto_delete(work, queue)


def undo_all_stage(work: Work, stage: Stage) -> None:
    """Undo what is not prepared, in order of begin, as much as fits into this transaction (R114).

    Their names are not in the row of the command: there may be a thousand (R120).
    """
    for number, row in list(work.state.xids):
        if row.prepared:
            continue
        if work.is_full:
            work.stages.append(stage)
            return
        undo_stage(work, Stage(UNDO, "", (number, row.name)))


def undo_stage(work: Work, stage: Stage) -> None:
    """Forget the sends, and return what was settled, per queue as one set (R81).

    As many queues as fit into this transaction; `limits.XID_OPERATIONS` bounds one (R114).
    """
    number, xid = stage.args
    operations = work.state.operations(number)
    by_queue: dict[str, dict[int, int]] = {}
    for key, operation in list(operations):
        if operation.message is None:
            by_queue.setdefault(operation.queue, {})[key] = operation.number
        else:
            operations.delete(key)
    for name, numbers in by_queue.items():
        if work.is_full:
            work.stages.append(stage)
            return
        for key in numbers:
            operations.delete(key)
        _return_settled(work, opened(work, name), list(numbers.values()))
    work.state.xids.delete(number)
    work.effects.append(e.Decided("", xid, False))


def _return_settled(work: Work, queue: Queue, numbers: list[int]) -> None:
    """Return deliveries that were settled in a transaction that is rolled back."""
    work.state.use(queue)
    expire(work, queue)
    returning: list[Delivery] = [queue.deliveries.get(each) for each in numbers]  # type: ignore[misc]
    for delivery in returning:
        work.spend(delivery.size_bytes)
    requeue(work, queue, returning, delayed=True, acked=numbers)
    dispatch(work, queue)
    check_auto_delete(work, queue)
    auto_delete(work)
