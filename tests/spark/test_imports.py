"""What the driver and the executors of a Spark job import."""

from __future__ import annotations

import subprocess
import sys

DRIVER = ("ringfaust.spark.ring.command", "ringfaust.spark.lake.command")
EXECUTOR = ("ringfaust.protocol.partitioner", "ringfaust.spark.ring.operator")
"""What tasks of the ring load. Those of the lake run no Python."""


def imported(modules: tuple[str, ...], unwanted: str) -> list[str]:
    """The modules of the library `unwanted` that a new Python imports together with `modules`."""
    code = (
        f"import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(*(name for name in sys.modules if name.partition('.')[0] == {unwanted!r}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    return result.stdout.split()


def test_the_tasks_that_write_to_kafka_need_aiokafka() -> None:
    """docs/architecture.md says so, and docs/spark.md what to install on executors."""
    for module in ("ringfaust.spark.ring.operator", "ringfaust.spark.backfill.write"):
        assert imported((module,), "aiokafka") != []


def test_a_driver_does_not_import_faust() -> None:
    assert imported(DRIVER, "faust") == []


def test_executors_of_the_ring_do_not_import_faust() -> None:
    assert imported(EXECUTOR, "faust") == []
