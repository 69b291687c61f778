"""First and end offsets of topics: what can be read, and whether records arrived meanwhile."""

from __future__ import annotations

from collections.abc import Collection

from aiokafka import AIOKafkaConsumer

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import open_admin
from ringfaust.transactional.clients import connected

TopicOffsets = dict[tuple[str, int], tuple[int, int]]
"""(first offset, end) by topic and partition."""


class CannotAudit(RingfaustError):
    """The audit's data cannot be read, so there is no verdict. The text says what to do."""


async def topic_offsets(worker: WorkerConfig, topics: Collection[str]) -> TopicOffsets:
    """The first offset and the end of each partition of the topics, as of now.

    Raises:
        CannotAudit: a topic is missing.
        BrokerUnreachable: no broker answers.
    """
    async with open_admin(worker.brokers()) as admin:
        missing = sorted(set(topics) - set(await admin.existing(topics)))
    if missing:
        raise CannotAudit(
            f"these topics do not exist: {', '.join(missing)}; `ringfaust topics plan` lists the "
            "topics an application needs"
        )
    async with connected(AIOKafkaConsumer(*topics, **worker.client_options())) as consumer:
        tps = sorted(consumer.assignment())
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
    return {(tp.topic, tp.partition): (begins[tp], ends[tp]) for tp in tps}


async def compacted_topics(worker: WorkerConfig, topics: Collection[str]) -> frozenset[str]:
    """Those of the topics in which any record may be missing, as Kafka compacts them.

    Raises:
        BrokerUnreachable: no broker answers.
    """
    async with open_admin(worker.brokers()) as admin:
        existing = await admin.existing(topics)
    return frozenset(
        topic
        for topic, about in existing.items()
        if "compact" in about.settings.get("cleanup.policy", "")
    )


async def offsets_at(
    worker: WorkerConfig, topics: Collection[str], time_ms: int
) -> dict[tuple[str, int], int]:
    """By topic and partition: the first offset whose record is not older than a time, or the end.

    The topics exist, and the time is in ms since 1970.
    """
    async with connected(AIOKafkaConsumer(*topics, **worker.client_options())) as consumer:
        tps = sorted(consumer.assignment())
        ends = await consumer.end_offsets(tps)
        found = await consumer.offsets_for_times(dict.fromkeys(tps, time_ms))
    first = {tp: found[tp].offset if found.get(tp) else ends[tp] for tp in tps}
    return {(tp.topic, tp.partition): offset for tp, offset in first.items()}


def require_whole(offsets: TopicOffsets, topics: Collection[str]) -> None:
    """Raise CannotAudit if retention has removed first records: nothing can be proved then."""
    for (topic, partition), (begin, _) in sorted(offsets.items()):
        if begin and topic in topics:
            raise CannotAudit(
                f"topic {topic}, partition {partition}, begins at offset {begin}: retention "
                "removed its first records. Audit from the lake, which keeps them: --lake PATH"
            )
