"""A shorter history that fails as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_Step = TypeVar("_Step")


def shortest(
    steps: tuple[_Step, ...], fails: Callable[[tuple[_Step, ...]], bool]
) -> tuple[_Step, ...]:
    """Leave steps out, many at a time at first, as long as it still fails."""
    size = max(len(steps) // 2, 1)
    while True:
        start = 0
        left_out = False
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if fails(fewer):
                steps = fewer
                left_out = True
            else:
                start += size
        if size == 1 and not left_out:
            return steps
        size = max(size // 2, 1)
