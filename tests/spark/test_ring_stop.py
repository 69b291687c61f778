"""A ring job that is told to stop while one micro-batch follows the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.ring_rig import RINGS, Rig, check_evicted
from tests.spark.test_ring_kill import until

MESSAGES = 1_500
"""For each ring: sixty micro-batches, which follow without a pause."""


@pytest.mark.kafka
def test_told_to_stop_it_cuts_no_batch_off(broker: EmbeddedBroker, tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker.bootstrap_servers, "stopped")
    rig.attach()
    rig.send(0, MESSAGES)
    job = rig.job("--batch-records", "400", "--trigger-ms", "0")
    job.start()
    until(lambda: rig.count(Role.EVENTS) > 0, job)
    job.stop()
    assert rig.count(Role.EVICTED) < MESSAGES * RINGS / 2, "it did not stop but come to the end"

    rig.run_once()
    check_evicted(rig.read(Role.EVICTED), MESSAGES)  # none twice
