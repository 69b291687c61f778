"""A short version of `make chaos`: one round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import disasters
from tests.chaos.cluster import Cluster
from tests.chaos.rounds import run_round

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

CHOSEN = (disasters.pause, disasters.kill_and_wipe, disasters.kill_broker, disasters.cut_off)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


async def test_workers_and_brokers_that_fail_change_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Workers are paused, wiped and cut off, and a broker is killed."""
    assert await run_round(tmp_path / "a", cluster, CHOSEN, workers=2, seed=1) == []
