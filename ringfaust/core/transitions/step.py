"""The step in progress: its time, its effects, and the queues it works on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.model import Stage, Unfinished
from ringfaust.core.queue import Queue
from ringfaust.core.state import State
from ringfaust.core.transitions import queues


class StepInProgress:
    """What all transitions share: the state, and the step that is being executed."""

    def __init__(self, state: State, find: Callable[[str], Queue], most_transitions: int) -> None:
        """Begin with the stored state.

        Args:
            state: of the partition.
            find: loads and checks a queue that is not decoded yet, or refuses.
            most_transitions: messages that fit into one transaction (R114).
        """
        self.state = state
        self.now = state.now_ms
        """Time of the step."""
        self.before_ms = state.now_ms
        """Time before the step, to go back to if its command is refused."""
        self.is_split = False
        """Whether `split_step` was called in this step."""
        self.is_split_before_cut = False
        """Whether that was in an earlier transaction: then the number of the step is in use."""
        self.out: list[e.Effect] = []
        """The effects so far."""
        self.most_transitions = most_transitions
        self.most_bytes = limits.STEP_BYTES
        """Both: what fits into one transaction (R114)."""
        self.left_transitions = self.left_bytes = 0
        """What is left of that."""
        self.stages: list[Stage] = []
        """What the command has not done yet, in order."""
        self.functions: dict[str, Callable[[Stage], None]] = {}
        """What does a stage, by its kind; what is left of it, it adds to `stages`."""
        self._find = find

    def begin_step(self, now_ms: int) -> list[e.Effect]:
        """Begin a step; its effects are added to the returned list. Time never goes back."""
        state = self.state
        self.left_transitions, self.left_bytes = self.most_transitions, self.most_bytes
        self.before_ms = before_ms = state.now_ms
        state.now_ms = self.now = now_ms if now_ms > before_ms else before_ms
        state.step += 1
        self.is_split = self.is_split_before_cut = False
        self.out = []
        return self.out

    def continue_step(self, unfinished: Unfinished) -> list[e.Effect]:
        """Go on with a step in the next transaction, at the same time and number (R114)."""
        self.left_transitions, self.left_bytes = self.most_transitions, self.most_bytes
        self.now, self.before_ms = self.state.now_ms, unfinished.before_ms
        self.is_split = self.is_split_before_cut = unfinished.is_split
        self.out = []
        return self.out

    def end_step(
        self, queue: str, context: tuple[str, ...], refusal: e.Refused | None
    ) -> e.Refused | None:
        """Keep what is left of the step, with what its end has to know (R114).

        Returns:
            The refusal of the command; None as long as something is left: it comes last.
        """
        state, stages = self.state, tuple(self.stages)
        if not stages:
            state.unfinished = None
            return refusal
        self.stages = []
        kept = (refusal.queue, refusal.reason, refusal.about, refusal.text) if refusal else ()
        state.unfinished = Unfinished(stages, queue, self.before_ms, self.is_split, context, kept)
        return None

    # --- large commands --------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether this transaction has room for another message (R114)."""
        return self.left_transitions > 0 and self.left_bytes > 0

    def spend(self, size_bytes: int) -> None:
        """Count one message that was changed or looked at."""
        self.left_transitions -= 1
        self.left_bytes -= size_bytes

    def perform_all(self, stages: Iterable[Stage]) -> None:
        """Do what is left of a step, until the transaction is full."""
        for stage in stages:
            self.perform(stage)

    def perform(self, stage: Stage) -> None:
        """Do a stage of the command: now, or in its turn if something is left before it."""
        if self.stages or not self.has_room:
            self.stages.append(stage)
        else:
            self.functions[stage.kind](stage)

    def undo_step(self) -> None:
        """Take back the number and the time of a step that has changed nothing (R103)."""
        # Nothing of such a step becomes durable, so nothing of it may stay in memory either.
        if not self.is_split_before_cut:
            self.state.step -= 1
        self.state.now_ms = self.before_ms

    def split_step(self) -> None:
        """Keep what follows, even if the command is refused: it is a step of its own."""
        if self.state.unfinished is not None:  # a crash took bodies while the command was cut (R82)
            self.is_split = self.is_split_before_cut = True
            return
        self.state.step += 1
        self.before_ms = self.now
        self.is_split = True

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
