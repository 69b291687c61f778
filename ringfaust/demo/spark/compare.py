"""Compares what two applications evicted of the same flights, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from ringfaust.config import WorkerConfig, load
from ringfaust.demo.dashboard import RING_SIZE
from ringfaust.demo.flights import ProducerRecord
from ringfaust.kafka.reader import read_to_end
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role

_TIMES = {h.ENQUEUED_MS, h.TIME_MS, h.AGE_MS}
"""Headers with times, which differ between the two."""


class EvictedRecord(NamedTuple):
    """A record of an evicted topic, without the headers that hold times."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def header(self, name: str) -> str:
        """Return the value of the header of this name."""
        return dict(self.headers)[name].decode()


class QueueComparison(NamedTuple):
    """How many flights of a queue each of the two evicted, and the first difference."""

    queue: str
    flights: int
    by_worker: int
    by_job: int
    difference: str
    """A sentence about the first difference; empty if there is none."""


async def compare(
    worker_folder: Path, job_folder: Path, flights: Sequence[ProducerRecord]
) -> list[QueueComparison]:
    """Read both evicted topics, partition by partition, and compare them.

    Args:
        worker_folder: the configuration of the worker's application.
        job_folder: the configuration of the job's application.
        flights: the flights that were sent.

    Raises:
        KafkaError: the brokers stopped answering.
    """
    worker, job = load(worker_folder)[0], load(job_folder)[0]
    sent = Counter(f"departures.{flight.key.decode()}" for flight in flights)
    found: list[QueueComparison] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=worker.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        for partition in range(worker.partitions):
            ours = _by_queue(await _read(consumer, worker, partition))
            theirs = _by_queue(await _read(consumer, job, partition))
            for queue in ours | theirs:
                found.append(
                    _row(queue, sent.pop(queue, 0), ours.get(queue, []), theirs.get(queue, []))
                )
    found += [_row(queue, count, [], []) for queue, count in sent.items()]
    return found


async def _read(
    consumer: AIOKafkaConsumer, config: WorkerConfig, partition: int
) -> list[EvictedRecord]:
    place = TopicPartition(config.topic(Role.EVICTED), partition)
    consumer.assign([place])
    await consumer.seek_to_beginning(place)
    end = (await consumer.end_offsets([place]))[place]
    found: list[EvictedRecord] = []
    async for records in read_to_end(consumer, {place: end}):
        found += map(_without_times, records)
    return found


def _without_times(record: ConsumerRecord) -> EvictedRecord:
    headers = tuple((name, value) for name, value in record.headers if name not in _TIMES)
    return EvictedRecord(record.key, record.value, headers)


def _by_queue(records: Sequence[EvictedRecord]) -> dict[str, list[EvictedRecord]]:
    found: dict[str, list[EvictedRecord]] = {}
    for record in records:
        found.setdefault(record.header(h.QUEUE), []).append(record)
    return found


def _row(
    queue: str, flights: int, ours: list[EvictedRecord], theirs: list[EvictedRecord]
) -> QueueComparison:
    return QueueComparison(
        queue, flights, len(ours), len(theirs), difference(flights, ours, theirs)
    )


def difference(flights: int, ours: list[EvictedRecord], theirs: list[EvictedRecord]) -> str:
    """Return a sentence about the first difference of a queue; empty if there is none.

    Args:
        flights: how many flights were sent to the queue.
        ours: what the worker evicted, in order.
        theirs: what the job evicted, in order.
    """
    for number, (one, other) in enumerate(zip_longest(ours, theirs), 1):
        if one != other:
            return f"eviction {number} is {_shown(one)} by the worker, {_shown(other)} by the job"
    if len(ours) != (expected := max(0, flights - RING_SIZE)):
        return f"{expected:,} had to be evicted, {len(ours):,} were"
    return ""


def _shown(record: EvictedRecord | None) -> str:
    return f"{record.key!r} {record.value!r} {record.headers}" if record else "missing"
