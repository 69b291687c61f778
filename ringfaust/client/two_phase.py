"""The two phases of a distributed transaction, as a coordinator tells them to the workers (R81)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Unpack

from ringfaust.client.connection import Connection, ConnectOptions, refuse_unknown
from ringfaust.client.errors import Refused
from ringfaust.client.resource import AsyncResource


class TwoPhaseOptions(ConnectOptions, total=False):
    """How a distributed transaction is set."""

    partitions: Collection[int]
    """Those of the queues that take part; default: all. The same for all that is told of an xid."""


class TwoPhase(AsyncResource):
    """A transaction that is decided outside, with other resources, and outlives client and worker.

    ::

        async with TwoPhase("transfer-17") as transaction:
            await transaction.begin()
            await message.ack(xid=transaction.xid, confirm=True)
            await transaction.prepare()
            await transaction.commit()

    What is acked, or sent, with its xid waits for the decision. Until it is prepared, a restart of
    the worker rolls it back; from then on it waits for ever. The end of the block decides nothing.

    A send takes the way of its topic, and may come after the prepare: then it is refused alone,
    which a producer with `watch_refusals` is told. Where that matters, prepare when the event
    `pending` has shown it.

    Args:
        xid: its name, of up to 249 characters.
        options: see `TwoPhaseOptions` and `ConnectOptions`; all have a default.
    """

    def __init__(self, xid: str, **options: Unpack[TwoPhaseOptions]) -> None:
        refuse_unknown(options, TwoPhaseOptions)
        self.xid = xid
        self._partitions = options.get("partitions")
        self._connection = Connection(options)

    async def start(self) -> None:
        """Connect.

        Raises:
            ClientError: there is no such application.
            KafkaError: the brokers cannot be reached, or refuse us.
        """
        await self._connection.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()

    async def begin(self) -> None:
        """Open it.

        Raises:
            Refused: one of that xid is open. Roll back.
            NoAnswer: a partition has no worker. Roll back.
        """
        if refused := await self._request_all("begin"):
            raise refused[0]

    async def prepare(self) -> None:
        """From here on it survives restarts, until it is decided.

        Raises:
            Refused: it is not open in one of the partitions, for a restart of its worker say; what
                was done in it there has come back. Roll back.
            NoAnswer: a partition has no worker. Ask again, or roll back.
        """
        if refused := await self._request_all("prepare"):
            raise refused[0]

    async def commit(self) -> None:
        """All that waits for it takes effect. Once more does no harm where the first was cut short.

        Raises:
            Refused: it is prepared in none of the partitions.
            NoAnswer: a partition has no worker. Commit again.
        """
        await self._decide("commit")

    async def rollback(self) -> None:
        """Nothing of it takes effect; what was acked in it comes back.

        Raises:
            Refused: it is open in none of the partitions.
            NoAnswer: a partition has no worker. Roll back again.
        """
        await self._decide("rollback_xid")

    async def _decide(self, kind: str) -> None:
        """Where it is refused it was decided before; if it is everywhere, something is wrong."""
        refused = await self._request_all(kind)
        if len(refused) == len(self._chosen()):
            raise refused[0]

    async def _request_all(self, kind: str) -> list[Refused]:
        asked = [
            self._connection.request(partition, {"type": kind, "xid": self.xid})
            for partition in self._chosen()
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Refused):
                raise answer
        return [answer for answer in answers if isinstance(answer, Refused)]

    def _chosen(self) -> Collection[int]:
        return self._connection.partitions if self._partitions is None else self._partitions
