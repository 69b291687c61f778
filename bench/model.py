"""What is measured: loads, the peers that carry them, and the figures that they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

Kind = Literal["evict", "cycle", "latency", "hold", "scheduled", "restart"]
"""How a load is measured; docs/performance.md describes each."""

Figures = Mapping[str, float]
"""By name, with the unit in the name: `per_second`, `worker_us`, `p50_ms` …"""


@dataclass(frozen=True, slots=True)
class Load:
    """One line of the results: what every peer is asked to do."""

    workload: str
    variant: str
    """Distinguishes the loads of a workload."""
    kind: Kind
    messages: int
    body_bytes: int = 200
    ring: int = 1_000
    """Messages that each ring keeps; -1: no limit."""
    rings: int = 1
    credit: int = 1_000
    ack_mode: str = "individual"
    consumers: int = 1
    work_ms: float = 0.0
    """How long a consumer works on each message."""
    selector: str = ""
    priorities: int = 1
    """Messages go round so many priority levels."""
    rate: int = 0
    """Messages a second; 0: as many as possible."""
    workers: int = 1
    ringfaust_only: bool = False
    """The setting has no counterpart elsewhere, such as an ack mode."""

    @property
    def title(self) -> str:
        """Workload and variant, for people."""
        return f"{self.workload}: {self.variant}" if self.variant else self.workload


WARM_UPS = (
    Load("warm-up", "evict", "evict", 300_000),
    Load("warm-up", "cycle", "cycle", 300_000, ring=-1),
)
"""What a broker carries before its first load: Java is fast once it has compiled what it does."""


class Peer(Protocol):
    """A system that carries loads. Its `with` block starts and stops what outlives a round."""

    name: str

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def carries(self, load: Load) -> bool:
        """Whether this peer can do what the load asks for."""
        ...

    def run(self, load: Load) -> Figures:
        """Carry the load once, from nothing, and leave nothing running but the broker."""
        ...
