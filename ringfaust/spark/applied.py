"""The configuration that the workers use: what was applied, not what a file says (R128)."""

from __future__ import annotations

import asyncio
import sys

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse, configuration_in_use, queues_of
from ringfaust.kafka.admin import existing_partitions
from ringfaust.protocol.records import Role


def in_use(worker: WorkerConfig, queues: QueuesConfig) -> InUse:
    """Return what is in effect, and say on standard error if `queues`, the file, differs from it.

    Raises:
        BrokerUnreachable: no broker answers.
        ConfigError: what was applied is not valid for this version of ringfaust.
        KafkaError: a request failed.
        UnsupportedLevel: this version does not support the feature level in use (R129).
    """
    # First: it says best that no broker answers.
    asyncio.run(existing_partitions(worker.brokers(), [worker.topic(Role.CONFIGURATION)]))
    used = asyncio.run(configuration_in_use(worker, queues))
    if used.note:
        print(used.note, file=sys.stderr, flush=True)
    return used


def revisions(worker: WorkerConfig, used: InUse) -> dict[int, QueuesConfig]:
    """Return by revision, oldest first, what is or was in effect; nothing if none was applied.

    Raises:
        ConfigError: one of them is not valid for this version of ringfaust.
    """
    topic = worker.topic(Role.CONFIGURATION)
    return {each.revision: queues_of(each, topic) for each in used.revisions}
