"""Decodes the records of a fetched batch, where `ringfaust._native` is compiled (ADR 39)."""

from __future__ import annotations

from collections.abc import Sequence

from ringfaust.compiled import in_c
from ringfaust.protocol.records import HEADER_BYTES, RECORD_BYTES, FetchedRecord


@in_c
def records_of(
    fetched: bytes, start: int, first_offset: int, topic: str, partition: int
) -> list[FetchedRecord] | None:
    """The records of one batch.

    Args:
        fetched: what a broker returned of a partition.
        start: where the batch begins.
        first_offset: records before it are left out.
        topic: of the records.
        partition: of the records.

    Returns:
        None if the Kafka client should decode the batch: it is compressed, has an old format or is
        damaged. Without a C compiler, the client decodes all.
    """
    return None


@in_c
def held_bytes(records: Sequence[FetchedRecord], /) -> int:
    """About how much memory records take: keys, values, headers and their objects (R121)."""
    held = 0
    for record in records:
        held += RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
        for name, content in record.headers:
            held += HEADER_BYTES + len(name) + len(content or b"")
    return held
