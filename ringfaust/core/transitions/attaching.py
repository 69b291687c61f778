"""How consumers come and go: backups that take over, managed windows, and the end of the silent.

What a consumer holds returns when it leaves (`returning`); what is free then is dispatched.
"""

from __future__ import annotations

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.model import WINDOW, AckMode, Consumer, Delivery, Heard, Stage
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.delivering import dispatch, orphan_deliveries
from ringfaust.core.transitions.leaving import expire
from ringfaust.core.transitions.returning import requeue_held
from ringfaust.core.work import Work

LEAVE, LEASES = "leave", "leases"
"""Stages of commands (R114)."""


# --- joining -------------------------------------------------------------------------------------


def join(work: Work, queue: Queue, consumer: Consumer) -> None:
    """Attach a consumer, last in the attach order (R11)."""
    queue.orders = consumer.order
    queue.consumers[consumer.name] = consumer
    queue.consumer_rows.put_new(consumer.order, consumer)
    _roster_changed(work, queue)
    queue.history.arrive(consumer.name)
    if consumer.session:
        work.state.session(consumer.session).put_new((queue.name, consumer.name), True)
    if at_ms := deadline(queue, consumer):
        work.state.wake_by(queue, at_ms)
    _report_attached(work, queue, consumer)


def _report_attached(work: Work, queue: Queue, consumer: Consumer) -> None:
    attached = e.Attached(queue.name, consumer.name, consumer.active, consumer.priority)
    work.effects.append(attached)


def _roster_changed(work: Work, queue: Queue) -> None:
    work.weigh(limits.CONSUMER_COST_BYTES * len(queue.consumers))
    queue.group_consumers()
    if queue.policy.restarts_round_robin:
        queue.cursors.clear()


def set_credit(queue: Queue, consumer: Consumer, credit: int) -> None:
    """Change how many unsettled deliveries a consumer may hold (R10, R12)."""
    consumer.credit = credit
    queue.consumer_rows.put(consumer.order, consumer)


def promote(work: Work, queue: Queue, *, is_cut: bool) -> bool:
    """Make backups active, in attach order, as long as the queue takes more (R11).

    Returns:
        False if it `is_cut` and the transaction is full before that (R114).
    """
    most = work.state.most_active_consumers(queue)
    active, _ = queue.places()
    for consumer in sorted(queue.consumers.values(), key=lambda consumer: consumer.order):
        if not consumer.active and (most < 0 or active < most):
            if is_cut and not work.has_room:
                return False
            work.spend(limits.TEXT_COST_BYTES * len(consumer.selector))
            consumer.active = True
            queue.consumer_rows.put(consumer.order, consumer)
            active += 1
            _report_attached(work, queue, consumer)
    return True


# --- leaving -------------------------------------------------------------------------------------


def leave(work: Work, queue: Queue, consumer: Consumer, *, timeout: bool) -> bool:
    """Detach a consumer: what it held returns, and backups take over (R11, R13, R20).

    Returns:
        False if the transaction is full before that (R114); call it again in the next one.
    """
    work.state.use(queue)
    if not requeue_held(work, queue, [consumer], delayed=False, clean=not timeout):
        return False
    if not orphan_deliveries(work, queue, consumer):
        return False
    _remove(work, queue, consumer)
    work.effects.append(e.Detached(queue.name, consumer.name, timeout))
    promote(work, queue, is_cut=False)  # one, as a rule
    dispatch(work, queue)
    check_auto_delete(work, queue)
    return True


