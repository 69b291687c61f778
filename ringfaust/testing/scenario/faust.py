"""Scenarios on the Faust host: a real worker process with one partition, on a real broker.

They use the public protocol only; see `kafka`.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import ExitStack

from ringfaust.testing.process import WorkerProcess
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.channel import WorkerChannel
from ringfaust.testing.scenario.kafka import KafkaScenarioHost
from ringfaust.testing.scenario.loop_thread import LoopThread
from ringfaust.testing.scenario.membership import remove_members
from ringfaust.testing.scenario.partition import ScenarioPartition, open_channel, prepare
from ringfaust.testing.scenario.player import play


class FaustHarness:
    """Starts a broker and a worker for the first file, and plays all files on them.

    Args:
        bootstrap_servers: the brokers to use; None starts one.
        lose_state: whether the worker also loses its RocksDB folder at each crash.
    """

    capabilities: frozenset[str] = frozenset()
    parallel_files = 1

    def __init__(self, bootstrap_servers: str | None, lose_state: bool = False) -> None:
        self._servers = bootstrap_servers
        self._lose_state = lose_state
        self._opened = ExitStack()
        self._partition: ScenarioPartition | None = None
        self._files = 0

    def host(self) -> KafkaScenarioHost:
        """Return a host for the next file; starts the worker if it is the first one.

        Raises:
            WorkerFailed: the worker did not start; the text ends with its log.
        """
        if self._partition is None:
            try:
                self._partition = self._open()
            except BaseException:
                self._opened.close()
                raise
        self._files += 1
        return KafkaScenarioHost(self._partition, f"file-{self._files}.")

    def close(self) -> None:
        """Stop what was started, and delete its topics and files."""
        self._opened.close()
        self._partition = None

    def play(self, scenario: g.Scenario) -> None:
        """Play a scenario.

        Raises:
            Difference: an expectation does not hold.
        """
        play(scenario, self.host())

    def _open(self) -> ScenarioPartition:
        opened = self._opened
        self.folder, config, queues = prepare(opened, self._servers, partitions=1)
        worker = WorkerProcess(self.folder, self.folder / "worker.log")
        opened.callback(worker.stop)

        def crash() -> None:
            worker.kill()
            asyncio.run(remove_members(config.bootstrap_servers, config.application))
            if self._lose_state:
                shutil.rmtree(config.data_dir)
            worker.start()

        loop = opened.enter_context(LoopThread())
        channel = open_channel(
            opened,
            loop,
            lambda: WorkerChannel(config.bootstrap_servers, config.application, worker),
        )
        partition = ScenarioPartition(loop, channel, config, queues, crash)
        worker.start()
        partition.await_worker()
        return partition
