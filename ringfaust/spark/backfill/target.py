"""The topics that rows are written to: their routes, and the limits that the brokers set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import suggestion
from ringfaust.kafka.admin import ExistingTopic, open_admin
from ringfaust.kafka.transactions import BATCH_BYTES
from ringfaust.spark.backfill.errors import CannotBackfill

_FRAME_BYTES = 500
"""A generous size of a record batch without its records."""
_FOREVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A producers' topic."""

    topic: str
    queue: str
    """The route's template for the queue's name."""
    partitions: int
    max_record_bytes: int
    """Size of the largest record that both the worker and the topic accept."""
    batch_bytes: int
    """Size of the largest record batch to send."""
    is_broker_time: bool
    """The broker replaces the records' times (LogAppendTime)."""
    earliest_ms: int
    """The broker rejects records with an earlier time."""
    latest_ms: int
    """The broker rejects records with a later time."""
    kept_from_ms: int
    """Retention deletes records with an earlier time as soon as they are written."""


async def read_targets(
    worker: WorkerConfig, queues: QueuesConfig, topics: Collection[str], now_ms: int, option: str
) -> dict[str, Target]:
    """Read routes and settings of the topics, by topic. An error message names the `option`.

    Raises:
        CannotBackfill: a topic has no route or does not exist.
        BrokerUnreachable: no broker answers.
    """
    routes = {route.topic: route for route in queues.routes}
    for topic in topics:
        if topic not in routes:
            known = suggestion(topic, routes) if routes else "there are no routes"
            raise CannotBackfill(option, f"no route reads {topic!r}: {known}")
    async with open_admin(worker.brokers()) as admin:
        existing = await admin.existing(topics)
    if missing := sorted(set(topics) - existing.keys()):
        raise CannotBackfill(
            option,
            f"the brokers have no topic {missing[0]!r}: create it with `ringfaust topics create`",
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
            max_record_bytes=min(worker.max_record_bytes, message_bytes - _FRAME_BYTES),
            batch_bytes=min(BATCH_BYTES, message_bytes),
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
