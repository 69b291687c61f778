"""The stages of distributed transactions, and the tables that hold them until the decision (R81).

The operations of an undecided transaction are stored in order. Its sends are nowhere else until the
commit. Its acks mark their deliveries, which stay *delivering* even if the consumer leaves: they
are neither evicted nor delivered again.
"""

from __future__ import annotations

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.model import Delivery, Heard, Message, Operation, Stage, XidRow, cost_bytes
from ringfaust.core.new import send_of, unsent
from ringfaust.core.queue import Queue
from ringfaust.core.state import State
from ringfaust.core.table import Ordered
from ringfaust.core.transitions.attaching import check_auto_delete, save_sign_of_life
from ringfaust.core.transitions.delivering import acked, dispatch, settle_in_xid
from ringfaust.core.transitions.leaving import expire
from ringfaust.core.transitions.opening import covered, opened
from ringfaust.core.transitions.queues import auto_delete
from ringfaust.core.transitions.returning import requeue_some
from ringfaust.core.transitions.sending import send
from ringfaust.core.work import Work

HOLD_REST, COMMIT, UNDO, UNDO_ALL = "hold rest", "commit", "undo", "undo all"
"""Stages of commands (R114)."""
BEGIN, PREPARE, HOLD_SEND, HOLD_ACK = "begin", "prepare", "hold send", "hold ack"
"""Stages that are performed at once."""


# --- until the decision --------------------------------------------------------------------------


def begin_stage(work: Work, stage: Stage) -> None:
    """Open a transaction, last in the order of begin."""
    xids, begin = work.state.xids, stage.args[0]
    number = max((number for number, _ in xids), default=0) + 1
    row = XidRow(begin.xid, False, 0, begin.owner, work.now, begin.timeout_ms)
    xids.put_new(number, row)
    work.state.wake_for_xids_by(row.deadline_ms)


def prepare_stage(work: Work, stage: Stage) -> None:
    """Mark a transaction as prepared: from now on it survives restarts and its timeout."""
    number, row = stage.args
    work.state.xids.put(number, row._replace(prepared=True))
    _forget_deadline(work.state, row)


def hold_send_stage(work: Work, stage: Stage) -> None:
    """Hold a send until the commit; its times count from now."""
    number, row, send = stage.args
    _add_operation(work.state, number, row, Operation(send.queue, unsent(send), send.redrives))
    work.effects.append(e.Pending(send.queue, row.name, send.id))


def hold_ack_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Hold an ack until the commit; what it settles stays delivering until then."""
    number, consumer, delivery = stage.args
    save_sign_of_life(work, queue, consumer)
    expire(work, queue)
    rest = Stage(HOLD_REST, queue.name, (number, consumer.name, delivery.number))
    if not work.defers(rest):
        hold_rest_stage(work, queue, rest)


def hold_rest_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Hold as many of the acks as fit into this transaction (R114)."""
    number, name, last = stage.args
    row: XidRow = work.state.xids.get(number)  # type: ignore[assignment]
    for each, other_queue in covered(work, queue, queue.consumers[name], last):
        if not work.has_room:
            work.stages.append(stage)
            return
        held: Delivery = other_queue.deliveries.get(each)  # type: ignore[assignment]
        work.spend(cost_bytes(held.message))
        work.state.use(other_queue)
        settle_in_xid(other_queue, held, row.name)
        operation = Operation(other_queue.name, None, held.number, held.message.position)
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
    operations = work.state.operations(number)
    while (first := operations.first()) is not None:
        key, operation = first
        if operation.message is not None:
            work.spend(cost_bytes(operation.message))
            _apply_send(work, operation.queue, operation.message, operation.number)
            operations.delete(key)
        else:
            queue = opened(work, operation.queue)
            if not work.stages:  # what its first use has left to do comes first
                work.spend(0)
                _apply_ack(work, queue, operation.number, name)
                operations.delete(key)
        if work.is_full:
            work.stages.append(stage)
            return
    work.state.xids.delete(number)
    work.effects.append(e.Decided("", name, True))


