"""Whether a function in C refuses what makes no sense, and keeps objects alive."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

REFUSALS = (TypeError, ValueError, OverflowError, AttributeError)
"""What functions in C raise if their arguments make no sense."""


def cut(value: Any) -> Any:
    """A value of the same class with its first field alone, as `tuple.__new__` makes it."""
    return tuple.__new__(type(value), value[:1])


def assert_keeps_nothing(calls: Sequence[Callable[[], Any]], values: Sequence[Any]) -> None:
    """Assert that calls, which may be refused, keep neither the values nor anything else alive."""

    def run() -> None:
        for call in 200 * [*calls]:
            try:
                call()
            except REFUSALS:
                continue
        gc.collect()

    run()  # Python keeps some memory for what comes next
    growth = []
    for _ in range(3):  # other threads of the process may allocate something during one of them
        before, blocks = [sys.getrefcount(value) for value in values], sys.getallocatedblocks()
        run()
        assert [sys.getrefcount(value) for value in values] == before
        growth.append(sys.getallocatedblocks() - blocks)
    assert min(growth) < 100
