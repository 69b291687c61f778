"""A short version of `make chaos`.

The scenarios with a crash also kill a real worker, with and without its disk, but not under load.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos import disasters
from tests.chaos.rounds import run_round

pytestmark = pytest.mark.kafka


@pytest.mark.slow
async def test_a_worker_killed_wiped_and_stopped_under_load_loses_nothing(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    chosen = [disasters.kill, disasters.kill_and_wipe, disasters.terminate]
    assert await run_round(tmp_path / "one", broker, chosen, workers=1, seed=1, rate=3_000) == []


async def test_a_zombie_beside_another_worker_changes_nothing(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    assert (
        await run_round(tmp_path / "two", broker, [disasters.zombie], workers=2, seed=2, rate=2_000)
        == []
    )
