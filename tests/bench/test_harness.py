"""The benchmark runs: every workload of ringfaust and the copy, with few messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import chosen, measure

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_evict_and_cycle_give_figures_for_every_peer_on_kafka(tmp_path: Path) -> None:
    loads = chosen("evict,cycle", 0.03)  # enough for ticks of 10 ms
    path = tmp_path / "results.json"
    results = measure(
        loads, ["ringfaust", "aiokafka copy", "Faust idiom"], 1, path, Console(quiet=True)
    )
    assert results.loads() == loads
    for line in results.lines:
        (figures,) = line.rounds
        assert figures["per_second"] > 0
        assert figures["worker_us"] > 0
    assert path.exists()
