"""In which partition a queue lives: asked of the workers, for a client does not know the routes."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from ringfaust.client.connection import Connection
from ringfaust.client.errors import Refused
from ringfaust.protocol.partitioner import partition_of

UNKNOWN_QUEUE = "unknown_queue"


class QueueLocation(NamedTuple):
    """Where a queue is."""

    partition: int
    is_certain: bool
    """False: no message has come yet, and another partition may be the one where they will."""


async def locate(
    connection: Connection,
    queue: str,
    *,
    address: str = "",
    key: str | bytes | None = None,
    partition: int | None = None,
) -> QueueLocation:
    """Where to attach.

    Args:
        connection: must listen.
        queue: its name.
        address: that it belongs to; empty: none. Its queue may be yet to be made.
        key: of its records, if they take no hop and it is named after it.
        partition: where it is, if that is known.

    Raises:
        Refused: `unknown_queue`.
        NoAnswer: a partition has no worker.
    """
    count = len(connection.partitions)
    if partition is not None:
        return QueueLocation(partition, True)
    if key is not None:
        return QueueLocation(partition_of(key, count), True)
    if count == 1:
        return QueueLocation(0, True)
    if (found := await locate_by_counts(connection, queue)) is not None:
        return found
    if address:
        return QueueLocation(partition_of(address, count), True)
    raise Refused(UNKNOWN_QUEUE, queue, "no partition has it: declare it in queues.yaml")


async def locate_by_counts(connection: Connection, queue: str) -> QueueLocation | None:
    """Where a queue is: in the partition that has had messages for it.

    A queue that `queues.yaml` declares is in each partition until its first message decides. Until
    then it is most likely where the hop would bring it. None: no partition knows it.

    Raises:
        NoAnswer: a partition has no worker.
    """
    partitions = sorted(connection.partitions)
    asked = [_added(connection, partition, queue) for partition in partitions]
    added = dict(zip(partitions, await asyncio.gather(*asked), strict=True))
    known = {partition: count for partition, count in added.items() if count is not None}
    if not known:
        return None
    home = partition_of(queue, len(partitions))
    most = max(known, key=lambda partition: (known[partition], partition == home))
    return QueueLocation(most, known[most] > 0 or len(known) == 1)


async def _added(connection: Connection, partition: int, queue: str) -> int | None:
    """How many messages have come to it there; None: no such queue."""
    asked: dict[str, Any] = {"type": "list", "queue": queue, "limit": 0}
    try:
        body = await connection.request(partition, asked)
    except Refused as refused:
        if refused.reason != UNKNOWN_QUEUE:
            raise
        return None
    return int(body["answer"]["counts"]["added"])
