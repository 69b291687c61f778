"""The brokers of `bench.availability`: one, or three with all topics on each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest

from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.cluster import BROKERS, Cluster

_TIMEOUT_MS = 20_000
_DEADLINE_S = 60
_POLL_S = 0.5


class Brokers:
    """A broker, or three."""

    def __init__(self, servers: str, cluster: Cluster | None = None) -> None:
        self.servers = servers
        self._cluster = cluster
        self._is_dead = False

    def kill_last(self) -> None:
        """SIGKILL of the one that leads nothing."""
        assert self._cluster is not None
        self._cluster.kill(self._cluster.brokers[-1])
        self._is_dead = True

    async def are_complete(self, application: str) -> None:
        """Start the one that was killed, and wait until it has all and leads nothing."""
        if self._cluster is None:
            return
        if self._is_dead:
            await asyncio.to_thread(self._cluster.brokers[-1].restart)
            self._is_dead = False
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        try:
            await _demote(admin, BROKERS[-1], application)
        finally:
            await admin.close()


async def _demote(admin: AIOKafkaAdminClient, last: int, application: str) -> None:
    """Have the others lead all topics of the application, and Kafka's own, which coordinate."""
    async with asyncio.timeout(_DEADLINE_S):
        while wrong := _wrong(await admin.describe_topics(), last, application):
            request = AlterPartitionReassignmentsRequest(_TIMEOUT_MS, wrong, {})
            metadata = await admin._get_cluster_metadata()
            await admin._send_request(request, metadata.to_object()["controller_id"])
            await asyncio.sleep(_POLL_S)


def _wrong(topics: list[dict[str, Any]], last: int, application: str) -> list[Any]:
    """The topics of which `last` leads or lacks a partition, with the replicas as wanted."""
    return [
        (topic["topic"], [(each["partition"], _order(each, last), {})
                          for each in topic["partitions"]], {})
        for topic in topics
        if topic["is_internal"] or topic["topic"].startswith((f"{application}.", "in"))
        if any(_is_wrong(each, last) for each in topic["partitions"])
    ]  # fmt: skip


def _order(partition: dict[str, Any], last: int) -> list[int]:
    """The replicas, the preferred leader first: the others take turns, and `last` is never one."""
    turn = partition["partition"] % 2
    return sorted(partition["replicas"], key=lambda broker: (broker == last, (broker + turn) % 2))


def _is_wrong(partition: dict[str, Any], last: int) -> bool:
    return partition["leader"] == last or len(partition["isr"]) < len(partition["replicas"])


@contextmanager
def brokers_of(count: int) -> Iterator[Brokers]:
    """Run one broker, or three."""
    if count == 1:
        with EmbeddedBroker() as broker:
            yield Brokers(broker.bootstrap_servers)
    else:
        with Cluster() as cluster:
            yield Brokers(cluster.bootstrap_servers, cluster)
