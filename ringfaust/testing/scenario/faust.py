"""Scenarios on the Faust host: a real worker process on a real broker.

They use the public protocol only; see `kafka`. With several partitions, as many files are played
side by side and share the worker's crashes: see `crashes`.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import ExitStack
from queue import SimpleQueue
from threading import Lock

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest

from ringfaust.testing.process import WorkerProcess
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
"""The number of files that the scenario command plays side by side."""


class FaustHarness:
    """Starts a broker and a worker for the first file, and plays all files on them.

    Args:
        bootstrap_servers: the brokers to use; None starts one.
        lose_state: whether the worker also loses its RocksDB folder at each crash.
        parallel_files: the number of partitions, and of files that are played side by side.
    """

    capabilities: frozenset[str] = frozenset()

    def __init__(
        self, bootstrap_servers: str | None, lose_state: bool = False, parallel_files: int = 1
    ) -> None:
        self.parallel_files = parallel_files
        self._servers = bootstrap_servers
        self._lose_state = lose_state
        self._opened = ExitStack()
        self._opening = Lock()
        self._partitions: list[ScenarioPartition] = []
        self._free: SimpleQueue[ScenarioPartition] = SimpleQueue()
        self._files = 0

    def host(self) -> KafkaScenarioHost:
        """Return a host for the next file; starts the worker if it is the first one.

        All hosts play on the first partition, one after the other.

        Raises:
            WorkerFailed: the worker did not start; the text ends with its log.
        """
        self._open()
        return self._host_on(self._partitions[0])

    def stop_worker(self) -> None:
        """Stop the worker. The topics stay until `close`."""
        self._worker.stop()

    def close(self) -> None:
        """Stop what was started, and delete its topics and files."""
        self._opened.close()
        self._partitions = []

    def play(self, scenario: g.Scenario) -> None:
        """Play a scenario. Up to `parallel_files` threads may call this at once.

        Raises:
            Difference: an expectation does not hold.
        """
        self._open()
        partition = self._free.get()
        try:
            with self._crashes.register(scenario):
                play(scenario, self._host_on(partition))
        finally:
            self._free.put(partition)

    def _host_on(self, partition: ScenarioPartition) -> KafkaScenarioHost:
        self._files += 1
        return KafkaScenarioHost(partition, f"file-{self._files}.")

    def _open(self) -> None:
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

    def _start(self) -> list[ScenarioPartition]:
        opened = self._opened
        self.folder, config, queues = prepare(opened, self._servers, self.parallel_files)
        self._worker = worker = WorkerProcess(self.folder, self.folder / "worker.log")
        opened.callback(worker.stop)

        def restart() -> None:
            with worker.restarting():
                asyncio.run(remove_members(config.bootstrap_servers, config.application))
                if self._lose_state:
                    shutil.rmtree(config.data_dir)

        self._crashes = SharedCrashes(restart)
        partitions = open_partitions(
            opened,
            config,
            queues,
            worker,
            crash=self._crashes.crash,
            count=self.parallel_files,
        )
        worker.start()
        for partition in partitions:
            partition.await_worker()
        return partitions


async def remove_members(bootstrap_servers: str, group: str) -> None:
    """Remove all present members of a group, as an operator may after a worker has died.

    Otherwise the brokers reassign its partitions only after its session has timed out.

    Raises:
        KafkaError: a broker failed or refused to remove a member.
    """
    client = AIOKafkaClient(bootstrap_servers=bootstrap_servers)
    try:
        await client.bootstrap()
        coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(coordinator, DescribeGroupsRequest([group], False))
        for described in answer.to_object()["groups"]:
            for member in described["members"]:
                request = LeaveGroupRequest(group, member["member_id"])
                left = await client.send(coordinator, request)
                if left.error_code:
                    raise for_code(left.error_code)
    finally:
        await client.close()
