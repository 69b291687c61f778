"""Decodes the records of a fetched batch, if `decoder.c` is compiled (ADR 39)."""

from __future__ import annotations

from ringfaust.protocol.records import FetchedRecord


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
