"""What time does: messages expire and come due, silent consumers and leases end (R12, R13, R32)."""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import Heard, Stage, time_of
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.attaching import deadline, end_silent
from ringfaust.core.transitions.entering import come_due_until
from ringfaust.core.transitions.leaving import expire_until
from ringfaust.core.transitions.opening import opened
from ringfaust.core.transitions.xids import end_overdue
from ringfaust.core.work import Work

SWEEP = "sweep"
"""A stage of a command (R114)."""


def sweep_stage(work: Work, stage: Stage) -> None:
    """Do what is due, until the transaction is full (R114).

    First distributed transactions, then queue by queue, the earliest first. The stage names the
    queue that it has begun with, and how many transitions may follow.
    """
    name, (budget, *times) = stage.queue, stage.args
    heard = Heard(*times)
    if not name:
        end_overdue(work, heard)
        if work.is_full:
            work.stages.append(stage)
            return
    while name or budget > 0:
        if name:
            queue = opened(work, name)
        elif (due := _next_due(work)) is not None:
            queue = due
            budget -= 1
        else:
            return
        work.state.use(queue)
        work.state.clear_wake(queue)
        budget -= expire_until(work, queue, budget)
        budget -= come_due_until(work, queue, budget)
        budget -= _end_silent(work, queue, heard, budget)
        if work.is_full:
            work.stages.append(Stage(SWEEP, queue.name, (budget, *times)))
            return
        _plan_next_wake(work, queue)
        name = ""


def _next_due(work: Work) -> Queue | None:
    """The queue that has to be swept first, or None if none has to be swept now."""
    while (key := work.state.wakes.first_key()) is not None and key[0] <= work.now:
        if key[1]:
            return opened(work, key[1])
        work.state.clear_wake_for_xids(key[0])
    return None


def _end_silent(work: Work, queue: Queue, heard: Heard, budget: int) -> int:
    """End what silence ends, until the transaction is full; how many (R12, R13)."""
    done = 0
    for consumer in list(queue.consumers.values()):
        if work.is_full:
            break
        done += end_silent(work, queue, consumer, heard, budget - done)
    return done


def _plan_next_wake(work: Work, queue: Queue) -> None:
    now = work.now
    deadlines = [deadline(queue, consumer) for consumer in queue.consumers.values()]
    # An overdue consumer that is still attached may have sent a heartbeat that has not been read
    # yet: look again, but not at once.
    times = [at if at > now else now + limits.UNHEARD_RECHECK_MS for at in deadlines if at]
    if times := [*times, *timers(queue)]:
        work.state.wake_by(queue, min(times))


def timers(queue: Queue) -> list[int]:
    """When its next message expires, and when its next one comes due."""
    is_timed = not queue.policy.expires_when_met
    tables = (queue.expiry, queue.scheduled) if is_timed else (queue.scheduled,)
    keys = [each.first_key() for each in tables]
    times = [0 if key is None else time_of(key) for key in keys]
    return [at for at in times if at]
