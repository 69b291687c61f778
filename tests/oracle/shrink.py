"""A shorter history that shows a difference as well."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracle.operations import History

Fails = Callable[[History], bool]


def shrink(history: History, fails: Fails) -> History:
    """Leave operations out, many at a time at first, as long as it still fails."""
    operations = history.operations
    size = max(len(operations) // 2, 1)
    while True:
        start = 0
        left_out = False
        while start < len(operations):
            fewer = operations[:start] + operations[start + size :]
            if fails(history._replace(operations=fewer)):
                operations = fewer
                left_out = True
            else:
                start += size
        if size == 1 and not left_out:
            return history._replace(operations=operations)
        size = max(size // 2, 1)
