"""Scenarios on the Spark host: one job plays many files at once, each in a partition of its own.

Every step takes a micro-batch, however small it is, so files are played side by side. They use the
public protocol only (see `kafka`).

A crash kills the job that all files share: see `crashes`.
"""

from __future__ import annotations

from contextlib import ExitStack
from queue import SimpleQueue

from ringfaust.testing.process import Process
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.crashes import SharedCrashes
from ringfaust.testing.scenario.kafka import KafkaScenarioHost
from ringfaust.testing.scenario.partition import (
    ScenarioPartition,
    open_partitions,
    prepare,
)
from ringfaust.testing.scenario.player import play

PARALLEL_FILES = 16
"""The number of partitions, and of files that are played side by side."""
_TASKS = 2


class SparkHarness:
    """Starts a broker and a job, and plays all files on them.

    Args:
        bootstrap_servers: the brokers to use; None starts one.
    """

    capabilities: frozenset[str] = frozenset()
    parallel_files = PARALLEL_FILES

    def __init__(self, bootstrap_servers: str | None) -> None:
        self._servers = bootstrap_servers
        self._opened = ExitStack()
        self._free: SimpleQueue[ScenarioPartition] = SimpleQueue()
        self._files = 0

    def open(self) -> None:
        """Start the broker and the job.

        Raises:
            WorkerFailed: the job did not start; the text ends with its log.
        """
        try:
            self._open()
        except BaseException:
            self._opened.close()
            raise

    def close(self) -> None:
        """Stop what was started, and delete its topics and files."""
        self._opened.close()

    def play(self, scenario: g.Scenario) -> None:
        """Play a scenario. Up to `parallel_files` threads may call this at once.

        Raises:
            Difference: an expectation does not hold.
        """
        partition = self._free.get()
        self._files += 1
        try:
            with self._crashes.register(scenario):
                play(scenario, KafkaScenarioHost(partition, f"file-{self._files}."))
        finally:
            self._free.put(partition)

    def _open(self) -> None:
        opened = self._opened
        folder, config, queues = prepare(opened, self._servers, PARALLEL_FILES)
        arguments = [
            "spark", "ring", "--config", str(folder), "--checkpoint", str(folder / "checkpoint"),
            "--trigger-ms", "0", "--tasks", str(_TASKS),
        ]  # fmt: skip
        job = Process(arguments, folder / "job.log")
        opened.callback(job.stop)

        def restart() -> None:
            with job.restarting():
                pass

        self._crashes = SharedCrashes(restart)
        job.start()
        crash = self._crashes.crash
        for partition in open_partitions(
            opened, config, queues, job, crash=crash, count=PARALLEL_FILES
        ):
            self._free.put(partition)
