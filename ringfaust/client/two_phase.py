"""Two-phase commit of a distributed transaction, as its coordinator drives it (R81)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Unpack

from ringfaust.client.connection import ConnectOptions
from ringfaust.client.errors import Refused
from ringfaust.client.owner import OWNER
from ringfaust.client.resource import Connected


class TwoPhaseOptions(ConnectOptions, total=False):
    """Options of a distributed transaction."""

    partitions: Collection[int]
    """The partitions of the queues that take part; default all. Use the same for every command of
    an xid."""
    owner: str
    """What acks and sends must show to take part, hard to guess; default a random one that this
    process's acks and sends show. Name one if other processes take part, and give it to them."""
    timeout_ms: int
    """Time until it is rolled back unless it is prepared, in milliseconds; default 300,000."""


class TwoPhase(Connected):
    """A transaction that an external coordinator decides and that outlives client and worker.

    ::

        async with TwoPhase("transfer-17") as transaction:
            await transaction.begin()
            await message.ack(xid=transaction.xid, confirm=True)
            await transaction.prepare()
            await transaction.commit()

    Acks and sends of this process with its xid wait for the decision. Unless it is prepared, a
    restart of the worker or its timeout rolls the transaction back; a prepared one waits until it
    is decided. Leaving the block decides nothing.

    A send travels through its own topic and may arrive after the prepare. It is then refused alone,
    and a producer with `watch_refusals` is notified. To avoid this, prepare after the event
    `pending` has reported the send.

    Args:
        xid: the transaction's name, of up to 249 characters.
        options: see `TwoPhaseOptions` and `ConnectOptions`; all have defaults.

    Raises:
        BadArgument: an option is not valid.
        TypeError: there is no such option.
    """

    def __init__(self, xid: str, **options: Unpack[TwoPhaseOptions]) -> None:
        super().__init__(options, TwoPhaseOptions)
        self.xid = xid
        self.owner = options.get("owner", OWNER)
        self._begin: dict[str, Any] = {"owner": self.owner}
        if "timeout_ms" in options:
            self._begin["timeout_ms"] = options["timeout_ms"]
        self._partitions = options.get("partitions")

    async def begin(self) -> None:
        """Open the transaction.

        Raises:
            Refused: a transaction of that xid is open, or this owner has too many. Roll back.
            NoAnswer: a partition has no worker. Roll back.
        """
        if refused := await self._request_all("begin", **self._begin):
            raise refused[0]

    async def prepare(self) -> None:
        """Prepare the transaction: it now survives restarts until it is decided.

        Raises:
            Refused: it is not open in one of the partitions, for example because the worker
                restarted or the time was over, and it was rolled back there. Roll back.
            NoAnswer: a partition has no worker. Prepare again, or roll back.
        """
        if refused := await self._request_all("prepare"):
            raise refused[0]

    async def commit(self) -> None:
        """Commit: all its sends and acks take effect. It is safe to repeat.

        Raises:
            Refused: no partition has it prepared.
            NoAnswer: a partition has no worker. Commit again.
        """
        await self._decide("commit")

    async def rollback(self) -> None:
        """Roll back: drop its sends and return what was acked in it.

        Raises:
            Refused: no partition has it open.
            NoAnswer: a partition has no worker. Roll back again.
        """
        await self._decide("rollback_xid")

    async def _decide(self, kind: str) -> None:
        """Decide in each partition. One that refuses was decided before, but not all may refuse."""
        refused = await self._request_all(kind)
        if len(refused) == len(self._chosen()):
            raise refused[0]

    async def _request_all(self, kind: str, **fields: Any) -> list[Refused]:
        requests = [
            self.connection.request(partition, {"type": kind, "xid": self.xid, **fields})
            for partition in self._chosen()
        ]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Refused):
                raise answer
        return [answer for answer in answers if isinstance(answer, Refused)]

    def _chosen(self) -> Collection[int]:
        return self.connection.partitions if self._partitions is None else self._partitions
