"""The committed offsets of a consumer group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from ringfaust.cancellation import cancellation_is_kept
from ringfaust.kafka.vendor import COORDINATOR_NOT_READY, stop_client

_TIMEOUT_S = 60
_RETRY_S = 0.1


async def group_offsets(
    client: Mapping[str, Any], group: str, tps: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], OffsetAndMetadata]:
    """The offsets that a group has committed, by topic and partition. Others are left out.

    A coordinator that is not ready answers for some partitions only, and aiokafka returns that as
    if nothing was committed for the others. Everything would then be processed twice, so this asks
    again until the answer covers every partition.

    Raises:
        KafkaError: the brokers gave no complete answer within a minute.
    """
    wanted = [TopicPartition(*tp) for tp in tps]
    deadline = time.monotonic() + _TIMEOUT_S
    admin = AIOKafkaAdminClient(**client)
    await admin.start()
    try:
        while True:
            with suppress(*COORDINATOR_NOT_READY):
                found = await admin.list_consumer_group_offsets(group, partitions=wanted)
                if found.keys() >= set(wanted):
                    return {
                        (tp.topic, tp.partition): offset
                        for tp, offset in found.items()
                        if offset.offset >= 0
                    }
            if time.monotonic() > deadline:
                raise errors.CoordinatorLoadInProgressError(
                    f"the brokers do not answer for the offsets of group {group}"
                )
            await asyncio.sleep(_RETRY_S)
    finally:
        with cancellation_is_kept():
            await admin.close()


async def commit_group_offsets(
    client: Mapping[str, Any], group: str, offsets: Mapping[tuple[str, int], int]
) -> None:
    """Commit offsets of a group that has no members.

    Args:
        client: options of any Kafka client.
        group: the consumer group.
        offsets: by topic and partition, the next offset to read.

    Raises:
        KafkaError: the brokers failed.
    """
    consumer = AIOKafkaConsumer(**client, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        tps = {TopicPartition(*tp): at for tp, at in offsets.items()}
        consumer.assign(list(tps))
        await consumer.commit(tps)
    finally:
        await stop_client(consumer)
