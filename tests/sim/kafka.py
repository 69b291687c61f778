"""Kafka's clients over the virtual broker, passed to the worker's tasks as arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaConnectionError
from aiokafka.protocol.transaction import EndTxnRequest
from faust.types import TP

from ringfaust.kafka.offsets import CommittedOffset
from ringfaust.kafka.topic_ids import TopicIds
from ringfaust.processor.outbox import Outputs
from ringfaust.processor.processor import Processor
from ringfaust.protocol.control import OrderRecord
from ringfaust.protocol.records import OutRecord, Role
from ringfaust.transactional import vendor
from ringfaust.worker.interfaces import (
    Batch,
    Bounds,
    ReadBounds,
    ReadGroupOffsets,
    ReadPosition,
    ReadTopicIds,
    WorkerClock,
)
from ringfaust.worker.partition.orders import KafkaOrders
from tests.sim.broker import Broker
from tests.sim.plan import PARTITIONS, TOPICS
from tests.sim.queue_book import demand

_REPLAYED_AT_ONCE = 5


class Pause:
    """Awaited where time passes at the broker: the driver decides what happens there."""

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class NoOrder:
    """Awaited where no operator has said anything yet."""

    def __await__(self) -> Generator[NoOrder, None, None]:
        yield self


class Journal:
    """What a partition does, from its assignment on."""

    def __init__(self, clock: WorkerClock) -> None:
        self.clock = clock
        self.processor: Processor[Any] | None = None
        self.pending: list[tuple[Any, ...]] = []
        """What the next commit has done, see `worker.JournalProcessor`."""
        self.old_log: dict[str, int] = {}
        """By topic: the last record that existed at the assignment, until all have been read."""
        self.unanswered: set[str] = set()
        """The `reply` of each order that was read and not answered yet."""

    def forget_what_was_read(self, topics: Collection[str]) -> None:
        """Empty `old_log` once everything in it has been read that may be read now.

        Args:
            topics: those that the task reads.
        """
        if self.processor is None:
            return
        positions, blocked = self.processor.positions, self.processor.paused_topics
        if all(
            positions.get(topic, 0) > last or topic in blocked or topic not in topics
            for topic, last in self.old_log.items()
        ):
            self.old_log.clear()


class VirtualProducer:
    """A `TaskProducer` that commits to the virtual broker."""

    def __init__(
        self,
        broker: Broker,
        partition: int,
        transactional_id: str,
        journal: Journal,
        *,
        committed: list[tuple[Any, ...]],
        check_allowed: Callable[[str], None],
    ) -> None:
        """Connect to nothing yet.

        Args:
            committed: where the journal goes once it is committed.
            check_allowed: raises an error if it may not `open` or `commit` now.
        """
        self._broker = broker
        self._partition = partition
        self._id = transactional_id
        self._epoch = 0
        self._journal = journal
        self._committed = committed
        self._check_allowed = check_allowed

    async def start(self) -> None:
        self._check_allowed("open")
        self._epoch = self._broker.init_producer(self._id)

    async def stop(self) -> None:
        pass

    def new_batches(self) -> list[OutRecord]:
        return []

    begins_early = False

    def begin_next(self, outputs: Collection[tuple[Role, int | None]]) -> None:
        raise AssertionError("it saves nothing here")

    async def commit(
        self,
        outputs: Outputs[list[OutRecord]],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        metadata: str = "",
    ) -> int:
        self._check_allowed("commit")
        broker, number = self._broker, self._partition
        journal, self._journal.pending = self._journal.pending, []
        transaction = broker.begin(self._id, self._epoch)
        for (role, partition), records in outputs.items():
            where = number if partition is None else partition
            broker.write((TOPICS[role], where), records, transaction)
        await Pause()
        broker.fence(self._id, self._epoch)
        changelog = (TOPICS[Role.CHANGELOG], number)
        broker.write(changelog, [(key, value, []) for key, value in writes], transaction)
        end = broker.log(*changelog).next_offset() if writes else 0
        transaction.offsets = {(topic, number): at for topic, at in offsets.items()}
        transaction.metadata = metadata
        transaction.on_commit.append(lambda: self._committed.extend(journal))
        await self._end()
        await Pause()
        return end

    async def _end(self) -> None:
        """Commit. The request may be lost on the way, or come late.

        Then the Kafka client sends it again, unless the worker keeps it from doing so (R117).
        """
        try:
            await Pause()
        except LateCommit:
            self._broker.delay_commit(self._id, self._epoch)
            if EndTxnRequest in vendor.NOT_REPEATED:
                raise
        self._broker.commit(self._id, self._epoch)


class LateCommit(KafkaConnectionError):  # type: ignore[misc]  # aiokafka has no types
    """The connection broke while a request was on its way. If it is a commit, it arrives later."""


class VirtualConsumer:
    """A `ChangelogConsumer` of the virtual broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._at = 0

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        (tp,) = tps
        self._tp = tp
        self._log = self._broker.log(*tp)

    async def beginning_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._broker.log(*tp).end for tp in tps}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._at = offset

    async def position(self, tp: TopicPartition) -> int:
        return self._at

    async def getmany(
        self, *_: TopicPartition, max_records: int | None = None, **__: Any
    ) -> dict[TopicPartition, list[Any]]:
        found, self._at = self._log.read(self._at, max_records or _REPLAYED_AT_ONCE)
        return {self._tp: found} if found else {}


