"""The check of `ringfaust doctor` for a lake: do topics keep what it has not read yet?"""

from __future__ import annotations

from aiokafka.errors import GroupAuthorizationFailedError

from ringfaust.cli.finding import Finding
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.topics import wanted_topics
from ringfaust.kafka.admin import existing_partitions
from ringfaust.kafka.lag import time_left
from ringfaust.kafka.names import lake_group
from ringfaust.kafka.offsets import group_offsets

_CHECK = "lake"


async def lake_lag(worker: WorkerConfig, queues: QueuesConfig) -> list[Finding]:
    """Whether topics soon delete what the lake has not read. Nothing if there is no lake."""
    names = [each.name for each in wanted_topics(worker, queues)]
    tps = await existing_partitions(worker.brokers(), names)
    group = lake_group(worker.application)
    read: dict[str, dict[str, int]] = {}
    try:
        offsets = await group_offsets(worker.client_options(), group, tps)
    except GroupAuthorizationFailedError:  # its user may be another one
        return [Finding(_CHECK, "ok", f"not checked: this user lacks Describe on group {group}")]
    for (topic, partition), at in offsets.items():
        read.setdefault(topic, {})[str(partition)] = at.offset
    if not read:
        return []
    left = await time_left(worker.brokers(), list(read), read)
    remedy = "run `ringfaust spark lake`, with more cores if it runs, or raise retention.ms"
    found = [
        Finding(_CHECK, "warn", f"the lake is behind: topic {topic} {each}", remedy)
        for topic, each in left.items()
        if each.is_short
    ]
    return found or [Finding(_CHECK, "ok", f"topics keep what group {group} has not read")]
