"""Write stored messages to Kafka, each exactly once, also if the import is killed.

A transaction contains some messages, and how many of the file were written so far, as an offset of
a consumer group that is named after the file's content. If you run the same command again, it
continues where the last transaction ended.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.importers.artemis_export import ArtemisExport
from ringfaust.importers.artemis_values import OF_THE_BROKER
from ringfaust.importers.stored_records import Places
from ringfaust.kafka.names import import_group, import_transactional_id
from ringfaust.kafka.offsets import group_offsets
from ringfaust.protocol.records import OutgoingRecord, Role
from ringfaust.transactional.writer import (
    TRANSACTION_BYTES,
    TRANSACTION_RECORDS,
    TransactionalWriter,
    opened,
    size_bytes,
)

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
class Transfer:
    """What an import has done. A message counts once for each queue that has it."""

    before: int = 0
    """Written by an earlier run."""
    written: int = 0
    oversized: int = 0
    """Larger than `max_record_bytes`, and left out, by this run or an earlier one."""


async def import_messages(path: Path, worker: WorkerConfig, queues: QueuesConfig) -> Transfer:
    """Write the messages of an export to the topics of their queues.

    Args:
        path: what `artemis data exp` has written.
        worker: names the application and the brokers.
        queues: declares the queues.

    Raises:
        CannotImport: the file is no export, or a queue is not declared; most of what precedes the
            line was written, and the next run continues there.
        ImportStopped: the brokers failed.
    """
    digest = await asyncio.to_thread(_digest, path)
    progress = Transfer()
    records = _records(path, worker, queues)
    client, group = worker.client_options(), import_group(worker.application, digest)
    done = TopicPartition(worker.topic(Role.CONTROL), 0)
    transactional_id = import_transactional_id(worker.application, digest)
    writer = TransactionalWriter(
        client, transactional_id, max_request_size=2 * worker.max_record_bytes
    )
    try:
        async with opened(writer):
            position = await _done(client, group, done)
            progress.oversized = await asyncio.to_thread(_left_out, islice(records, position))
            progress.before = position - progress.oversized
            while part := await asyncio.to_thread(_part, records):
                position += len(part)
                kept = [each for each in part if each is not None]
                offsets = {done: OffsetAndMetadata(position, "")}
                await writer.commit(partial(writer.send, kept), offsets, group)
                progress.written += len(kept)
                progress.oversized += len(part) - len(kept)
    except KafkaError as error:
        raise ImportStopped(progress.written, error) from error
    return progress


async def _done(client: Mapping[str, Any], group: str, done: TopicPartition) -> int:
    """Return how many entries of the file earlier runs have done."""
    at = (done.topic, done.partition)
    found = await group_offsets(client, group, [at])
    return found[at].offset if at in found else 0


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGEST_CHARS]


def _records(
    path: Path, worker: WorkerConfig, queues: QueuesConfig
) -> Iterator[OutgoingRecord | None]:
    """Yield a record for each message and queue; None for one that is too large.

    What Artemis keeps for itself, such as the rings of retroactive addresses, is no message here.
    """
    export = ArtemisExport(path, worker.max_record_bytes)
    places = Places(path, worker, queues)
    for message in export:
        for queue in message.queues:
            if queue.startswith(OF_THE_BROKER):
                continue
            record = places.record(message, queue, export.addresses.get(queue, queue))
            is_large = message.is_oversized or size_bytes(record) > worker.max_record_bytes
            yield None if is_large else record


def _left_out(records: Iterable[OutgoingRecord | None]) -> int:
    return sum(record is None for record in records)


def _part(records: Iterator[OutgoingRecord | None]) -> list[OutgoingRecord | None]:
    """Take the records of one transaction."""
    part: list[OutgoingRecord | None] = []
    size = 0
    for record in records:
        part.append(record)
        size += size_bytes(record) if record is not None else 0
        if len(part) == TRANSACTION_RECORDS or size >= TRANSACTION_BYTES:
            break
    return part
