"""Which configuration is in effect: that of the file, or what was applied (R128)."""

from __future__ import annotations

from typing import NamedTuple

from ringfaust.config.documents import check
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig
from ringfaust.core.catalog import Configuration
from ringfaust.kafka.configuration_topic import applied_revisions
from ringfaust.protocol.records import Role
from ringfaust.times import time_text


class InUse(NamedTuple):
    """The configuration that is in effect for a host that starts now."""

    queues: QueuesConfig
    """The routes and all else; each partition keeps what it uses of it."""
    first: QueuesConfig
    """What the group agreed on before anything was applied: of partitions that have kept nothing,
    and of the fingerprint."""
    note: str = ""
    """What to tell whoever starts it with another file; empty: nothing."""


async def configuration_in_use(worker: WorkerConfig, file: QueuesConfig) -> InUse:
    """Return what is in effect. If nothing was applied yet, that is the file.

    Args:
        worker: worker.yaml.
        file: queues.yaml.

    Raises:
        ConfigError: what was applied is not valid for this version of ringfaust.
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    topic = worker.topic(Role.CONFIGURATION)
    return newest_of(await applied_revisions(worker.client_options(), topic), file, topic)


def newest_of(revisions: list[Configuration], file: QueuesConfig, topic: str) -> InUse:
    """Return what is in effect after these revisions were applied.

    Raises:
        ConfigError: one of them is not valid.
    """
    if not revisions:
        return InUse(file, file)
    oldest, newest = revisions[0], revisions[-1]
    queues = queues_of(newest, topic)
    note = ""
    if queues.document() != file.document():
        note = (
            f"queues.yaml of this worker differs from revision {newest.revision}, which "
            f"{newest.who or 'somebody'} applied at {time_text(newest.applied_ms)} and which is in "
            "effect. `ringfaust diff` shows how they differ; `ringfaust apply` puts the file into "
            "effect"
        )
    return InUse(queues, queues_of(oldest, topic), note)


def queues_of(revision: Configuration, topic: str) -> QueuesConfig:
    """Return a revision as the content of a queues.yaml.

    Raises:
        ConfigError: it is not valid.
    """
    return check(QueuesConfig, revision.document, f"revision {revision.revision} in {topic}")
