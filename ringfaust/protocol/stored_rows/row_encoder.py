"""Encodes the changes of a batch as the store has them.

`make setup` compiles `row_encoder.c`, which does the same for the rows that are written most and
then replaces this module (ADR 38): tests/protocol/test_row_encoder.py compares them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core.table import TableWrites
from ringfaust.protocol.stored_rows.writes import encode_table


def encode_writes(writes: Iterable[TableWrites]) -> list[tuple[bytes, bytes | None]]:
    """Encode a batch's writes in order. None deletes the row."""
    encoded: list[tuple[bytes, bytes | None]] = []
    for table in writes:
        encode_table(encoded, table)
    return encoded
