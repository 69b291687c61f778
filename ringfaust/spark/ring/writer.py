"""What a task of the ring job writes, exactly once.

Spark commits the state after the task, so a task may have to run again although its outputs are
committed. Each transaction therefore contains the place in the job that they come from, and a
repeated task leaves out everything up to that place. That is correct because a repeated
micro-batch produces the same outputs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from aiokafka.structs import OffsetAndMetadata

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import spark_group, spark_transactional_id
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.packed_batch import PackedBatch
from ringfaust.kafka.transactions import BATCH_BYTES
from ringfaust.processor.outbox import Outputs
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import Role
from ringfaust.spark.exactly_once import CommittedOffsets, ExactlyOnceWriter, Transaction

_TRANSACTION_BYTES = 16_000_000
"""A transaction with more bytes is committed before the task is done."""
_FENCED_AT_ONCE = 16
_MOVED = "/moved"
COUNTS = (Role.DISPATCHED.value, Role.EVICTED.value, Role.DEAD.value)
"""The topics whose records are counted for the status line and the metrics."""


class Place(NamedTuple):
    """Where outputs come from. Places of one partition increase."""

    batch: int
    """Number of the micro-batch."""
    phase: int
    """Within the micro-batch: the partition's records, then each of its timers."""
    part: int
    """Of the phase."""


_BEGINNING = Place(-1, 0, 0)


class OtherCheckpoint(RingfaustError):
    """The application's rings were continued from another checkpoint. Nothing was changed."""

    def __init__(self, application: str) -> None:
        super().__init__(
            f"the rings of {application} were continued from another checkpoint since this one was "
            "used last: start the job with the other one, or with a new folder"
        )


class Part(NamedTuple):
    """Some outputs of one partition."""

    partition: int
    place: Place
    outputs: Outputs[RecordBatches]
    offsets: Mapping[str, int]
    """By input topic, the next offset to read; for tools that show lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTarget:
    """Where a job writes; it is sent to the executors and contains no secret."""

    worker: WorkerConfig
    query: str
    """Identifies the checkpoint."""
    tasks: int
    """The partitions of a task are those that are equal modulo this number."""
    inputs: frozenset[str]
    """The topics whose offsets are committed with the outputs."""

    def writer(self, task: int) -> ExactlyOnceWriter:
        """The writer of a task."""
        application = self.worker.application
        return ExactlyOnceWriter(
            self.worker.client_options(),
            spark_transactional_id(application, task),
            spark_group(application),
            [self.tp(number) for number in range(task, self.worker.partitions, self.tasks)],
        )

    def tps(self) -> list[tuple[str, int]]:
        """`tp` of every partition."""
        return [self.tp(partition) for partition in range(self.worker.partitions)]

    def tp(self, partition: int) -> tuple[str, int]:
        """The topic and partition whose offset carries the progress of a partition's outputs."""
        return self.worker.topic(Role.CONTROL), partition

    def note(self, place: Place) -> str:
        """The metadata of that offset."""
        return json.dumps({"checkpoint": self.query, "place": place})

    def place(self, progress: CommittedOffsets, partition: int) -> Place:
        """The place of the last outputs of a partition that are committed, if by this job.

        Raises:
            OtherCheckpoint: another job has written since.
        """
        committed = progress.get(self.tp(partition))
        if committed is None:
            return _BEGINNING
        query, place = _read_note(committed)
        if query != self.query:
            raise OtherCheckpoint(self.worker.application)
        return place


def _read_note(committed: OffsetAndMetadata) -> tuple[str, Place]:
    note = json.loads(committed.metadata)
    return note["checkpoint"], Place(*note["place"])


class RingWriter:
    """Writes the outputs of one task; call `close` at its end."""

    def __init__(self, target: OutputTarget, task: int) -> None:
        self._target = target
        self._topics = {role: target.worker.topic(role) for role in Role}
        self._runner = asyncio.Runner()
        self._writer = target.writer(task)
        self._is_open = False
        self._parts: list[Part] = []
        """What the next transaction contains."""
        self._bytes = 0

    def write(self, part: Part) -> None:
        """Write a part, unless it is written already."""
        if not part.outputs:
            return
        if not self._is_open:
            self._is_open = True
            self._runner.run(self._writer.open())
        if not self._missing(self._writer.progress, [part]):
            return
        self._parts.append(part)
        self._bytes += sum(
            len(batch.data) for batches in part.outputs.values() for batch in batches.batches
        )
        if self._bytes >= _TRANSACTION_BYTES:
            self._commit()

    def close(self) -> None:
        """Commit the rest, and disconnect."""
        if self._is_open:
            self._commit()
            self._runner.run(self._writer.close())
        self._runner.close()

    def _commit(self) -> None:
        parts, self._parts, self._bytes = self._parts, [], 0
        commit = self._writer.commit(lambda done: self._missing(done, parts), self._pack)
        self._runner.run(commit)

    def _missing(self, progress: CommittedOffsets, parts: Sequence[Part]) -> list[Part]:
        place = self._target.place
        return [part for part in parts if part.place > place(progress, part.partition)]

    def _pack(self, parts: Sequence[Part]) -> Transaction:
        target = self._target
        offsets: dict[tuple[str, int], OffsetAndMetadata] = {}
        for partition, place, _, positions in parts:
            for topic in target.inputs & positions.keys():
                offsets[topic, partition] = OffsetAndMetadata(positions[topic], "")
            carrier = target.tp(partition)
            offset = positions.get(carrier[0], 0)
            offsets[carrier] = OffsetAndMetadata(offset, target.note(place))
        return Transaction(
            batches=[
                (self._topics[role], part.partition, PackedBatch(batch, compress=True))
                for part in parts
                for (role, _), batches in part.outputs.items()
                for batch in batches.batches
            ],
            offsets=offsets,
        )


