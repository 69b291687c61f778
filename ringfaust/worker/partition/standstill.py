"""A partition that has stopped: what it says, and the orders that it waits for (R123)."""

from __future__ import annotations

import logging

from aiokafka.errors import KafkaError

from ringfaust.errors import ProtocolError, RingfaustError
from ringfaust.protocol.control import OrderRecord, SkipRecord
from ringfaust.protocol.records import FetchedRecord, place_of
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import OrderReader, Work
from ringfaust.worker.partition.stopped import Stopped

log = logging.getLogger(__name__)


class Standstill:
    """Whether a task has stopped, and the order that it carries out."""

    def __init__(self, work: Work, context: WorkerContext) -> None:
        self._work = work
        self._context = context
        self._orders: OrderReader | None = None
        self._ended: Stopped | None = None
        """Why it had stopped when the order came."""
        self.stopped: Stopped | None = None
        """Why it waits for an order; None: it does not."""
        self.order: OrderRecord | None = None
        """What it tries to do, and has not answered yet."""
        self.is_committing = False
        """Whether a commit contains what was ordered, and its outcome is not known yet."""

    async def begin(self, error: Exception, record: FetchedRecord | None) -> None:
        """Stop, and say so. From then on, no order is missed.

        Args:
            error: why.
            record: the one that it cannot get past; None: it is not a record's fault.
        """
        stopped = Stopped(error, record, self._context.clock.wall_ms(), self._id_of_topic(record))
        is_bug = not isinstance(error, KafkaError | RingfaustError)
        log.error(
            "%s: %s. To go on: %s", self._work.name, stopped, stopped.remedy,
            exc_info=error if is_bug else None,
        )  # fmt: skip
        if self._orders is None:
            self._orders = await self._context.open_orders(self._work.number)
        self.stopped = stopped  # an order that this brings about is not missed
        unknown = "; it is not known whether the record was skipped" if self.is_committing else ""
        await self._answer(f"it has {stopped}{unknown}")

    def _id_of_topic(self, record: FetchedRecord | None) -> str:
        return "" if record is None else self._work.topic_ids().get(record.topic, "")

    async def wait_for_order(self) -> None:
        """Wait until an operator says how to go on."""
        assert self.stopped is not None
        assert self._orders is not None
        while self.order is None:
            order = await self._orders.next(self._work.unit)
            at = self.stopped.at
            if isinstance(order, SkipRecord) and order.at != at:
                text = f"it has stopped at {at or 'no record'}, not at {order.at}"
                await self._orders.answer(order, text)
            else:
                self.order = order
        log.warning("%s: %s, as %r asks", self._work.name, self.order.type, self.order.by)
        self._ended, self.stopped = self.stopped, None

    @property
    def skipped(self) -> tuple[FetchedRecord, ProtocolError] | None:
        """The record that the order moves to the dead topic, and why; None: it moves none."""
        if self._ended is None or not isinstance(self.order, SkipRecord):
            return None
        assert self._ended.record is not None
        who = self.order.by or "nobody named"
        return self._ended.record, ProtocolError(
            f"skipped by {who}: {self._ended.reason}", "skipped"
        )

    @property
    def is_topic_new(self) -> bool:
        """Whether the record that `skipped` names was in a topic that was created again since."""
        assert self._ended is not None
        ids = {self._ended.topic_id, self._id_of_topic(self._ended.record)}
        return len(ids - {""}) == 2

    @property
    def is_recordless(self) -> bool:
        """Whether it had stopped, but not at a record."""
        return self._ended is not None and self._ended.record is None

    async def look(self, *, is_over: bool) -> None:
        """Answer the order, if there is one and its record does not hold up the task any more.

        The positions must be those of the committed state.

        Args:
            is_over: nothing else holds it up. What it has not passed by then waits for its
                queue, has no route any more, or was in a topic that has lost it.
        """
        self.is_committing = False
        record = self._ended.record if self._ended else None
        passed = record is not None and self._work.positions.get(record.topic, 0) > record.offset
        if self.order is None or not (is_over or passed):
            return
        if isinstance(self.order, SkipRecord) and record is not None:
            log.warning("%s: skipped %s", self._work.name, place_of(record))
        await self.end()

    async def _answer(self, refused: str) -> None:
        order, self.order, self._ended, self.is_committing = self.order, None, None, False
        if order is not None and self._orders is not None:
            await self._orders.answer(order, refused)

    async def end(self, refused: str = "") -> None:
        """Answer the order, and read no more. `refused`: why it cannot be carried out any more."""
        await self._answer(refused)
        await self.close()

    async def close(self) -> None:
        """Read no more orders."""
        orders, self._orders = self._orders, None
        if orders is not None:
            await orders.close()
