"""Write stored messages to Kafka, each exactly once, also if the import is killed.

A transaction contains some messages, and how many of the file were written so far, as an offset of
a consumer group that is named after the file's content. If you run the same command again, it
continues where the last transaction ended.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.importers.artemis_export import ArtemisExport
from ringfaust.importers.stored_records import Places, TargetRecord
from ringfaust.kafka.names import import_group, import_transactional_id
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.vendor import FAILED_BETWEEN_CALLS, failure_between_calls, send_once
from ringfaust.protocol.records import Role

TRANSACTION_RECORDS = 1_000
"""The most messages of one transaction."""
TRANSACTION_BYTES = 4_000_000
"""The most bytes of one transaction, unless a single message is larger."""
_DIGEST_CHARS = 32


class ImportStopped(RingfaustError):
    """The brokers failed. Some messages were written, each once; the text says what to do."""

    def __init__(self, written: int, error: BaseException) -> None:
        reason = f"the brokers failed ({error!r})"
        if isinstance(error, ProducerFenced):
            reason = "another import of this file has taken over"
        super().__init__(
            f"{reason} after {written:,} messages were written. Run the same command again: it "
            "writes only the rest"
        )


@dataclass(slots=True)
class Progress:
    """What an import has done. A message counts once for each queue that has it."""

    before: int = 0
    """Written by an earlier run, or left out then."""
    written: int = 0
    oversized: int = 0
    """Larger than `max_record_bytes`, and left out by this run."""


async def import_messages(
    path: Path,
    worker: WorkerConfig,
    queues: QueuesConfig,
    said: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Write the messages of an export to the topics of their queues.

    Args:
        path: what `artemis data exp` has written.
        worker: names the application and the brokers.
        queues: declares the queues.
        said: called after each transaction.

    Raises:
        CannotImport: the file is no export, or a queue is not declared; most of what precedes the
            line was written, and the next run continues there.
        ImportStopped: the brokers failed.
    """
    digest = await asyncio.to_thread(_digest, path)
    progress = Progress()
    records = _records(path, worker, queues)
    sender = _Sender(worker, digest)
    try:
        await sender.start()
        progress.before = await sender.done()
        left = islice(records, progress.before, None)
        while part := await asyncio.to_thread(_part, left):
            await sender.send([each for each in part if each is not None], len(part))
            progress.written += sum(each is not None for each in part)
            progress.oversized += sum(each is None for each in part)
            said(progress)
    except (KafkaError, *FAILED_BETWEEN_CALLS) as error:
        failed = sender.failure()
        if failed is None and not isinstance(error, KafkaError):
            raise
        raise ImportStopped(progress.written, failed or error) from error
    finally:
        await sender.stop()
    return progress


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGEST_CHARS]


def _records(
    path: Path, worker: WorkerConfig, queues: QueuesConfig
) -> Iterator[TargetRecord | None]:
    """Yield a record for each message and queue; None for one that is too large."""
    export = ArtemisExport(path, worker.max_record_bytes)
    places = Places(path, worker, queues)
    for message in export:
        for queue in message.queues:
            record = places.record(message, queue, export.addresses.get(queue, queue))
            is_large = message.is_oversized or record.size_bytes > worker.max_record_bytes
            yield None if is_large else record


def _part(records: Iterator[TargetRecord | None]) -> list[TargetRecord | None]:
    """Take the records of one transaction."""
    part: list[TargetRecord | None] = []
    size = 0
    for record in records:
        part.append(record)
        size += record.size_bytes if record is not None else 0
        if len(part) == TRANSACTION_RECORDS or size >= TRANSACTION_BYTES:
            break
    return part


class _Sender:
    """The producer of one import. Starting it stops an import of the same file."""

    def __init__(self, worker: WorkerConfig, digest: str) -> None:
        self._client = worker.client_options()
        self._group = import_group(worker.application, digest)
        self._at = TopicPartition(worker.topic(Role.CONTROL), 0)
        self._done = 0
        self._producer = AIOKafkaProducer(
            **self._client,
            transactional_id=import_transactional_id(worker.application, digest),
            acks="all",
            max_request_size=2 * worker.max_record_bytes,
        )
        send_once(self._producer)

    async def start(self) -> None:
        await self._producer.start()

    async def stop(self) -> None:
        await self._producer.stop()

    def failure(self) -> BaseException | None:
        """The error that ended the transaction, if one did."""
        return failure_between_calls(self._producer)

    async def done(self) -> int:
        """Return how many entries of the file earlier runs have done."""
        at = (self._at.topic, self._at.partition)
        found = await group_offsets(self._client, self._group, [at])
        self._done = found[at].offset if at in found else 0
        return self._done

    async def send(self, records: list[TargetRecord], entries: int) -> None:
        """Write the records and how many entries are done, in one transaction."""
        await self._producer.begin_transaction()
        # All in one partition: the hop keeps the order of records from one partition.
        stored = [
            await self._producer.send(
                each.topic, each.value, partition=0, headers=list(each.headers)
            )
            for each in records
        ]
        for result in await asyncio.gather(*stored, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        self._done += entries
        await self._producer.send_offsets_to_transaction(
            {self._at: OffsetAndMetadata(self._done, "")}, self._group
        )
        await self._producer.commit_transaction()
