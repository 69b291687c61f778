"""Help for tests and demos: Kafka in memory or embedded, the scenario runner, the accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfaust.testing.memory.broker import MemoryBroker

__all__ = ["MemoryBroker"]


def __getattr__(name: str) -> Any:
    """Import it when it is used: pytest loads this package for its plugin, in every project."""
    if name != "MemoryBroker":
        raise AttributeError(name)
    from ringfaust.testing.memory.broker import MemoryBroker  # noqa: PLC0415

    return MemoryBroker
