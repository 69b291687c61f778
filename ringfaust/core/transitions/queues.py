"""Creates, configures, pauses and deletes queues, and plans when each is swept next."""

from __future__ import annotations

from collections.abc import Mapping

from ringfaust.core.queue import Queue
from ringfaust.core.settings import QueueSpec
from ringfaust.core.state import State
from ringfaust.core.transitions import groups, history


def configure(queue: Queue, settings: dict[str, object], spec: QueueSpec) -> None:
    """Apply new settings (R90). `settings`: those set at runtime, all of which `spec` contains."""
    queue.settings = settings
    queue.use_spec(spec)


def mark_checked(queue: Queue) -> Mapping[str, object]:
    """Record that the queue was checked since it was decoded; what it was set to when stored."""
    applied, queue.applied = queue.applied or {}, None
    return applied


def pause(queue: Queue, what: str) -> None:
    """Stop pulling or dispatch (R90)."""
    queue.paused.add(what)


def resume(queue: Queue, what: str) -> None:
    """Resume pulling or dispatch (R90)."""
    queue.paused.discard(what)


def wake_by(state: State, queue: Queue, at_ms: int) -> None:
    """Have the queue swept at that time at the latest."""
    if queue.wake_ms:
        if queue.wake_ms <= at_ms:
            return
        state.wakes.delete((queue.wake_ms, queue.name))
    queue.wake_ms = at_ms
    state.wakes.put_new((at_ms, queue.name), True)


def clear_wake(state: State, queue: Queue) -> None:
    """Cancel the queue's next sweep."""
    if queue.wake_ms:
        state.wakes.delete((queue.wake_ms, queue.name))
        queue.wake_ms = 0


def delete(state: State, queue: Queue) -> None:
    """Remove an emptied queue and what is remembered about its consumers (R90)."""
    history.erase(queue.history)
    groups.erase(queue)
    state.queue_rows.delete(queue.name)
    state.drop(queue)