def _apply_send(work: Work, destination: str, message: Message, redrives: int) -> None:
    held = send_of(message, destination, message.enqueued_ms, message.due_ms)
    refused = send(work, held._replace(redrives=redrives), is_alone=False)
    if refused is not None:  # only this send: the other operations take effect
        work.effects.append(refused._replace(about=message.id))


def _apply_ack(work: Work, queue: Queue, number: int, xid: str) -> None:
    delivery: Delivery | None = queue.deliveries.get(number)
    assert delivery is not None and delivery.xid == xid, "nobody else can settle it"
    work.state.use(queue)
    expire(work, queue)
    acked(work, queue, delivery)
    dispatch(work, queue)
    check_auto_delete(work, queue)
    auto_delete(work)


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

    As much as fits into this transaction; `args` name the queue that it has begun with (R114).
    """
    number, xid, *begun = stage.args
    rest = _undo(work, number, begun)
    if rest is not None:
        work.stages.append(Stage(UNDO, "", (number, xid, *rest)))
        return
    row: XidRow = work.state.xids.get(number)  # type: ignore[assignment]
    work.state.xids.delete(number)
    _forget_deadline(work.state, row)
    work.effects.append(e.Decided("", xid, False))


def _undo(work: Work, number: int, begun: list[str]) -> list[str] | None:
    """Undo what fits into this transaction.

    Returns:
        None if that is all; otherwise the name of the queue that it has begun with, if any.
    """
    operations = work.state.operations(number)
    settled: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in begun}
    for key, operation in operations.walk():
        if operation.message is None:
            place = (key, operation.position)
            settled.setdefault(operation.queue, {})[operation.number] = place
        elif work.has_room:
            work.spend(cost_bytes(operation.message))
            operations.delete(key)
        else:
            return begun
    for name, acks in settled.items():
        if work.is_full:
            return []
        queue = opened(work, name)
        if work.stages:  # what its first use has left to do comes first
            return []
        work.state.use(queue)
        if name not in begun:
            expire(work, queue)
        if not _return_settled(work, queue, operations, acks):
            return [name]
    return [] if work.stages else None


def _return_settled(
    work: Work, queue: Queue, operations: Ordered, acks: dict[int, tuple[int, int]]
) -> bool:
    """Return what was settled in a transaction that is rolled back. False if some of it is left.

    `acks`: by the number of its delivery, the key of each and the position of its message.
    """
    numbers = list(acks)
    if not queue.policy.ends_set_first:  # newest first; bodies are read one by one
        numbers.sort(key=lambda each: acks[each][1] or _position(queue, each), reverse=True)
    left = set(requeue_some(work, queue, numbers, delayed=True, acked=acks))
    for each in numbers:
        if each not in left:
            operations.delete(acks[each][0])
    if left:
        return False
    dispatch(work, queue)
    check_auto_delete(work, queue)
    auto_delete(work)
    return True


def _position(queue: Queue, number: int) -> int:
    """The position of a delivery that was settled before operations had it."""
    delivery: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
    return delivery.message.position


# --- the timeout ---------------------------------------------------------------------------------


def end_overdue(work: Work, heard: Heard) -> None:
    """Roll back what was not prepared in time, in order of begin (R81).

    As with consumers, only the time counts over which every command in the log was executed (R110).
    """
    for number, row in list(work.state.xids):
        if not 0 < row.deadline_ms <= work.now:
            continue
        if work.is_full:
            return
        if heard.covers(row.began_ms, row.timeout_ms):
            undo_stage(work, Stage(UNDO, "", (number, row.name)))
        else:
            work.state.clear_wake_for_xids(row.deadline_ms)
            again = work.now // limits.UNHEARD_RECHECK_MS + 1  # one wake for all, in a second
            work.state.wake_for_xids_by(again * limits.UNHEARD_RECHECK_MS)


def _forget_deadline(state: State, row: XidRow) -> None:
    """Cancel the wake of a transaction that is not open any more, unless another needs it."""
    at_ms = row.deadline_ms
    if at_ms and all(other.deadline_ms != at_ms for _, other in state.xids):
        state.clear_wake_for_xids(at_ms)
