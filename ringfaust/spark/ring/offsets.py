"""Where topics end, and how far a job has read them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka.errors import KafkaError
from pyspark.sql.streaming.listener import StreamingQueryProgress

from ringfaust.config import WorkerConfig
from ringfaust.kafka.names import spark_group
from ringfaust.kafka.offsets import commit_group_offsets
from ringfaust.kafka.reader import last_record, subscribed_reader

log = logging.getLogger(__name__)

_COMMIT_S = 5.0
"""How often the offsets of repartitioned topics are committed."""


async def record_ends(
    client: Mapping[str, Any], topics: Collection[str]
) -> dict[str, dict[int, int]]:
    """By topic and partition, one past the last committed record. Empty partitions are left out."""
    async with subscribed_reader(client, topics) as consumer:
        tps = list(consumer.assignment())
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        found: dict[str, dict[int, int]] = {}
        for tp in tps:
            last = await last_record(consumer, tp, begins[tp], ends[tp])
            if last is not None:
                found.setdefault(tp.topic, {})[tp.partition] = int(last.offset) + 1
        return found


async def log_ends(client: Mapping[str, Any], topics: Collection[str]) -> dict[str, dict[int, int]]:
    """By topic and partition, the end of the committed log, transaction markers included."""
    async with subscribed_reader(client, topics) as consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
    found: dict[str, dict[int, int]] = {}
    for tp, end in ends.items():
        found.setdefault(tp.topic, {})[tp.partition] = end
    return found


class ReadOffsets:
    """How far a job has read its topics, according to Spark's progress.

    The offsets of repartitioned topics are committed here, for tools that show lag. Those of other
    topics are committed with the outputs.

    Args:
        worker: names brokers and application.
        repartitioned: the topics whose records the shuffle brings to their partitions.
    """

    def __init__(self, worker: WorkerConfig, repartitioned: Collection[str]) -> None:
        self._worker = worker
        self._repartitioned = repartitioned
        self._read: dict[str, dict[str, int]] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._next_commit = time.monotonic()

    def update(self, progress: StreamingQueryProgress | None) -> None:
        """Take over the last reported micro-batch."""
        # As an attribute the offsets are text, of JSON or of Python depending on the version.
        for source in json.loads(progress.json)["sources"] if progress else ():
            self._read |= source["endOffset"] or {}
        if time.monotonic() >= self._next_commit:
            self._next_commit = time.monotonic() + _COMMIT_S
            self._commit()

    def has_reached(self, ends: Mapping[str, Mapping[int, int]]) -> bool:
        """Whether the job has read up to these offsets."""
        return all(
            self._read.get(topic, {}).get(str(partition), 0) >= end
            for topic, of in ends.items()
            for partition, end in of.items()
        )

    def _commit(self) -> None:
        offsets = {
            (topic, int(partition)): at
            for topic in self._repartitioned
            for partition, at in self._read.get(topic, {}).items()
        }
        if offsets == self._committed:
            return
        group = spark_group(self._worker.application)
        try:
            asyncio.run(commit_group_offsets(self._worker.client_options(), group, offsets))
        except KafkaError as error:
            log.warning("the offsets of %s were not committed: %s", group, error)
        else:
            self._committed = offsets
