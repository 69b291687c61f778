"""The memory host: one partition without Kafka, for tests, the README and what-if questions."""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.commands import Command, Start
from ringfaust.core.engine import Engine, Step
from ringfaust.core.state import State
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.stored_rows import encode_writes, without_bodies

CACHE_BYTES = 64 * 1024 * 1024


class MemoryHost:
    """One partition in memory. Each command is committed to a changelog and a store of its own."""

    def __init__(self, catalog: Catalog, step_transitions: int = limits.STEP_TRANSITIONS) -> None:
        """`step_transitions`: messages that a command may touch in one transaction (R114)."""
        self._changelog = MemoryKeyValue()
        self._catalog = catalog
        self._step_transitions = step_transitions
        self.crash()

    def crash(self) -> Step:
        """Lose everything except the changelog, and start again from it."""
        self._store = MemoryKeyValue()
        self._store.apply(self._changelog.items_from(b""))
        self.state = State(ByteStore(self._store), self._catalog)
        self.engine = Engine(self.state, self._step_transitions)
        return self.look().followed_by(self.step(Start(), self.state.now_ms))

    def look(self) -> Step:
        """Drop what a crash has taken (R82)."""
        return self._finish(self.engine.look())

    def step(self, command: Command, now_ms: int) -> Step:
        """Execute one command, in as many transactions as it needs (R114)."""
        return self._finish(self.engine.begin(command, now_ms))

    def _finish(self, step: Step) -> Step:
        self._commit()
        while self.engine.is_unfinished:
            step = step.followed_by(self.engine.go_on())
            self._commit()
        return step

    def _commit(self) -> None:
        writes = encode_writes(self.state.writes())
        self._store.apply(writes)
        self._changelog.apply(without_bodies(writes))
        self.state.committed(CACHE_BYTES)
