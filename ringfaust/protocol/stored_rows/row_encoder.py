"""Encodes the changes of a batch as the store has them."""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.compiled import in_c
from ringfaust.core.table import TableWrites
from ringfaust.protocol.stored_rows.writes import encode_table


@in_c
def encode_writes(writes: Iterable[TableWrites]) -> list[tuple[bytes, bytes | None]]:
    """Encode a batch's writes in order. None deletes the row."""
    encoded: list[tuple[bytes, bytes | None]] = []
    for table in writes:
        encode_table(encoded, table)
    return encoded
