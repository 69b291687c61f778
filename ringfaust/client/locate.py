"""Find the partition in which a queue lives by asking workers: clients do not know the routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ringfaust.client.connection import Connection
from ringfaust.client.errors import Refused
from ringfaust.protocol.partitioner import partition_of

UNKNOWN_QUEUE = "unknown_queue"


class QueueLocation(NamedTuple):
    """The partition in which a queue lives."""

    partition: int
    is_certain: bool
    """False if the queue has had no message yet: the first one may arrive in another partition."""


async def locate(
    connection: Connection,
    queue: str,
    *,
    address: str = "",
    key: str | bytes | None = None,
    partition: int | None = None,
) -> QueueLocation:
    """Return the partition in which a consumer of the queue has to attach.

    Args:
        connection: an open connection.
        queue: the queue's name.
        address: the address of a subscription, whose queue may not exist yet; empty for others.
        key: the key of its records, if they are not repartitioned and the queue is named after it.
        partition: the partition, if the caller knows it.

    Raises:
        Refused: no partition knows the queue (`unknown_queue`).
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
    raise Refused(UNKNOWN_QUEUE, queue, "no partition has this queue: declare it in queues.yaml")


async def locate_by_counts(connection: Connection, queue: str) -> QueueLocation | None:
    """Ask every partition and return the one where the queue has received messages.

    A queue declared in `queues.yaml` exists in every partition until its first message decides.
    Until then, the best guess is the partition to which its records would be repartitioned.

    Returns:
        The location; None if no partition knows the queue.

    Raises:
        NoAnswer: a partition has no worker.
    """
    partitions = sorted(connection.partitions)
    command = {"type": "list", "queue": queue, "limit": 0}
    answers = await ask_known(connection.request, partitions, command)
    known = {number: int(each["counts"]["added"]) for number, each in answers.items()}
    if not known:
        return None
    by_name = partition_of(queue, len(partitions))
    most = max(known, key=lambda partition: (known[partition], partition == by_name))
    return QueueLocation(most, known[most] > 0 or len(known) == 1)


async def ask_known(
    request: Callable[[int, Mapping[str, Any]], Awaitable[dict[str, Any]]],
    partitions: Sequence[int],
    command: Mapping[str, Any],
) -> dict[int, dict[str, Any]]:
    """Ask every partition; leave out those that do not know the queue."""

    async def ask(partition: int) -> dict[str, Any] | None:
        try:
            body = await request(partition, command)
        except Refused as refused:
            if refused.reason != UNKNOWN_QUEUE:
                raise
            return None
        answer: dict[str, Any] = body["answer"]
        return answer

    found = zip(partitions, await asyncio.gather(*map(ask, partitions)), strict=True)
    return {partition: answer for partition, answer in found if answer is not None}
