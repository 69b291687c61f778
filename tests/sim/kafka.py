"""Kafka's clients over the virtual broker: what the host's own files are given in their place."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError
from aiokafka.structs import OffsetAndMetadata
from faust.types import TP

from ringfaust.processor.processor import Outputs
from ringfaust.protocol.records import OutRecord, Role
from ringfaust.worker.consumer_thread import Batch, Progress
from ringfaust.worker.input_positions import Bounds

if TYPE_CHECKING:
    from tests.sim.host import Worker

_REPLAYED_AT_ONCE = 5


class Pause:
    """Awaited where time passes at the broker: whoever drives the coroutine has a say there."""

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class VirtualCommitter:
    """Stands for `Committer`: the transactional producer of one partition."""

    def __init__(
        self,
        application: str,
        partition: int,
        topics: Mapping[str, str],
        client: Mapping[str, Any],
        transactional_id: str,
    ) -> None:
        worker: Worker = client["worker"]
        self._broker = worker.broker
        self._journals = worker.journals
        self._partition = partition
        self._topics = topics
        self._id = transactional_id
        self._epoch = 0
        self.journal: list[tuple[Any, ...]] = []
        """What the batch that is committed next has done, see `host.JournalRoad`."""
        self.old_log: dict[str, int] = {}
        """By topic: the last record that was there at the assignment, until all have been read."""

    async def start(self) -> None:
        self._epoch = self._broker.init_producer(self._id)

    def gather(self) -> list[OutRecord]:
        return []

    async def commit(
        self,
        outputs: Outputs[list[OutRecord]],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
    ) -> int:
        broker, number = self._broker, self._partition
        journal, self.journal = self.journal, []
        transaction = broker.begin(self._id, self._epoch)
        for (role, partition), records in outputs.items():
            where = number if partition is None else partition
            broker.write((self._topics[role], where), records, transaction)
        await Pause()
        broker.fence(self._id, self._epoch)
        changelog = (self._topics[Role.CHANGELOG], number)
        broker.write(changelog, [(key, value, []) for key, value in writes], transaction)
        end = broker.log(*changelog).next_offset() if writes else 0
        transaction.offsets = {(topic, number): at for topic, at in offsets.items()}
        await Pause()
        broker.commit(self._id, self._epoch)
        if journal:
            self._journals.setdefault(number, []).extend(journal)
        await Pause()
        return end


class VirtualConsumer:
    """Stands for `AIOKafkaConsumer` where the changelog is read."""

    def __init__(self, *, worker: Worker, **_: Any) -> None:
        self._broker = worker.broker
        self._at = 0

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        (tp,) = tps
        self._log = self._broker.log(*tp)

    async def beginning_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._broker.log(*tp).end for tp in tps}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._at = offset

    async def position(self, tp: TopicPartition) -> int:
        return self._at

    async def getmany(self, tp: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
        found, self._at = self._log.read(self._at, _REPLAYED_AT_ONCE)
        return {tp: found} if found else {}


async def virtual_group_offsets(
    client: Mapping[str, Any], group: str, tps: Iterable[TP]
) -> dict[TP, OffsetAndMetadata]:
    """Stands for `group_offsets`."""
    known = client["worker"].broker.offsets
    return {tp: OffsetAndMetadata(known[tp], "") for tp in tps if tp in known}


class Reader:
    """One worker's reading: stands for `BatchConsumer` and its thread."""

    def __init__(self, worker: Worker) -> None:
        self._broker = worker.broker
        self._positions: dict[TP, int] = {}
        self._taken: dict[TP, int] = {}
        self._generations: dict[TP, int] = {}
        self._generation = 0
        self._held: set[TP] = set()
        self._halted: set[TP] = set()

    def bounds(self, tps: Iterable[TP]) -> dict[str, Bounds]:
        return {tp.topic: Bounds(0, self._broker.log(*tp).end) for tp in tps}

    def last_offset(self, tp: TP) -> int:
        """Of the last committed record; -1: there is none."""
        found, _ = self._broker.log(*tp).read(0, 1_000_000)
        return found[-1].offset if found else -1

    def go_to(self, positions: Mapping[TP, int]) -> None:
        """Read there from now on: an assignment, or a seek."""
        self._generation += 1
        for tp, at in positions.items():
            self._positions[tp] = at
            self._generations[tp] = self._generation
            self._halted.discard(tp)

    def revoke(self, tps: Iterable[TP]) -> None:
        for tp in tps:
            self._positions.pop(tp, None)
            self._generations.pop(tp, None)
            self._held.discard(tp)

    def fetch(self, tp: TP, most: int, again: int = 0) -> Batch | None:
        """The next records, and before them `again` offsets that were fetched already."""
        if tp not in self._positions or tp in self._held or tp in self._halted:
            return None
        start = max(self._positions[tp] - again, 0)
        records, after = self._broker.log(*tp).read(start, most)
        self._positions[tp] = max(after, self._positions[tp])
        if not records:
            return None
        self._taken[tp] = max(records[-1].offset + 1, self._taken.get(tp, 0))
        return Batch(tp, records, self._generations[tp])

    def has_more(self, tp: TP) -> bool:
        """Is there something that a fetch would bring, or get past?"""
        at = self._positions.get(tp)
        if at is None or tp in self._held or tp in self._halted:
            return False
        return at < self._broker.log(*tp).end

    # --- what the host calls ---------------------------------------------------------------------

    def hold(self, tp: TP) -> None:
        self._held.add(tp)

    def go_on(self, tp: TP) -> None:
        self._held.discard(tp)

    def halt(self, tp: TP) -> None:
        self._halted.add(tp)

    def is_current(self, batch: Batch) -> bool:
        return batch.generation == self._generations.get(batch.tp)

    async def seek(self, tp: TP, offset: int) -> None:
        if tp not in self._positions:
            raise IllegalStateError
        self.go_to({tp: offset})

    async def progress(self, tp: TP) -> Progress | None:
        at = self._positions.get(tp)
        return None if at is None else Progress(at, self._taken.get(tp, 0))