def leave_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Detach the consumer that `args` names, as far as that fits into this transaction (R114)."""
    name, timeout = stage.args
    if not leave(work, queue, queue.consumers[name], timeout=timeout):
        work.stages.append(stage)


def _remove(work: Work, queue: Queue, consumer: Consumer) -> None:
    """Remove a consumer that holds nothing. The groups it owned are free now (R14, R116)."""
    del queue.consumers[consumer.name]
    queue.consumer_rows.delete(consumer.order)
    _roster_changed(work, queue)
    queue.history.depart(consumer.name)
    if consumer.session:
        work.state.session(consumer.session).delete((queue.name, consumer.name))


def check_auto_delete(work: Work, queue: Queue) -> None:
    """Have a non-durable queue deleted at the end of this step if nobody uses it (R70)."""
    if not (queue.spec.durable or queue.consumers or queue.orphans):
        work.to_auto_delete.append(queue)


# --- managed windows -----------------------------------------------------------------------------


def fit_window(work: Work, queue: Queue) -> bool:
    """Attach, resize or detach the consumer of a managed window, as the setting says (R12).

    Returns:
        False if some of a detach is left (R114).
    """
    size = queue.spec.window
    consumer = queue.consumers.get(WINDOW)
    if consumer is not None:
        if size:
            set_credit(queue, consumer, size)
        else:
            return leave(work, queue, consumer, timeout=False)
    elif size:
        order, mode = queue.orders + 1, AckMode.INDIVIDUAL
        join(work, queue, Consumer(WINDOW, order, size, 0, mode, "", True, work.now))
    return True


def leases_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """End the leases up to that delivery, as many as fit into this transaction (R12, R114)."""
    work.state.use(queue)
    (last,) = stage.args
    if requeue_held(work, queue, [queue.consumers[WINDOW]], delayed=False, last=last):
        dispatch(work, queue)
    else:
        work.stages.append(stage)


def watch_leases(work: Work, queue: Queue) -> None:
    """Plan the end of leases in a state that was written before there were any (R12)."""
    window = queue.consumers.get(WINDOW)
    at_ms = deadline(queue, window) if window else 0
    planned_ms = max(at_ms, work.now + limits.UNHEARD_RECHECK_MS)
    if at_ms and not 0 < queue.wake_ms <= planned_ms:
        work.state.use(queue)
        work.state.wake_by(queue, at_ms)


# --- silence -------------------------------------------------------------------------------------


def save_sign_of_life(work: Work, queue: Queue, consumer: Consumer) -> None:
    """Note that a consumer whose command is accepted is alive (R13)."""
    work.state.use(queue)
    if consumer.seen_ms != work.now:
        consumer.seen_ms = work.now
        if consumer.selector:
            work.weigh(limits.TEXT_COST_BYTES * len(consumer.selector))
        queue.consumer_rows.put(consumer.order, consumer)


def deadline(queue: Queue, consumer: Consumer) -> int:
    """When silence ends a consumer's attachment, or a lease of the window; 0: never (R12, R13).

    It does so only if the consumer was heard until then; see `end_silent` (R110).
    """
    if consumer.name == WINDOW:
        lease_ms, number = queue.spec.window_lease, min(consumer.positions, default=0)
        if not (lease_ms and number):
            return 0
        first: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        return first.handed_ms + lease_ms
    timeout_ms = queue.spec.consumer_timeout
    return consumer.seen_ms + timeout_ms if timeout_ms else 0


def end_silent(work: Work, queue: Queue, consumer: Consumer, heard: Heard, most: int) -> int:
    """Detach a silent consumer, or return overdue deliveries of the window (R12, R13, R110).

    Args:
        work: of the sweep.
        queue: the consumer's queue.
        consumer: it or, for its leases, the consumer of the window.
        heard: when consumers could be heard.
        most: how many leases to end.

    Returns:
        How many leases or consumers have ended.
    """
    if consumer.name != WINDOW:
        timeout_ms = queue.spec.consumer_timeout
        if not timeout_ms or not heard.covers(consumer.seen_ms, timeout_ms):
            return 0
        work.state.use(queue)
        expire(work, queue)
        stage = Stage(LEAVE, queue.name, (consumer.name, True))
        if not work.defers(stage):
            leave_stage(work, queue, stage)
        return 1
    lease_ms = queue.spec.window_lease
    if not lease_ms:
        return 0
    done = last = 0
    for number in sorted(consumer.positions)[: max(most, 1)]:
        held: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        if heard.covers(held.handed_ms, lease_ms):
            done, last = done + 1, number
    if done:
        work.state.use(queue)
        expire(work, queue)
        stage = Stage(LEASES, queue.name, (last,))
        if not work.defers(stage):
            leases_stage(work, queue, stage)
    return done