class OrderConsumer(VirtualConsumer):
    """The consumer of `KafkaOrders`: it waits where the log ends."""

    async def getmany(self, *tps: TopicPartition, **how: Any) -> dict[TopicPartition, list[Any]]:
        while not (found := await super().getmany(*tps, **how)):
            await NoOrder()
        return found


class AnswerProducer:
    """The producer of `KafkaOrders`."""

    def __init__(self, broker: Broker, unanswered: set[str]) -> None:
        self._broker = broker
        self._unanswered = unanswered

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def send_and_wait(self, topic: str, value: bytes, *, key: bytes, partition: int) -> None:
        self._broker.write((topic, partition), [(key, value, [])])
        self._unanswered.discard(key.decode())


class NotedOrders(KafkaOrders):
    """Notes which orders were read and not answered yet."""

    def __init__(
        self, control: TopicPartition, replies: TopicPartition, broker: Broker, noted: set[str]
    ) -> None:
        super().__init__(control, replies, OrderConsumer(broker), AnswerProducer(broker, noted))
        self._noted = noted

    async def next(self, unit: str) -> OrderRecord:
        demand(not self._noted, "another order is read before the answer to", self._noted)
        order = await super().next(unit)
        self._noted.add(order.reply)
        return order


def virtual_orders(broker: Broker, unanswered: set[str]) -> Callable[[int], Awaitable[KafkaOrders]]:
    async def open_orders(number: int) -> KafkaOrders:
        control, replies = (
            TopicPartition(topic, number % PARTITIONS) for topic in ("control", "replies")
        )
        orders = NotedOrders(control, replies, broker, unanswered)
        await orders.start()
        return orders

    return open_orders


def virtual_bounds(broker: Broker) -> ReadBounds:
    async def read_bounds(tps: Iterable[TP]) -> Mapping[TP, Bounds]:
        return {tp: bounds_of(broker, tp) for tp in tps}

    return read_bounds


def bounds_of(broker: Broker, tp: TP) -> Bounds:
    log = broker.log(*tp)
    return Bounds(log.begin, log.end, broker.topic_id(tp.topic))


def virtual_topic_ids(broker: Broker) -> ReadTopicIds:
    async def topic_ids(names: Collection[str]) -> TopicIds:
        return TopicIds(broker.cluster, {name: broker.topic_id(name) for name in names})

    return topic_ids


def virtual_group_offsets(broker: Broker) -> ReadGroupOffsets:
    async def group_offsets(tps: Iterable[TP]) -> Mapping[TP, CommittedOffset]:
        return {
            tp: CommittedOffset(broker.offsets[tp], broker.metadata[tp])
            for tp in tps
            if tp in broker.offsets
        }

    return group_offsets


