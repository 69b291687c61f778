"""Run one history, and shrink one that fails."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tests.shortest import shortest
from tests.sim.plan import Plan, random_plan
from tests.sim.script import STEPS, Script, Step
from tests.sim.world import World

_KEPT = ("has_non_persistent", "as_artemis", "step_transitions")
"""Of a plan, what a shorter history needs as well."""


class History(NamedTuple):
    """Everything that a run depends on."""

    plan: Plan
    steps: Sequence[Step]

    def __str__(self) -> str:
        """Python code that can be pasted into a test."""
        steps = "".join(f"        {step!r},\n" for step in self.steps)
        return f"play(\n    {self.plan!r},\n    [\n{steps}    ],\n)"


def history(seed: int, count: int = STEPS) -> History:
    rng = random.Random(seed)
    plan = random_plan(rng)
    return History(plan, Script(rng, plan).steps(count))


def play(plan: Plan, steps: Sequence[Step]) -> World:
    """Run the steps, then compare the accounts.

    Raises:
        Wrong: the topics break the contract.
        Exception: a worker has died.
    """
    world = World(plan)
    try:
        for step in steps:
            world.do(step)
        world.finish()
    finally:
        world.close()
    return world


def failure(given: History, events: Counter[str] | None = None) -> str:
    """What is wrong with a history; empty if nothing is. `events`: counts the events by name."""
    try:
        world = play(*given)
    except Exception as error:
        return "".join(traceback.format_exception_only(error)).strip()
    if events is not None:
        events.update(world.events)
    return ""


def shrink(given: History, fails: Callable[[History], object]) -> History:
    """Leave out steps, then settings, as long as the history still fails."""
    steps = shortest(tuple(given.steps), lambda fewer: bool(fails(given._replace(steps=[*fewer]))))
    given = given._replace(steps=[*steps])
    for plan in _plainer(given.plan):
        merged = plan(given.plan)
        if merged != given.plan and fails(given._replace(plan=merged)):
            given = given._replace(plan=merged)
    return given


def _plainer(plan: Plan) -> Iterator[Callable[[Plan], Plan]]:
    """Ways to remove one thing from a plan."""
    what = {name: getattr(plan, name) for name in _KEPT}
    yield lambda now: Plan(now.queues, now.addresses, **what)
    yield lambda now: now._replace(step_transitions=Plan({}, {}).step_transitions)
    yield lambda now: now._replace(addresses={})
    for queue, settings in plan.queues.items():
        yield partial(_without_queue, queue=queue)
        for name in settings:
            yield partial(_without_setting, queue=queue, name=name)


def _without_queue(plan: Plan, queue: str) -> Plan:
    return plan._replace(queues=_without(plan.queues, queue))


def _without_setting(plan: Plan, queue: str, name: str) -> Plan:
    if queue not in plan.queues:
        return plan
    return plan._replace(queues={**plan.queues, queue: _without(plan.queues[queue], name)})


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in fields.items() if each != name}
