"""Whether the worker serves its partitions now, and if not, why. Each change is logged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from faust.types import TP

from ringfaust.worker.observe.memory import MemoryBudget
from ringfaust.worker.partition.stopped import Stopped
from ringfaust.worker.partition.task import Task

log = logging.getLogger(__name__)

_LOOK_S = 0.5
"""How often the log is brought up to date."""
_PROGRESS_S = 5.0
"""How often the progress of a recovery is logged."""
LOST_AFTER_S = 5.0
"""Brokers that have not answered for so long are reported as lost."""


class Health:
    """Answers whether the worker is ready, from the state of its tasks."""

    def __init__(
        self,
        tasks: Callable[[], Collection[Task]],
        replaying: Mapping[int, int],
        silent_s: Callable[[], float],
        unconfirmed_s: Callable[[], float],
        memory: MemoryBudget,
        *,
        has_joined: Callable[[], bool],
        late_standbys: Callable[[], Mapping[int, int | None]],
        unreadable: Callable[[], Collection[TP]],
    ) -> None:
        """Look at nothing yet.

        Args:
            tasks: those of the assigned partitions, also while they are opened.
            replaying: by partition, how much of its changelog is left to replay.
            silent_s: for how many seconds the brokers have not answered.
            unconfirmed_s: for how many seconds the group has not confirmed that the worker is a
                member of it.
            memory: the worker's budget.
            has_joined: whether the group has assigned something, which may be nothing: a worker
                beyond the number of partitions is ready to take over.
            late_standbys: by partition whose standby has not caught up yet, how many records it is
                behind; None: that is not known yet.
            unreadable: the inputs that could not be read for `LOST_AFTER_S`.
        """
        self.memory = memory
        self.tasks = tasks
        self._replaying = replaying
        self._silent_s = silent_s
        self._unconfirmed_s = unconfirmed_s
        self._has_joined = has_joined
        self._late_standbys = late_standbys
        self._unreadable = unreadable
        self._logged: list[str] | None = None
        """The problems that were logged last."""
        self._served: list[str] = []
        self._are_lost = False
        self._next_progress_s = 0.0

    @property
    def are_brokers_lost(self) -> bool:
        """Whether the brokers have not answered for a while."""
        return self._silent_s() > LOST_AFTER_S

    def remaining(self, task: Task) -> int:
        """How many records a task must still read before it is caught up, as far as is known."""
        work = task.work
        if task.trouble:
            return self._replaying.get(work.number, 0)
        return 0 if work.is_caught_up else work.remaining_records

    def stopped(self) -> list[tuple[str, Stopped]]:
        """The partitions that wait for an order (R123), each with why."""
        found = [(task.work.unit, task.stopped) for task in self.tasks() if task.stopped]
        return sorted(found, key=lambda each: each[0])

    def problems(self) -> list[str]:
        """Why the worker is not ready; empty: it is."""
        tasks = self.tasks()
        found = [problem for task in tasks if (problem := self._problem(task))]
        for number, left in self._late_standbys().items():
            how = "is being opened" if left is None else f"is {left:,} records behind"
            found.append(f"the standby of partition {number} {how}")
        if not tasks and not self._has_joined():
            found.append("the group has not assigned anything to this worker yet")
        if self.are_brokers_lost:
            found.append("the brokers do not answer")
        else:
            for topic, number in sorted(self._unreadable()):
                found.append(f"{topic}, partition {number}: no leader answers")
            if self._unconfirmed_s() > LOST_AFTER_S:
                found.append("the group's coordinator does not answer")
        if self.memory.is_exceeded:
            found.append("intake is paused: the process has more memory than memory_bytes allows")
        return found

    def _problem(self, task: Task) -> str:
        name = task.work.name
        if not task.trouble and task.work.is_caught_up:
            return f"{name}: {task.work.blocked}" if task.work.blocked else ""
        left = self.remaining(task)
        if task.trouble:
            more = f" ({left:,} records of its changelog left)" if left else ""
            return f"{name}: {task.trouble}{more}"
        return f"{name}: recovering ({left:,} records of its inputs left)"

    async def watch(self) -> None:
        """Log what changes, until cancelled."""
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(_LOOK_S)

    def look(self, now_s: float) -> None:
        """Log what has changed since the last look."""
        self._look_at_brokers()
        problems = self.problems()
        served = [] if problems else sorted(task.work.name for task in self.tasks())
        is_time = not problems or self._logged == [] or now_s >= self._next_progress_s
        if (problems, served) == (self._logged, self._served) or not is_time:
            return
        self._logged, self._served = problems, served
        self._next_progress_s = now_s + _PROGRESS_S
        if problems:
            log.info("not ready: %s", "; ".join(problems))
        else:
            log.info("ready: %s", "; ".join(served) or "no partition is assigned to this worker")

    def _look_at_brokers(self) -> None:
        were_lost, self._are_lost = self._are_lost, self.are_brokers_lost
        if self._are_lost and not were_lost:
            log.warning("the brokers have not answered for %.0f s", self._silent_s())
        elif were_lost and not self._are_lost:
            log.warning("the brokers answer again")
