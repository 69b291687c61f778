"""The step in progress: its time, its effects, and the queues it works on."""

from __future__ import annotations

from collections.abc import Callable

from ringfaust.core import effects as e
from ringfaust.core.queue import Queue
from ringfaust.core.state import State
from ringfaust.core.transitions import queues


class StepInProgress:
    """What all transitions share: the state, and the step that is being executed."""

    def __init__(self, state: State, find: Callable[[str], Queue]) -> None:
        """`find`: loads and checks a queue that is not decoded yet, or refuses."""
        self.state = state
        self.now = state.now_ms
        """Time of the step."""
        self.before_ms = state.now_ms
        """Time before the step, to go back to if its command is refused."""
        self.out: list[e.Effect] = []
        """The effects so far."""
        self._find = find

    def begin_step(self, now_ms: int) -> list[e.Effect]:
        """Begin a step; its effects are added to the returned list. Time never goes back."""
        state = self.state
        self.before_ms = before_ms = state.now_ms
        state.now_ms = self.now = now_ms if now_ms > before_ms else before_ms
        state.step += 1
        self.out = []
        return self.out

    def undo_step(self) -> None:
        """Take back the number and the time of a step that has changed nothing (R103)."""
        # Nothing of such a step becomes durable, so nothing of it may stay in memory either.
        self.state.step -= 1
        self.state.now_ms = self.before_ms

    def split_step(self) -> None:
        """Keep what follows, even if the command is refused: it is a step of its own."""
        self.state.step += 1
        self.before_ms = self.now

    def advance(self, now_ms: int) -> None:
        """Move the time of an idle partition forward."""
        state = self.state
        state.now_ms = max(now_ms, state.now_ms)
        state.clock_rows.put(0, state.clock())

    def queue(self, name: str) -> Queue:
        """The queue of that name.

        Raises:
            CommandRefused: there is none.
        """
        queue = self.state.queues.get(name)
        return self._find(name) if queue is None or queue.applied is not None else queue

    def wake_by(self, queue: Queue, at_ms: int) -> None:
        """Have the queue swept at that time at the latest."""
        queues.wake_by(self.state, queue, at_ms)
