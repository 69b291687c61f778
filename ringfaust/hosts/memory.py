"""The memory host: a partition without Kafka. For tests, the README and what-if questions."""

from __future__ import annotations

from ringfaust.core.catalog import Catalog
from ringfaust.core.command import Command
from ringfaust.core.effect import Effect
from ringfaust.core.engine import Engine
from ringfaust.core.state import State
from ringfaust.hosts.store import ByteStore, MemoryKeyValue, encode_writes

CACHE_BYTES = 64 * 1024 * 1024


class MemoryHost:
    """One partition whose durable part is a sorted map in memory. Each command is a commit."""

    def __init__(self, catalog: Catalog) -> None:
        self.durable = MemoryKeyValue()
        self._catalog = catalog
        self.crash()

    def crash(self) -> None:
        """Lose all that is not durable, and start again from what is."""
        self.state = State(ByteStore(self.durable), self._catalog)
        self.engine = Engine(self.state)

    def step(self, command: Command, now_ms: int) -> list[Effect]:
        """Do one command; what happened, in order."""
        effects = self.engine.step(command, now_ms)
        self.durable.apply(encode_writes(self.state.writes()))
        self.state.settle(CACHE_BYTES)
        return effects
