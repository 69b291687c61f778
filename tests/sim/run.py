"""One history, and the shortest one that fails as well."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.sim.host import virtual
from tests.sim.plan import Plan, random_plan
from tests.sim.script import STEPS, Script, Step
from tests.sim.world import World


class History(NamedTuple):
    """All that a run depends on."""

    plan: Plan
    steps: Sequence[Step]

    def __str__(self) -> str:
        """As Python, to be pasted into a test."""
        steps = "".join(f"        {step!r},\n" for step in self.steps)
        return f"play(\n    {self.plan!r},\n    [\n{steps}    ],\n)"


def history(seed: int, count: int = STEPS) -> History:
    rng = random.Random(seed)
    plan = random_plan(rng)
    return History(plan, Script(rng, plan).steps(count))


def play(plan: Plan, steps: Sequence[Step]) -> World:
    """Do the steps, then compare the books.

    Raises:
        Wrong: the topics do not say what the contract promises.
        Exception: what a worker died of.
    """
    with virtual(plan):
        world = World(plan)
        try:
            for step in steps:
                world.do(step)
            world.finish()
        finally:
            world.close()
    return world


def fault(given: History) -> str:
    """What is wrong with it, or nothing."""
    try:
        play(*given)
    except Exception as error:
        return "".join(traceback.format_exception_only(error)).strip()
    return ""


def shrink(given: History, fails: Callable[[History], object]) -> History:
    """Leave steps out, many at a time at first, as long as it still fails."""
    steps = list(given.steps)
    size = max(len(steps) // 2, 1)
    while True:
        start, left_out = 0, False
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if fails(given._replace(steps=fewer)):
                steps, left_out = fewer, True
            else:
                start += size
        if size == 1 and not left_out:
            return given._replace(steps=steps)
        size = max(size // 2, 1)
