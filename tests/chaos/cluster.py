"""Three brokers with all topics on each of them, and what can happen to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest

from ringfaust.testing.broker import EmbeddedBroker, free_port, new_cluster_id
from tests.chaos.network import HOST, Link, Network

BROKERS = (1, 2, 3)
MAX_WORKERS = 3
_REASSIGN_TIMEOUT_MS = 20_000
_PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # A moved leader moves to the first replica soon, and a dead broker is noticed soon.
    "leader.imbalance.check.interval.seconds": "2",
    "leader.imbalance.per.broker.percentage": "0",
    "broker.session.timeout.ms": "6000",
}


class Cluster:
    """Three brokers that are controllers, too, and a listener for each worker."""

    def __init__(self) -> None:
        self._network = Network()
        self.links = [Link() for _ in range(MAX_WORKERS)]
        """By worker."""
        self._proxies: list[list[int]] = []
        """By broker and worker: the port that the worker uses."""
        self.brokers: list[EmbeddedBroker] = []

    def __enter__(self) -> Self:
        """Start the network and the brokers."""
        self._network.__enter__()
        ports = {number: free_port() for number in BROKERS}
        voters = {number: free_port() for number in BROKERS}
        cluster_id = new_cluster_id()
        quorum = ",".join(f"{number}@{HOST}:{port}" for number, port in voters.items())
        for number in BROKERS:
            own = [free_port() for _ in self.links]
            proxies = [
                self._network.forward(link, port)
                for link, port in zip(self.links, own, strict=True)
            ]
            self._proxies.append(proxies)
            broker = EmbeddedBroker(
                port=ports[number],
                cluster_id=cluster_id,
                properties=_PROPERTIES
                | _listeners(ports[number], voters[number], own, proxies)
                | {"node.id": str(number), "controller.quorum.voters": quorum},
            )
            self.brokers.append(broker)
        try:
            with ThreadPoolExecutor(len(BROKERS)) as pool:  # two must run before one answers
                list(pool.map(EmbeddedBroker.start, self.brokers))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the brokers at the same time, and the network."""
        with ThreadPoolExecutor(len(BROKERS)) as pool:
            list(pool.map(_end, self.brokers))
        self._network.__exit__()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients that nothing happens to."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def servers_of(self, worker: int) -> str:
        """The addresses for a worker."""
        return ",".join(f"{HOST}:{ports[worker]}" for ports in self._proxies)

    def cut(self, worker: int) -> None:
        """Cut a worker off from all brokers, until its link heals."""
        self._network.cut(self.links[worker])

    def kill(self, broker: EmbeddedBroker) -> None:
        """SIGKILL. `EmbeddedBroker.restart` starts it again with its data."""
        self.signal(broker, signal.SIGKILL)

    def signal(self, broker: EmbeddedBroker, number: signal.Signals) -> None:
        assert broker.pid is not None
        os.kill(broker.pid, number)

    async def create_topic(self, name: str, partitions: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, partitions, len(BROKERS))])
        finally:
            await admin.close()

    async def move_leaders(self, topics: Collection[str] | None = None) -> None:
        """Make another broker the preferred leader of each partition; the controller follows.

        Args:
            topics: None: Kafka's own topics, that is all coordinators.
        """
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await admin.start()
        try:
            found = await admin.describe_topics(None if topics is None else [*topics])
            wanted = [each for each in found if topics is not None or each["is_internal"]]
            moved: list[Any] = [
                (each["topic"], [(p["partition"], _rotated(p["replicas"]), {})
                                 for p in each["partitions"]], {})
                for each in wanted
            ]  # fmt: skip
            request = AlterPartitionReassignmentsRequest(_REASSIGN_TIMEOUT_MS, moved, {})
            metadata = await admin._get_cluster_metadata()
            answer = await admin._send_request(request, metadata.to_object()["controller_id"])
        finally:
            await admin.close()
        assert not answer.error_code, answer


def _rotated(replicas: list[int]) -> list[int]:
    return [*replicas[1:], replicas[0]]


def _listeners(port: int, controller: int, own: list[int], proxies: list[int]) -> dict[str, str]:
    """A broker's settings: the listener for the test, and one for each worker."""
    names = [f"WORKER{number}" for number in range(len(own))]
    inside = [f"{name}://{HOST}:{each}" for name, each in zip(names, own, strict=True)]
    outside = [f"{name}://{HOST}:{each}" for name, each in zip(names, proxies, strict=True)]
    plain = f"PLAINTEXT://{HOST}:{port}"
    protocols = (f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "CONTROLLER", *names))
    return {
        "listeners": ",".join([plain, f"CONTROLLER://{HOST}:{controller}", *inside]),
        "advertised.listeners": ",".join([plain, *outside]),
        "listener.security.protocol.map": ",".join(protocols),
    }


def _end(broker: EmbeddedBroker) -> None:
    """SIGKILL, which is quicker than an orderly stop, and needs no quorum."""
    if broker.pid is not None:
        os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
