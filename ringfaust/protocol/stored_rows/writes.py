"""The changes of a batch as the store and the changelog have them."""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core.table import TableWrites
from ringfaust.protocol.stored_rows.deliveries import without_body
from ringfaust.protocol.stored_rows.keys import table_prefix, tail_writer
from ringfaust.protocol.stored_rows.values import value_writer


def encode_table(encoded: list[tuple[bytes, bytes | None]], table: TableWrites) -> None:
    """Encode the changes of one table, and append them to `encoded`."""
    kind, queue, part, rows = table
    prefix, write_tail = table_prefix(kind, queue, part), tail_writer(kind)
    write_value = value_writer(kind)
    for key, value in rows.items():
        raw = None if value is None else write_value(value)
        encoded.append((prefix + write_tail(key), raw))


def without_bodies(
    writes: Iterable[tuple[bytes, bytes | None]],
) -> list[tuple[bytes, bytes | None]]:
    """The same writes for the changelog: non-persistent messages have no body (R82)."""
    return [(key, None if value is None else without_body(key, value)) for key, value in writes]
