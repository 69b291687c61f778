"""Scenarios on the Spark host: one job plays many files at once.

Every step takes a micro-batch, however small it is, so files are played side by side.
"""

from __future__ import annotations

from ringfaust.testing.process import Process
from ringfaust.testing.scenario.harness import PARALLEL_FILES, KafkaHarness

_TASKS = 2


class SparkHarness(KafkaHarness):
    """Plays files on a job.

    Args:
        bootstrap_servers: the brokers to use; None starts one.
    """

    def __init__(self, bootstrap_servers: str | None) -> None:
        super().__init__(bootstrap_servers, PARALLEL_FILES)

    def _new_process(self) -> Process:
        folder = self.folder
        arguments = [
            "spark", "ring", "--config", str(folder), "--checkpoint", str(folder / "checkpoint"),
            "--trigger-ms", "0", "--tasks", str(_TASKS),
        ]  # fmt: skip
        return Process(arguments, folder / "job.log")
