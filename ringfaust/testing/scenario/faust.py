"""Scenarios on the Faust host: a real worker process on a real broker."""

from __future__ import annotations

import asyncio
import shutil

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest

from ringfaust.testing.process import Process, WorkerProcess
from ringfaust.testing.scenario.harness import KafkaHarness
from ringfaust.testing.scenario.kafka import KafkaScenarioHost
from ringfaust.testing.scenario.partition import ScenarioPartition


class FaustHarness(KafkaHarness):
    """Plays files on a worker.

    Args:
        bootstrap_servers: the brokers to use; None starts one.
        lose_state: whether the worker also loses its RocksDB folder at each crash.
        parallel_files: the number of partitions, and of files that are played side by side.
    """

    def __init__(
        self, bootstrap_servers: str | None, lose_state: bool = False, parallel_files: int = 1
    ) -> None:
        super().__init__(bootstrap_servers, parallel_files)
        self._lose_state = lose_state

    def host(self) -> KafkaScenarioHost:
        """Return a host for the next file; starts the worker if it is the first one.

        All hosts play on the first partition, one after the other.

        Raises:
            WorkerFailed: the worker did not start; the text ends with its log.
        """
        self.open()
        return self.host_on(self._partitions[0])

    def stop_worker(self) -> None:
        """Stop the worker. The topics stay until `close`."""
        self._process.stop()

    def _new_process(self) -> Process:
        return WorkerProcess(self.folder, self.folder / "worker.log")

    def _start(self) -> list[ScenarioPartition]:
        partitions = super()._start()
        for partition in partitions:
            partition.await_worker()
        return partitions

    def _while_down(self) -> None:
        asyncio.run(remove_members(self._config.bootstrap_servers, self._config.application))
        if self._lose_state:
            shutil.rmtree(self._config.data_dir)


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
