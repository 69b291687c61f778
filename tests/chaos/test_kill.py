"""A short version of `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos import plots
from tests.chaos.rounds import play

pytestmark = pytest.mark.kafka


async def test_killed_wiped_and_stopped_under_load(broker: EmbeddedBroker, tmp_path: Path) -> None:
    disasters = [plots.kill, plots.kill_and_wipe, plots.terminate]
    assert await play(tmp_path / "one", broker, disasters, workers=1, seed=1, rate=3_000) == []


async def test_one_of_two_is_a_zombie(broker: EmbeddedBroker, tmp_path: Path) -> None:
    assert await play(tmp_path / "two", broker, [plots.zombie], workers=2, seed=2, rate=2_000) == []
