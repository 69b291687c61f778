"""The topics that rows are written to: what a route makes of them, and what the brokers allow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import suggestion
from ringfaust.kafka.admin import ExistingTopic, open_admin
from ringfaust.spark.backfill.errors import CannotBackfill

_BATCH_BYTES = 1_000_000
_FRAME_BYTES = 500
"""What a record batch weighs beside its records, generously."""
_FOREVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A producers' topic."""

    topic: str
    queue: str
    """The route's template of the queue's name."""
    partitions: int
    needs_hop: bool
    most_bytes: int
    """Largest record that both its worker and the topic take."""
    batch_bytes: int
    """Largest record batch that is sent."""
    is_broker_time: bool
    """The broker stamps records itself: LogAppendTime."""
    earliest_ms: int
    """A record of an earlier time is refused by the broker; as is one of a later than:"""
    latest_ms: int
    kept_from_ms: int
    """A record of an earlier time is deleted by the topic's retention as soon as it is written."""


async def survey_targets(
    worker: WorkerConfig,
    queues: QueuesConfig,
    topics: Collection[str],
    now_ms: int,
    *,
    option: str = "--topic",
) -> dict[str, Target]:
    """Look at the topics, by name. `option`: what an error is about.

    Raises:
        CannotBackfill: no route leads from one to a queue, or there is no such topic.
        BrokerUnreachable: no broker answers.
    """
    routes = {route.topic: route for route in queues.routes}
    for topic in topics:
        if topic not in routes:
            known = suggestion(topic, routes) if routes else "there is no route at all"
            raise CannotBackfill(
                option, f"no route of queues.yaml reads {topic!r}, so no queue would: {known}"
            )
    async with open_admin(worker.brokers()) as admin:
        existing = await admin.existing(topics)
    if missing := sorted(set(topics) - existing.keys()):
        raise CannotBackfill(
            option,
            f"the brokers have no topic {missing[0]!r}: `ringfaust topics create` makes it",
        )
    targets = {}
    for topic in topics:
        found, route = existing[topic], routes[topic]
        settings = found.settings
        message_bytes = _number(settings, "max.message.bytes")
        targets[topic] = Target(
            topic=topic,
            queue=route.queue,
            partitions=found.partitions,
            needs_hop=route.needs_hop(worker.partitions),
            most_bytes=min(worker.max_record_bytes, message_bytes - _FRAME_BYTES),
            batch_bytes=min(_BATCH_BYTES, message_bytes),
            is_broker_time=settings.get("message.timestamp.type") == "LogAppendTime",
            earliest_ms=max(0, now_ms - _number(settings, "message.timestamp.before.max.ms")),
            latest_ms=now_ms + _number(settings, "message.timestamp.after.max.ms"),
            kept_from_ms=_kept_from(found, now_ms),
        )
    return targets


def _number(settings: Mapping[str, str], name: str) -> int:
    text = settings.get(name, "")
    return int(text) if text.lstrip("-").isdigit() else _FOREVER


def _kept_from(topic: ExistingTopic, now_ms: int) -> int:
    if "delete" not in topic.settings.get("cleanup.policy", "delete"):
        return 0
    retention_ms = _number(topic.settings, "retention.ms")
    return 0 if retention_ms < 0 else max(0, now_ms - retention_ms)
