"""The partitions of a worker share its cache."""

from __future__ import annotations

from pathlib import Path

from faust.types import TP

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.worker.app import create_app
from ringfaust.worker.assignment import Assignment
from ringfaust.worker.partition.task import Task

MIB = 1 << 20


def test_partitions_that_are_served_share_half_of_the_cache(tmp_path: Path) -> None:
    """Those that other workers serve, or other processes of `--processes`, take nothing."""
    worker = WorkerConfig(data_dir=tmp_path, partitions=8, cache_bytes=8 * MIB)
    assignment = create_app(worker, InUse(QueuesConfig(), QueuesConfig())).listener
    assert isinstance(assignment, Assignment)
    share = assignment._context.cache_bytes
    assert share() == 4 * MIB
    for number in range(4):
        assignment._tasks[TP("control", number)] = Task.__new__(Task)
    assert share() == MIB
