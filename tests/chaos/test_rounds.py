"""A short version of `make chaos`: two rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import disasters
from tests.chaos.cluster import Cluster
from tests.chaos.rounds import run_round

pytestmark = pytest.mark.kafka

RATE = 1_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


async def test_workers_that_are_paused_and_wiped_change_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    chosen = [disasters.pause, disasters.kill_and_wipe]
    assert await run_round(tmp_path / "a", cluster, chosen, workers=2, seed=1, rate=RATE) == []


async def test_a_killed_broker_and_a_cut_off_worker_change_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    chosen = [disasters.kill_broker, disasters.cut_off]
    assert await run_round(tmp_path / "b", cluster, chosen, workers=2, seed=2, rate=RATE) == []
