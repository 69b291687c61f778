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


def take_operation(state: State, number: int) -> Operation | None:
    """Remove the first operation of a transaction, and return it; None if there is none."""
    table = state.operations(number)
    row = table.first()
    if row is None:
        return None
    table.delete(row[0])
    return row[1]  # type: ignore[no-any-return]


def remove(state: State, number: int) -> None:
    """Remove a transaction without operations."""
    state.xids.delete(number)
