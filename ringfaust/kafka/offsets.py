"""The committed offsets of a consumer group.

All of it raises `KafkaError` if the brokers fail, or give no complete answer within a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from ringfaust.kafka.admin import connected_admin, until_ready
from ringfaust.kafka.vendor import COORDINATOR_NOT_READY
from ringfaust.transactional.clients import connected

_TIMEOUT_S = 60

_REPARTITIONED, _CHANGELOG = "repartitioned ", "changelog "


class CommittedOffset(NamedTuple):
    """An offset that a consumer group has committed."""

    offset: int
    metadata: str = ""
    """What was added: `repartition_metadata` or `changelog_metadata`, in the group of a worker."""

    @property
    def is_repartitioned(self) -> bool:
        """Whether a repartition task has committed it."""
        return self.metadata.startswith(_REPARTITIONED)

    @property
    def topic_id(self) -> str:
        """The id of the topic that a repartition task has read; empty if it is not known."""
        return self.metadata.removeprefix(_REPARTITIONED) if self.is_repartitioned else ""

    @property
    def changelog_id(self) -> str:
        """The id of the changelog with the state that belongs to it; empty if it is not known."""
        is_of_store = self.metadata.startswith(_CHANGELOG)
        return self.metadata.removeprefix(_CHANGELOG) if is_of_store else ""


def repartition_metadata(topic_id: str) -> str:
    """What a repartition task commits with its offset.

    Args:
        topic_id: of the topic; empty if the brokers are too old to know it.
    """
    return _REPARTITIONED + topic_id


def changelog_metadata(topic_id: str) -> str:
    """What a task with a store commits with its offsets.

    Args:
        topic_id: of the changelog; empty if the brokers are too old to know it.
    """
    return _CHANGELOG + topic_id if topic_id else ""


async def group_offsets(
    client: Mapping[str, Any], group: str, tps: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], CommittedOffset]:
    """The offsets that a group has committed, by topic and partition. Others are left out.

    A coordinator that is not ready answers for some partitions only, and aiokafka returns that as
    if nothing was committed for the others. Everything would then be processed twice, so this asks
    again until the answer covers every partition.
    """
    async with connected_admin(client) as admin:
        return await group_offsets_again(admin, group, tps)


async def group_offsets_again(
    admin: AIOKafkaAdminClient, group: str, tps: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], CommittedOffset]:
    """Like `group_offsets`, with a client that is connected."""
    wanted = [TopicPartition(*tp) for tp in tps]

    async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        with suppress(*COORDINATOR_NOT_READY):
            found = await admin.list_consumer_group_offsets(group, partitions=wanted)
        if not found.keys() >= set(wanted):
            raise errors.CoordinatorLoadInProgressError(
                f"the brokers do not answer for the offsets of group {group}"
            )
        return found

    found = await until_ready(ask, _TIMEOUT_S)
    return {
        (tp.topic, tp.partition): CommittedOffset(at.offset, at.metadata or "")
        for tp, at in found.items()
        if at.offset >= 0
    }


async def groups_named(client: Mapping[str, Any], prefix: str) -> list[str]:
    """The names of the consumer groups that begin like this, in order."""
    async with connected_admin(client) as admin:
        found = await until_ready(admin.list_consumer_groups, _TIMEOUT_S)
        return sorted(name for name, *_ in found if name.startswith(prefix))


async def commit_group_offsets(
    client: Mapping[str, Any], group: str, offsets: Mapping[tuple[str, int], int]
) -> None:
    """Commit offsets of a group that has no members.

    Args:
        client: options of any Kafka client.
        group: the consumer group.
        offsets: by topic and partition, the next offset to read.
    """
    tps = {TopicPartition(*tp): at for tp, at in offsets.items()}
    consumer = AIOKafkaConsumer(**client, group_id=group, enable_auto_commit=False)
    try:
        async with asyncio.timeout(_TIMEOUT_S), connected(consumer):
            consumer.assign(list(tps))
            await consumer.commit(tps)  # it tries again without end
    except TimeoutError:
        text = f"the brokers do not take the offsets of group {group}"
        raise errors.KafkaTimeoutError(text) from None


class ReadOffsets:
    """Commits how far a group has read whenever that has changed, for tools that show lag."""

    def __init__(self, client: Mapping[str, Any], group: str) -> None:
        self._client, self.group = client, group
        self._committed: dict[tuple[str, int], int] = {}

    async def commit(self, read: Mapping[str, Mapping[str, int]]) -> None:
        """Commit the next offset to read, by topic and partition.

        Raises:
            KafkaError: the brokers failed.
        """
        offsets = {(topic, int(n)): at for topic, of in read.items() for n, at in of.items()}
        if offsets != self._committed:
            await commit_group_offsets(self._client, self.group, offsets)
            self._committed = offsets
