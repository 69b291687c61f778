"""Where topics begin and end: what can be read at all, and whether anything moves."""

from __future__ import annotations

from collections.abc import Collection

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import open_admin

Extents = dict[tuple[str, int], tuple[int, int]]
"""(first offset, end) by topic and partition."""


class CannotAudit(RingfaustError):
    """What the audit needs cannot be read; nothing was judged. The text says what to do."""


async def extents(worker: WorkerConfig, topics: Collection[str]) -> Extents:
    """Where each partition of the topics begins and ends now.

    Raises:
        CannotAudit: a topic is missing.
        BrokerUnreachable: no broker answers.
    """
    async with open_admin(worker) as admin:
        missing = sorted(set(topics) - set(await admin.existing(topics)))
    if missing:
        raise CannotAudit(
            f"these topics are not there: {', '.join(missing)}; `ringfaust topics plan` tells "
            "which an application needs"
        )
    consumer = AIOKafkaConsumer(*topics, **worker.client_options())
    try:
        await consumer.start()
        tps = sorted(consumer.assignment())
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
    except KafkaError as error:
        raise CannotAudit(f"the brokers could not tell where topics end: {error}") from error
    finally:
        await consumer.stop()
    return {(tp.topic, tp.partition): (begins[tp], ends[tp]) for tp in tps}


def require_whole(found: Extents, topics: Collection[str]) -> None:
    """See that the topics still have their first records.

    Raises:
        CannotAudit: retention took some, and with them what could be proved.
    """
    for (topic, partition), (begin, _) in sorted(found.items()):
        if begin and topic in topics:
            raise CannotAudit(
                f"topic {topic}, partition {partition}, begins at offset {begin}: its first "
                "records are gone (retention). Audit from the lake, which keeps them: --lake PATH"
            )
