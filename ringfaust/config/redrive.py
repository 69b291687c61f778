"""What a redrive needs to know of the configuration."""

from __future__ import annotations

from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig
from ringfaust.kafka.redrive import RedriveContext
from ringfaust.protocol.routes import Route


def redrive_context(worker: WorkerConfig, queues: QueuesConfig) -> RedriveContext:
    """Describe the application to `kafka.redrive`.

    Raises:
        ConfigError: a certificate or the password cannot be read.
    """
    direct, _ = queues.split_routes(worker.partitions)
    return RedriveContext(
        brokers=worker.brokers(),
        routes=[Route(route.topic, route.queue) for route in queues.routes],
        direct_topics=frozenset(route.topic for route in direct),
        partitions=worker.partitions,
        catalog=queues.catalog(),
        max_record_bytes=worker.max_record_bytes,
    )
