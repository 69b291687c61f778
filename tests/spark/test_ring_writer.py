"""The outputs of a task are written once, whatever becomes of the task."""

from __future__ import annotations

import asyncio
import threading
import uuid
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.topics import create_topics
from ringfaust.kafka.names import spark_group
from ringfaust.kafka.offsets import commit_group_offsets, group_offsets
from ringfaust.protocol.records import Role
from ringfaust.spark.exactly_once import ExactlyOnceWriter, TakenOver, Transaction
from ringfaust.spark.ring.writer import (
    OtherCheckpoint,
    OutputTarget,
    Part,
    Place,
    RingWriter,
    claim_outputs,
    give_up_outputs,
    new_batches,
)
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.topics import read_topic

pytestmark = pytest.mark.kafka
PARTITIONS = 4
TASKS = 2


@pytest.fixture
def target(broker: EmbeddedBroker) -> OutputTarget:
    """Of a new application and checkpoint, which has been claimed."""
    worker = WorkerConfig(
        bootstrap_servers=broker.bootstrap_servers,
        application=f"a-{uuid.uuid4().hex[:8]}",
        partitions=PARTITIONS,
    )
    asyncio.run(create_topics(worker, QueuesConfig()))
    return claimed(worker, "first")


def claimed(worker: WorkerConfig, query: str, *, has_begun: bool = False) -> OutputTarget:
    inputs = frozenset([worker.topic(Role.CONTROL)])
    found = OutputTarget(worker=worker, query=query, tasks=TASKS, inputs=inputs)
    asyncio.run(claim_outputs(found, has_begun=has_begun))
    return found


def part(batch: int, number: int, partition: int = 0, read: int = 0) -> Part:
    batches = new_batches()
    batches.append((None, b"%d/%d" % (batch, number), []))
    control = {"control": read}
    outputs: Any = {(Role.EVICTED, None): batches}
    return Part(partition, Place(batch, 0, number), outputs, control)


def write(target: OutputTarget, *parts: Part) -> None:
    """What a task does that writes these parts."""
    writer = RingWriter(target, parts[0].partition % TASKS)
    for each in parts:
        writer.write(each)
    writer.close()


def written(target: OutputTarget, partition: int = 0) -> list[bytes | None]:
    found = read_topic(target.worker, target.worker.topic(Role.EVICTED))
    return [record.value for record in found.get(partition, [])]


def test_a_repeated_task_writes_only_what_is_missing(target: OutputTarget) -> None:
    write(target, part(1, 0), part(1, 1), part(1, 0, partition=2))
    write(target, part(1, 0), part(1, 1), part(1, 2), part(1, 0, partition=2))
    write(target, part(2, 0))
    assert written(target) == [b"1/0", b"1/1", b"1/2", b"2/0"]
    assert written(target, 2) == [b"1/0"], "each partition has a place of its own"


def test_a_fenced_task_leaves_the_rest_to_the_newer_one(target: OutputTarget) -> None:
    older = RingWriter(target, 0)
    older.write(part(1, 0))
    older.write(part(1, 1))
    newer = RingWriter(target, 0)
    newer.write(part(1, 0))
    newer.write(part(1, 1))
    closing = threading.Thread(target=older.close)
    closing.start()  # it waits until the newer one has committed
    newer.close()
    closing.join(60)
    assert not closing.is_alive()
    assert written(target) == [b"1/0", b"1/1"]


def test_a_task_of_an_older_batch_that_comes_late_writes_nothing(target: OutputTarget) -> None:
    write(target, part(1, 0))
    newer = RingWriter(target, 0)
    newer.write(part(2, 0))
    write(target, part(1, 0))  # this fences the newer one
    write(target, part(2, 0))  # so Spark runs its task again
    newer.close()
    assert written(target) == [b"1/0", b"2/0"]


def test_a_fenced_task_fails_if_the_newer_one_does_nothing(target: OutputTarget) -> None:
    offsets = {target.tp(0): OffsetAndMetadata(1, "")}

    def writer() -> ExactlyOnceWriter:
        group = spark_group(target.worker.application)
        options = target.worker.client_options()
        return ExactlyOnceWriter(options, "id", group, [target.tp(0)], stand_by_s=0)

    async def be_fenced() -> None:
        older, newer = writer(), writer()
        await older.open()
        await newer.open()
        try:
            await older.commit(lambda _: [None], lambda _: Transaction(batches=[], offsets=offsets))
        finally:
            await newer.close()

    with pytest.raises(TakenOver, match="makes no progress"):
        asyncio.run(be_fenced())


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_unknown_outcome_is_settled_by_the_next_producer(
    target: OutputTarget, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    commit = AIOKafkaProducer.commit_transaction
    epochs = []

    async def lose_the_answer(producer: AIOKafkaProducer) -> None:
        epochs.append(producer._txn_manager.producer_epoch)
        if len(epochs) > 1 or is_committed:
            await commit(producer)
        if len(epochs) == 1:
            raise KafkaConnectionError("no answer")

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", lose_the_answer)
    write(target, part(1, 0), part(1, 1))
    assert written(target) == [b"1/0", b"1/1"]
    assert len(epochs) == (1 if is_committed else 2) and len(set(epochs)) == len(epochs)


def test_a_checkpoint_that_is_out_of_date_is_refused(target: OutputTarget) -> None:
    write(target, part(1, 0))
    newer = claimed(target.worker, "second")
    with pytest.raises(OtherCheckpoint, match="continued from another checkpoint"):
        write(target, part(2, 0))
    with pytest.raises(OtherCheckpoint):
        claimed(target.worker, "first", has_begun=True)
    write(newer, part(0, 0))
    assert written(target) == [b"1/0", b"0/0"]
    claimed(target.worker, "second", has_begun=True)


def test_a_job_whose_places_have_expired_can_be_shut_out(target: OutputTarget) -> None:
    """The group forgets them after a week without a job. Its rings could not move any more."""
    worker = target.worker.model_copy(update={"application": f"{target.worker.application}-old"})
    asyncio.run(create_topics(worker, QueuesConfig()))
    forgotten = replace(target, worker=worker)
    asyncio.run(give_up_outputs(forgotten))
    with pytest.raises(OtherCheckpoint):
        write(forgotten, part(1, 0))
    with pytest.raises(OtherCheckpoint):
        asyncio.run(give_up_outputs(replace(forgotten, query="second")))


def test_a_job_whose_group_was_reset_can_start(target: OutputTarget) -> None:
    """Once its last micro-batch is finished, a tool may do that (docs/spark-ring.md)."""
    write(target, part(1, 0))
    client, group = target.worker.client_options(), spark_group(target.worker.application)
    asyncio.run(commit_group_offsets(client, group, dict.fromkeys(target.tps(), 0)))
    write(claimed(target.worker, "first", has_begun=True), part(2, 0))
    assert written(target) == [b"1/0", b"2/0"]


def test_the_groups_offsets_are_those_of_the_inputs(target: OutputTarget) -> None:
    control, events = target.worker.topic(Role.CONTROL), target.worker.topic(Role.EVENTS)
    first = part(1, 0)._replace(offsets={control: 5, "other": 7})
    write(target, first)
    client, group = target.worker.client_options(), spark_group(target.worker.application)
    asyncio.run(commit_group_offsets(client, group, {(events, 1): 3}))
    tps = [(control, 0), ("other", 0), (events, 1)]
    found = asyncio.run(group_offsets(client, group, tps))
    assert {tp: committed.offset for tp, committed in found.items()} == {
        (control, 0): 5, (events, 1): 3,
    }  # fmt: skip