class Reader:
    """An `InputReader` of one worker, with fetches that the script asks for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._assigned: set[TP] = set()
        self._positions: dict[TP, int] = {}
        self._fetched: dict[TP, int] = {}
        self._generations: dict[TP, int] = {}
        self._ids: dict[TP, str] = {}
        """The id of the topic when it was sought."""
        self._generation = 0
        self._paused: set[TP] = set()
        self._paused_until_seek: set[TP] = set()

    def last_offset(self, tp: TP) -> int:
        """The offset of the last committed record; -1 if there is none."""
        found = self._broker.log(*tp).records()
        return found[-1].offset if found else -1

    def go_to(self, positions: Mapping[TP, int]) -> None:
        """Read from there: an assignment, or a seek."""
        self._generation += 1
        for tp, at in positions.items():
            self._positions[tp] = at
            self._ids[tp] = self._broker.topic_id(tp.topic)
            self._fetched.pop(tp, None)
            self._generations[tp] = self._generation
            self._paused_until_seek.discard(tp)

    def assign(self, tps: Iterable[TP]) -> None:
        self._assigned |= {*tps}

    def revoke(self, tps: Collection[TP]) -> None:
        self._assigned -= {*tps}
        self.stop_reading(tps)

    def fetch(self, tp: TP, most: int, again: int = 0) -> Batch | None:
        """The next records, preceded by `again` offsets that were fetched already."""
        if not self._broker.is_reachable or not self.has_position(tp):
            return None
        before = self._positions[tp]
        records, after = self._broker.log(*tp).read(max(before - again, 0), most)
        self._positions[tp] = max(after, before)
        if records:
            self._fetched[tp] = max(records[-1].offset + 1, self._fetched.get(tp, 0))
        elif after <= before:
            return None
        return Batch(tp, records, self._generations[tp], self._positions[tp])

    def has_position(self, tp: TP) -> bool:
        """Whether a fetch may go on in this partition now."""
        return tp in self._positions and tp not in self._paused | self._paused_until_seek

    def is_unreadable(self, tp: TP) -> bool:
        """Whether a broker would refuse a fetch: the offset is gone, or it is another topic."""
        if tp not in self._positions:
            return False
        log, at = self._broker.log(*tp), self._positions[tp]
        is_same = self._ids[tp] == self._broker.topic_id(tp.topic)
        if is_same and log.begin <= at <= log.next_offset():
            return False
        self._generations.pop(tp, None)
        return True

    def has_more(self, tp: TP) -> bool:
        """Whether a fetch would return records or move past markers."""
        if self.is_unreadable(tp):
            return True
        return self.has_position(tp) and self._positions[tp] < self._broker.log(*tp).end

    # --- called by the tasks ---------------------------------------------------------------------

    def pause(self, tp: TP) -> None:
        self._paused.add(tp)

    def resume(self, tp: TP) -> None:
        self._paused.discard(tp)

    def pause_until_seek(self, tp: TP) -> None:
        self._paused_until_seek.add(tp)

    def is_current(self, batch: Batch) -> bool:
        return batch.generation == self._generations.get(batch.tp)

    async def seek(self, tp: TP, offset: int) -> None:
        if tp not in self._assigned:
            raise IllegalStateError
        self.go_to({tp: offset})

    def stop_reading(self, tps: Collection[TP]) -> None:
        for tp in tps:
            self._positions.pop(tp, None)
            self._generations.pop(tp, None)
            self._paused.discard(tp)

    def rejoin(self) -> None:
        """The script rebalances the group."""

    async def end_membership(self) -> None:
        """The script rebalances the group."""

    async def prove_membership(self, *, is_fenced: bool) -> None:
        """The script decides whether a worker that was fenced is still a member."""

    def read_position(self, tp: TP) -> ReadPosition | None:
        at = self._positions.get(tp)
        return None if at is None else ReadPosition(at, self._fetched.get(tp, 0))
