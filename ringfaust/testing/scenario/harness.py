"""Scenarios on a real broker: one worker or job plays many files, each in a partition of its own.

Files that are played side by side share the crashes of the process: see `crashes`. They use the
public protocol only: see `kafka`.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from ringfaust.config import WorkerConfig
from ringfaust.testing.process import Process
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.crashes import SharedCrashes
from ringfaust.testing.scenario.kafka import KafkaScenarioHost
from ringfaust.testing.scenario.partition import ScenarioPartition, open_partitions, prepare
from ringfaust.testing.scenario.player import play

PARALLEL_FILES = 16
"""The number of files that the scenario command plays side by side."""


class KafkaHarness:
    """Starts a broker and a process for the first file, and plays all files on them.

    Args:
        bootstrap_servers: the brokers to use; None starts one.
        parallel_files: the number of partitions, and of files that are played side by side.
    """

    folder: Path
    """Has the configuration, from the start on."""
    _process: Process
    _config: WorkerConfig

    def __init__(self, bootstrap_servers: str | None, parallel_files: int) -> None:
        self.parallel_files = parallel_files
        self._servers = bootstrap_servers
        self._opened = ExitStack()
        self._opening = Lock()
        self._partitions: list[ScenarioPartition] = []
        self._free: SimpleQueue[ScenarioPartition] = SimpleQueue()
        self._files = 0

    def open(self) -> None:
        """Start the broker and the process, unless they are started.

        Raises:
            WorkerFailed: the process did not start; the text ends with its log.
        """
        with self._opening:
            if self._partitions:
                return
            try:
                self._partitions = self._start()
            except BaseException:
                self._opened.close()
                raise
            for partition in self._partitions:
                self._free.put(partition)

    def close(self) -> None:
        """Stop what was started, and delete its topics and files."""
        self._opened.close()
        self._partitions = []

    def play(self, scenario: g.Scenario) -> None:
        """Play a scenario. Up to `parallel_files` threads may call this at once.

        Raises:
            Difference: an expectation does not hold.
        """
        self.open()
        partition = self._free.get()
        try:
            with self._crashes.register(scenario):
                play(scenario, self.host_on(partition))
        finally:
            self._free.put(partition)

    def host_on(self, partition: ScenarioPartition) -> KafkaScenarioHost:
        """Return a host for the next file."""
        self._files += 1
        return KafkaScenarioHost(partition, f"file-{self._files}.")

    def _start(self) -> list[ScenarioPartition]:
        opened = self._opened
        self.folder, self._config, queues = prepare(opened, self._servers, self.parallel_files)
        self._process = process = self._new_process()
        opened.callback(process.stop)
        self._crashes = SharedCrashes(self._restart)
        partitions = open_partitions(
            opened, self._config, queues, process,
            crash=self._crashes.crash, count=self.parallel_files,
        )  # fmt: skip
        process.start()
        return partitions

    def _restart(self) -> None:
        with self._process.restarting():
            self._while_down()

    def _new_process(self) -> Process:
        """Return what plays the files, with the configuration in `folder`."""
        raise NotImplementedError

    def _while_down(self) -> None:
        """Do what comes between a kill and the next start."""
