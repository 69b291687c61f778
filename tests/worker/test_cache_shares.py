"""The partitions of a worker share its cache, and processes share what one worker has."""

from __future__ import annotations

from pathlib import Path

import pytest
from faust.types import TP

from ringfaust.config import ConfigError, QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.worker.app import create_app
from ringfaust.worker.assignment import Assignment
from ringfaust.worker.partition.task import Task
from ringfaust.worker.processes import run_processes

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


def test_processes_whose_share_would_be_too_small_are_not_started(tmp_path: Path) -> None:
    worker = WorkerConfig(data_dir=tmp_path, memory_bytes=64 * MIB)
    with pytest.raises(ConfigError, match=r"shared by 2 processes, .*\n  memory_bytes"):
        run_processes(2, worker, [], None)
