"""A consumer group's offsets, once the brokers really tell them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

_TELL_SECONDS = 60
_ASK_AGAIN_SECONDS = 0.1
# NoError is how this client tells of an error that one partition alone has.
_NOT_READY = (
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.GroupCoordinatorNotAvailableError,
    errors.GroupLoadInProgressError,
    errors.NoError,
    errors.NotCoordinatorError,
    errors.NotCoordinatorForGroupError,
)


async def group_offsets(
    client: Mapping[str, Any], group: str, tps: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], OffsetAndMetadata]:
    """What the group has committed, by topic and partition, where it has.

    A coordinator that is not ready gives fewer, and aiokafka passes that on as an answer. To take
    it for "nothing yet" would do all of it twice; so it is asked until each partition is told of.

    Raises:
        KafkaError: the brokers do not tell, for a minute.
    """
    wanted = [TopicPartition(*tp) for tp in tps]
    deadline = time.monotonic() + _TELL_SECONDS
    admin = AIOKafkaAdminClient(**client)
    await admin.start()
    try:
        while True:
            with suppress(*_NOT_READY):
                found = await admin.list_consumer_group_offsets(group, partitions=wanted)
                if found.keys() >= set(wanted):
                    return {
                        (tp.topic, tp.partition): told
                        for tp, told in found.items()
                        if told.offset >= 0
                    }
            if time.monotonic() > deadline:
                raise errors.CoordinatorLoadInProgressError(f"no offsets of group {group} are told")
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
    finally:
        await admin.close()
