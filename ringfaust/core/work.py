"""The work on one command in one transaction: its time, its effects, and what is left of it."""

from __future__ import annotations

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.model import Looked, Stage, Unfinished
from ringfaust.core.queue import Queue
from ringfaust.core.state import State


class Work:
    """What every change needs: the state, the time, and where to put its effects.

    The engine has one, and starts afresh with each command.
    """

    def __init__(self, state: State, most_transitions: int) -> None:
        """`most_transitions`: messages that fit into one transaction (R114)."""
        self.state = state
        self.now = state.now_ms
        """Time of the step."""
        self.effects: list[e.Effect] = []
        """The effects so far."""
        self.stages: list[Stage] = []
        """What the command has not done yet, in order."""
        self.to_auto_delete: list[Queue] = []
        """Non-durable queues whose last consumer has left in this step (R70)."""
        self.most_transitions = most_transitions
        """Messages that fit into one transaction (R114)."""
        self.most_bytes = limits.STEP_BYTES
        """Bytes of messages that fit into one transaction (R114)."""
        self.left_transitions = self.left_bytes = 0
        """What is left of that."""
        self.checked = 0
        """Up to which delivery of a returning set all are known to return (C2)."""
        self.looked: Looked | None = None
        """How far the look for lost bodies has come; None: it is over (R82)."""
        self._before_ms = state.now_ms
        """Time before the step, to go back to if a search finds nothing."""
        self._has_prepared = False
        """Whether this step has kept something that was to be done before its command."""

    # --- the course of a step --------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Begin with a command that may still be refused. Time never goes back."""
        self.left_transitions, self.left_bytes = self.most_transitions, self.most_bytes
        self.state.rows_cost = 0
        self._before_ms = before_ms = self.state.now_ms
        self.now = now_ms if now_ms > before_ms else before_ms
        self._has_prepared = False
        self.checked = 0
        self.effects = []

    def accept(self) -> None:
        """Take the number and the time of the step: its command is not refused any more."""
        self.state.step += 1
        self.state.now_ms = self.now

    def keep(self) -> None:
        """Keep what follows, even if the command is refused: it is a step of its own.

        While a command continues, it belongs to that step (R82).
        """
        self._has_prepared, self._before_ms = True, self.now
        if (unfinished := self.state.unfinished) is None:
            self.accept()
        else:
            self.state.unfinished = unfinished._replace(is_split=True, before_ms=self.now)

    def go_on(self, unfinished: Unfinished) -> None:
        """Continue a step in the next transaction, at the same time and number (R114)."""
        self.left_transitions, self.left_bytes = self.most_transitions, self.most_bytes
        self.state.rows_cost = 0
        self.now, self._before_ms = self.state.now_ms, unfinished.before_ms
        self._has_prepared = unfinished.is_split
        self.checked = unfinished.checked
        self.effects = []

    def give_back(self) -> None:
        """Give back the number and the time: a check in its turn has refused the rest."""
        if not self._has_prepared:
            self.state.step -= 1
        self.state.now_ms = self._before_ms

    def end(
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
        state.unfinished = Unfinished(
            stages, queue, self._before_ms, self._has_prepared, context, kept, self.checked
        )
        return None

    # --- large commands --------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether this transaction has room for another message (R114)."""
        return self.left_transitions > 0 and self.left_bytes > self.state.rows_cost

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be done in this transaction (R114)."""
        return bool(self.stages) or not self.has_room

    def spend(self, size_bytes: int) -> None:
        """Count one message that was changed or looked at."""
        self.left_transitions -= 1
        self.left_bytes -= size_bytes

    def weigh(self, size_bytes: int) -> None:
        """Count what takes as much time as so many bytes of messages (R121)."""
        self.left_bytes -= size_bytes

    def defers(self, stage: Stage) -> bool:
        """Leave a stage to the next transaction, unless it can be performed in this one (R114)."""
        if self.is_full:
            self.stages.append(stage)
            return True
        return False
