"""Find the partition in which a queue lives by asking workers: clients do not know the routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ringfaust.client.connection import Connection
from ringfaust.client.errors import NoAnswer, Refused
from ringfaust.client.options import ConsumerOptions
from ringfaust.protocol.partitioner import partition_of

UNKNOWN_QUEUE = "unknown_queue"
_OTHERS_S = 0.5
"""How long the other partitions have to answer, once one has had messages of the queue."""
_GUESS_S = 3.0
"""The same, once one knows the queue: a consumer looks again with its heartbeats."""


class QueueLocation(NamedTuple):
    """The partition in which a queue lives."""

    partition: int
    is_certain: bool
    """False if the queue has had no message yet: the first one may arrive in another partition."""


async def locate(connection: Connection, queue: str, options: ConsumerOptions) -> QueueLocation:
    """Return the partition in which a consumer of the queue has to attach.

    Args:
        connection: an open connection.
        queue: the queue's name.
        options: the consumer's.

    Raises:
        Refused: no partition knows the queue (`unknown_queue`).
        NoAnswer: a partition has no worker, and no other knows the queue.
    """
    address, count = options.get("address", ""), len(connection.partitions)
    if (partition := options.get("partition")) is not None:
        return QueueLocation(partition, True)
    if (key := options.get("key")) is not None:
        return QueueLocation(partition_of(key, count), True)
    if count == 1:
        return QueueLocation(0, True)
    is_new = address and not options.get("subscription")
    if not is_new and (found := await locate_by_counts(connection, queue)) is not None:
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
        NoAnswer: a partition has no worker, and no other knows the queue.
    """
    known, is_complete = await _received(connection, queue)
    if not known:
        return None
    by_name = partition_of(queue, len(connection.partitions))
    most = max(known, key=lambda partition: (known[partition], partition == by_name))
    return QueueLocation(most, known[most] > 0 or (is_complete and len(known) == 1))


async def _received(connection: Connection, queue: str) -> tuple[dict[int, int], bool]:
    """How many messages each partition that knows a queue has received.

    And whether all have answered. Once one knows the queue, the others get a short time: they may
    have stopped (R123).

    Raises:
        NoAnswer: a partition has no worker, and no other knows the queue.
    """
    command = {"type": "list", "queue": queue, "limit": 0}
    asking = [
        asyncio.create_task(ask_known(connection.request, [each], command))
        for each in sorted(connection.partitions)
    ]
    known: dict[int, int] = {}
    left = set(asking)
    silent: NoAnswer | None = None
    try:
        while left:
            patience_s = _OTHERS_S if any(known.values()) else _GUESS_S if known else None
            done, left = await asyncio.wait(
                left, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for each in done:
                try:
                    answers = each.result()
                except NoAnswer as error:
                    silent = error
                else:
                    known |= {at: int(says["counts"]["added"]) for at, says in answers.items()}
    finally:
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    if silent is not None and not known:
        raise silent
    return known, not left and silent is None


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