def new_batches() -> RecordBatches:
    """An empty container for the records of one topic."""
    return RecordBatches(BATCH_BYTES)


async def claim_outputs(target: OutputTarget, *, has_begun: bool) -> None:
    """Make a checkpoint the only one whose job may write.

    `has_begun` says whether a job with this checkpoint has written before.

    Raises:
        OtherCheckpoint: it has begun, and another one was used since; or another job is running.
    """
    committed = await _committed(target)
    if _is_owner(target, committed):
        return
    if has_begun and _is_of_others(target, committed):
        raise OtherCheckpoint(target.worker.application)
    await _claim(target)


async def give_up_outputs(target: OutputTarget) -> None:
    """Let no job write any more, also not one that is paused now. `claim_outputs` undoes this.

    Raises:
        OtherCheckpoint: another checkpoint was used since this one, or a job is running.
    """
    if _is_of_others(target, await _committed(target)):
        raise OtherCheckpoint(target.worker.application)
    await _claim(replace(target, query=_moved(target.query)))


async def wrote_last(target: OutputTarget) -> bool:
    """Whether the job of this checkpoint was the last one that might write."""
    committed = await _committed(target)
    return {_read_note(found)[0] for found in committed.values()} == {target.query}


def _is_of_others(target: OutputTarget, committed: CommittedOffsets) -> bool:
    """Whether another checkpoint was used since this one, as far as the group still knows."""
    mine = {target.query, _moved(target.query)}
    return any(_read_note(found)[0] not in mine for found in committed.values())


def _moved(query: str) -> str:
    """Replaces the checkpoint's name when its rings are given to workers."""
    return query if query.endswith(_MOVED) else query + _MOVED


async def _claim(target: OutputTarget) -> None:
    """Write the target's name to each place, and shut out everyone else.

    Of its own job the places are kept.
    """
    await _fence_all(target)
    committed = await _committed(target)
    offsets = {tp: _claimed(target, committed.get(tp)) for tp in target.tps()}
    writer = target.writer(0)
    await writer.open()
    try:
        await writer.commit(lambda _: [None], lambda _: Transaction(batches=[], offsets=offsets))
    finally:
        await writer.close()
    # Who has started between these two, and may not know the new owner, is fenced as well.
    await _fence_all(target)
    if not _is_owner(target, await _committed(target)):
        raise OtherCheckpoint(target.worker.application)


def _claimed(target: OutputTarget, found: OffsetAndMetadata | None) -> OffsetAndMetadata:
    if found is None:
        return OffsetAndMetadata(0, target.note(_BEGINNING))
    query, place = _read_note(found)
    is_own = _moved(query) == _moved(target.query)
    return OffsetAndMetadata(found.offset, target.note(place if is_own else _BEGINNING))


async def _committed(target: OutputTarget) -> CommittedOffsets:
    """What is committed. If someone has reset the group, its places are lost, as if it expired."""
    worker = target.worker
    group = spark_group(worker.application)
    found = await group_offsets(worker.client_options(), group, target.tps())
    return {tp: committed for tp, committed in found.items() if committed.metadata}


def _is_owner(target: OutputTarget, committed: CommittedOffsets) -> bool:
    owners = {_read_note(found)[0] for found in committed.values()}
    return len(committed) == len(target.tps()) and owners == {target.query}


async def _fence_all(target: OutputTarget) -> None:
    """Fence all writers. Another job may have had as many tasks as there are partitions."""

    async def fence(task: int) -> None:
        writer = target.writer(task)
        await writer.fence()
        await writer.close()

    tasks = range(target.worker.partitions)
    for first in range(0, len(tasks), _FENCED_AT_ONCE):
        await asyncio.gather(*map(fence, tasks[first : first + _FENCED_AT_ONCE]))
