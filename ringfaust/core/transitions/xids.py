"""Stores distributed transactions and their operations (R81)."""

from __future__ import annotations

from ringfaust.core.model import Operation, XidRow
from ringfaust.core.state import State


def begin(state: State, name: str) -> None:
    """Open a transaction, last in the order of begin."""
    number = max((number for number, _ in state.xids), default=0) + 1
    state.xids.put_new(number, XidRow(name, False, 0))


def prepare(state: State, number: int, row: XidRow) -> None:
    """Mark a transaction as prepared: from now on it survives restarts."""
    state.xids.put(number, row._replace(prepared=True))


def add_operation(state: State, number: int, row: XidRow, operation: Operation) -> XidRow:
    """Append an operation; the transaction's row after it."""
    row = row._replace(operations=row.operations + 1)
    state.operations(number).put_new(row.operations, operation)
    state.xids.put(number, row)
    return row


def close(state: State, number: int) -> list[Operation]:
    """Remove a transaction; its operations, in order."""
    table = state.operations(number)
    rows = list(table)
    for key, _ in rows:
        table.delete(key)
    state.xids.delete(number)
    return [operation for _, operation in rows]
