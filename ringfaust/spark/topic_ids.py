"""The ids of the topics that a job has read, beside its checkpoint (R111).

A topic that was deleted and created again has the same name and other records. Spark continues at
the old offset, which skips as many of the new records, and does not notice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Collection, Mapping

from aiokafka.errors import KafkaError, StaleMetadata
from pyspark.sql import SparkSession
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.topic_ids import topic_ids
from ringfaust.spark.files import HadoopFolder

log = logging.getLogger(__name__)

_FILE = "topics.json"
_WATCH_S = 5.0
"""How often the ids are compared while a job runs, as in a worker."""
_ATTEMPTS = 25
_PAUSE_S = 0.2


class RecreatedTopic(RingfaustError):
    """A topic was deleted and created again since it was read. The text says how to go on."""


class ReadTopicIds:
    """The ids of a job's topics: as they are now, and as they were when they were first read.

    They are kept in a folder that belongs to the job. An error says who has read the topics
    (`reader`), and how to go on (`remedy`).
    """

    def __init__(
        self, spark: SparkSession, folder: str, worker: WorkerConfig, reader: str, remedy: str
    ) -> None:
        self._folder = HadoopFolder(spark, folder)
        self._worker = worker
        self._reader, self._remedy = reader, remedy
        self.known: Mapping[str, str] = json.loads(self._folder.read_text(_FILE) or "{}")
        """By topic, its id when it was first read. Without those of very old brokers."""
        self._topics: Collection[str] = ()
        self._next_s = 0.0

    def check(self, topics: Collection[str], *, has_read: bool = True) -> None:
        """Compare the topics' ids with the known ones, and keep those that are new.

        A job that has not begun (`has_read` is False) knows nothing.

        Raises:
            RecreatedTopic: a topic has another id.
        """
        self._topics = topics
        self.known = self.known if has_read else {}
        found = self._compared()
        if new := {topic: id_ for topic, id_ in found.items() if id_ and topic not in self.known}:
            self.known = {**self.known, **new}
            self._folder.write_text(_FILE, json.dumps(self.known, sort_keys=True))
        self._next_s = time.monotonic() + _WATCH_S

    def watch(self) -> None:
        """Do the same again if it is time, for a job that runs. Ignores brokers that are away."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _WATCH_S
        try:
            self._compared()
        except (KafkaError, TimeoutError, OSError) as error:
            log.debug("cannot read the ids of the topics: %r", error)

    def _compared(self) -> Mapping[str, str]:
        about = self._reader, self._remedy
        return asyncio.run(refuse_recreated(self._worker, self._topics, self.known, *about))


async def current_ids(worker: WorkerConfig, topics: Collection[str]) -> Mapping[str, str]:
    """By topic, its id now. Topics that do not exist are left out."""
    while_stale = AsyncRetrying(  # a topic has just been created
        retry=retry_if_exception_type(StaleMetadata),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_fixed(_PAUSE_S),
        reraise=True,
    )
    return (await while_stale(topic_ids, worker.client_options(), topics)).topics


async def refuse_recreated(
    worker: WorkerConfig,
    topics: Collection[str],
    known: Mapping[str, str],
    reader: str,
    remedy: str,
    *,
    refusal: type[RingfaustError] = RecreatedTopic,
) -> Mapping[str, str]:
    """Return the ids that topics have now, or raise a `refusal` if one has another id than it had.

    Topics that are not known are not compared, nor those of brokers that do not know ids.

    Raises:
        RecreatedTopic: a topic has; or another `refusal`.
        KafkaError: the brokers do not answer, or do not agree.
    """
    found = await current_ids(worker, topics)
    for topic, id_ in sorted(found.items()):
        was = known.get(topic, "")
        if was and id_ and was != id_:
            raise refusal(
                f"topic {topic} was deleted and created again: {reader} has read the one with the "
                f"id {was}, and now it has the id {id_}. As many of its records as were read "
                f"before would be skipped. {remedy}"
            )
    return found
