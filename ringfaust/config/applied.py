"""Which configuration is in effect: that of the file, or what was applied (R128)."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from ringfaust import __version__
from ringfaust.config.differences import Difference, differences
from ringfaust.config.documents import check
from ringfaust.config.queues import QueuesConfig
from ringfaust.config.topics import TopicProblem, check_topics
from ringfaust.config.worker import WorkerConfig
from ringfaust.core import levels
from ringfaust.core.catalog import Configuration
from ringfaust.protocol.records import Role
from ringfaust.times import time_text
from ringfaust.transactional.configuration_topic import configuration_log


class InUse(NamedTuple):
    """The configuration that is in effect for a host that starts now."""

    queues: QueuesConfig
    """The routes and all else; each partition keeps what it uses of it."""
    first: QueuesConfig
    """What the group agreed on before anything was applied: of partitions that have kept nothing,
    and of the fingerprint."""
    differences: tuple[Difference, ...] = ()
    """What `apply` would change of it to have the file in effect."""
    level: int = levels.OLDEST
    """The feature level (R129)."""
    newest: Configuration | None = None
    """What was applied last, as partitions keep it; None: nothing was."""
    revisions: Sequence[Configuration] = ()
    """What was in effect since the first was applied, and before; oldest first."""

    @property
    def revision(self) -> int:
        """Which one it is; 0: nothing was applied yet."""
        return self.newest.revision if self.newest else 0

    @property
    def note(self) -> str:
        """A warning to print if the file differs from it; otherwise empty."""
        if self.newest is None or not self.differences:
            return ""
        return (
            f"queues.yaml of this worker differs from revision {self.revision}, which "
            f"{self.newest.who or 'somebody'} applied at {time_text(self.newest.applied_ms)} and "
            "which is in effect. `ringfaust diff` shows how they differ; `ringfaust apply` puts "
            "the file into effect"
        )


async def configuration_in_use(worker: WorkerConfig, file: QueuesConfig) -> InUse:
    """Return what is in effect. If nothing was applied yet, that is the file.

    Args:
        worker: worker.yaml.
        file: queues.yaml.

    Raises:
        ConfigError: what was applied is not valid for this version of ringfaust.
        UnsupportedLevel: this version does not support the feature level in use (R129).
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    topic = worker.topic(Role.CONFIGURATION)
    revisions, raised = await configuration_log(worker.client_options(), topic)
    me = f"ringfaust {__version__} on {socket.gethostname()}"
    levels.check_level(me, f"application {worker.application}", raised.level)
    return newest_of(revisions, file, topic)._replace(level=raised.level)


async def checked_configuration(
    worker: WorkerConfig, file: QueuesConfig
) -> tuple[InUse, list[TopicProblem]]:
    """Return what is in effect, and what is wrong with the topics that it needs.

    Raises:
        BrokerUnreachable: no broker answers.
        ConfigError: see `configuration_in_use`.
        KafkaError: see `configuration_in_use`.
        UnsupportedLevel: see `configuration_in_use`.
    """
    problems = await check_topics(worker, file)  # first: it says best that no broker answers
    used = await configuration_in_use(worker, file)
    return used, await check_topics(worker, used.queues) if used.note else problems


def newest_of(revisions: list[Configuration], file: QueuesConfig, topic: str) -> InUse:
    """Return what is in effect after these revisions were applied.

    Raises:
        ConfigError: one of them is not valid.
    """
    if not revisions:
        return InUse(file, file)
    oldest, newest = revisions[0], revisions[-1]
    queues = queues_of(newest, topic)
    document = queues.document()
    found = tuple(differences(document, file.document()))
    kept = newest._replace(document=document)
    return InUse(queues, queues_of(oldest, topic), found, newest=kept, revisions=revisions)


def queues_of(revision: Configuration, topic: str) -> QueuesConfig:
    """Return a revision as the content of a queues.yaml.

    Raises:
        ConfigError: it is not valid.
    """
    return check(QueuesConfig, revision.document, f"revision {revision.revision} in {topic}")
