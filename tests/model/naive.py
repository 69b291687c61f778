"""A naive model of one partition, written from the contract and not from the engine.

It shares with the engine only the nouns: commands, settings, reasons. What the contract leaves
open it leaves open too, and the test takes it over from the engine: the order of effects of
different queues, and with it the numbers of deliveries of different queues in one step; which
bodies a crash took; and in which step the queue counts these as lost.
"""

from __future__ import annotations

from ringfaust.core import commands as c
from tests.model.naive_operator import Operating
from tests.model.naive_parts import Fact, Refuse


class Model(Operating):
    """One partition. `step` takes a command and a time and gives the facts, in order."""

    def step(self, command: c.Command, now_ms: int) -> list[Fact]:
        self.before, self.now = self.now, max(self.now, now_ms)
        self.facts = []
        self.given = []
        self.apart = 0
        if isinstance(command, c.Start):
            self.miss()
        try:
            getattr(self, "on_" + type(command).__name__)(command)
        except Refuse as refusal:
            self.now = self.before
            assert len(self.facts) == self.apart, "a refusal must come before any change"
            self.facts.append(("refused", getattr(command, "queue", ""), *refusal.args))
        if isinstance(command, c.Start | c.Sweep) and not self.facts:
            self.now = self.before  # there was nothing to do
        return self.facts

    def miss(self) -> None:
        """All that waits without a body is gone (R82)."""
        for q in self.queues.values():
            for m in [m for m in q.waiting() if m.is_bodyless]:
                self.lose(q, m)
        self.step_apart()

    def crash(self, bodyless: set[tuple[str, int]]) -> None:
        """`bodyless`: (queue, sequence) of the messages whose bodies are lost."""
        for q in self.queues.values():
            for m in q.everything():
                if (q.name, m.sequence) in bodyless:
                    assert not m.persistent
                    m.is_bodyless = True
                    bodyless.discard((q.name, m.sequence))
        assert not bodyless
