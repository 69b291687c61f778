"""Help for tests and demos: Kafka in memory or embedded, the scenario runner, the accounts."""

from ringfaust.testing.memory.broker import MemoryBroker

__all__ = ["MemoryBroker"]
