"""A ring job that is told to stop while one micro-batch follows the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.app.broker import EmbeddedBroker
from ringfaust.wire.record import Role
from tests.spark.ring_rig import RINGS, Rig
from tests.spark.test_ring_kill import until

MESSAGES = 3_000
"""For each ring: some hundred micro-batches, which follow without a pause."""


@pytest.mark.kafka
def test_told_to_stop_it_ends_with_a_batch_that_is_done(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, broker.bootstrap_servers, "stopped")
    rig.send(0, MESSAGES)
    job = rig.job("--batch-records", "400", "--trigger-ms", "0")
    job.start()
    until(lambda: rig.count(Role.EVENTS) > 0, job)
    job.stop()

    begun, done = (_numbers(tmp_path / "checkpoint" / name) for name in ("offsets", "commits"))
    assert begun == done != []
    assert rig.count(Role.EVICTED) < MESSAGES * RINGS / 2, "it did not stop but come to the end"
    log = (tmp_path / "job.log").read_text()
    assert "Traceback" not in log


def _numbers(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
