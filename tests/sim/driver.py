"""One task, driven by hand: its cycles and its commits, when the script says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.worker.interfaces import InputChanged
from ringfaust.worker.partition.stopped import Stopped
from ringfaust.worker.partition.task import FENCED, Task
from ringfaust.worker.partition.work import PartitionWork
from tests.sim.faults import CAUSED
from tests.sim.kafka import Journal, LateCommit, NoOrder, Reader

_LOOP_ROUNDS = 3
"""Of the event loop: it runs a look-up, then tells the task."""


class Sleep:
    """Yielded by a coroutine that waits for time to pass."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[Sleep, None, None]:
        yield self


class SteppedCommit:
    """A commit slot whose commit is driven from pause to pause."""

    def __init__(self) -> None:
        self._commit: Coroutine[Any, Any, None] | None = None
        self._on_done: Callable[[], None] = lambda: None
        self._error: KafkaError | None = None
        self._is_waited_for = True
        self._pauses = 0
        """How many pauses are left until a commit fails; 0: none does."""

    @property
    def is_running(self) -> bool:
        return self._commit is not None

    @property
    def is_done(self) -> bool:
        return self._commit is None and not self._is_waited_for

    def submit(self, commit: Coroutine[Any, Any, None], on_done: Callable[[], None]) -> None:
        assert self._commit is None, "two commits are in flight"
        self._commit, self._on_done, self._is_waited_for = commit, on_done, False

    async def wait(self) -> None:
        while self._commit is not None:
            self.drive()
        self._is_waited_for = True
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def wait_or(self, arrived: asyncio.Event) -> None:
        while self._commit is not None:
            self.drive()

    async def cancel(self) -> None:
        self.lose()

    def drive(self, error: Exception | None = None) -> None:
        """Run the commit to its next pause, or make it fail there."""
        if self._commit is None:
            return
        if error is None and self._pauses:
            self._pauses -= 1
            error = None if self._pauses else LateCommit()
        try:
            if error is None:
                self._commit.send(None)
            else:
                self._commit.throw(error)
        except StopIteration:
            self._end(None)
        except KafkaError as failed:
            self._end(failed)

    def fail_after(self, pauses: int) -> None:
        """Let the next commit fail there, if it has so many pauses; 0: let none fail."""
        self._pauses = pauses + 1 if pauses else 0

    def _end(self, error: KafkaError | None) -> None:
        self._commit, self._error = None, error
        self._on_done()

    def lose(self) -> None:
        """Drop the commit, as in a crash."""
        if self._commit is not None:
            self._commit.close()
        self._commit, self._error, self._is_waited_for = None, None, True


class TaskDriver:
    """Runs one task by hand: its cycles and its commits, when the script says so."""

    def __init__(
        self,
        task: Task,
        commit: SteppedCommit,
        reader: Reader,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._task = task
        self._loop = loop
        self.given = task.work.tps
        """Its input partitions at the assignment; it reads those whose topics have a route."""
        self._commit = commit
        self._reader = reader
        self._journal = journal
        self._rest: Coroutine[Any, Any, None] | None = None
        """What waits because the producer was fenced, or for an order."""

    @property
    def tps(self) -> frozenset[TP]:
        return self._task.work.tps

    @property
    def is_fenced(self) -> bool:
        return self._rest is not None and self._task.trouble == FENCED

    @property
    def stopped(self) -> Stopped | None:
        return self._task.stopped

    @property
    def unanswered(self) -> set[str]:
        """The `reply` of each order that it has read and not answered."""
        return self._journal.unanswered

    def open(self) -> None:
        """The unit is assigned."""
        if isinstance(self._task.work, PartitionWork):
            self._journal.old_log = {tp.topic: self._reader.last_offset(tp) for tp in self.tps}
        self._run(self._task.open())
        self._check_failure()

    def offer(self, batch: Any) -> None:
        self._task.offer(batch)

    def forget_old_log(self, topic: str) -> None:
        """The log of the assignment is gone: nothing has to wait for it."""
        self._journal.old_log.pop(topic, None)

    def knows(self, tp: TP) -> str:
        """The id of the topic as the task knows it; empty: opening the partition looks it up."""
        task = self._task
        return "" if task.trouble else task.work.topic_ids().get(tp.topic, "")

    def check_inputs(self, tp: TP) -> None:
        self._task.check_inputs(InputChanged(f"{tp} cannot be read"))

    def is_idle(self) -> bool:
        """Whether it has taken all that has arrived, and ticks."""
        work = self._task.work
        is_waiting = isinstance(work, PartitionWork) and not work.is_caught_up
        has_work = self._task.buffer.arrived.is_set() or self._task.has_left
        return not (has_work or is_waiting or self._rest is not None)

    def cycle(self) -> None:
        """Run one cycle. A fenced task has waited until now, and no rebalance came."""
        if self._task.is_handed_over:
            return
        rest, self._rest = self._rest, None
        if rest is not None:
            self._run(rest)
        if self._rest is None:
            self._loop.run_until_complete(self._run_cycle())
        self._check_failure()
        if self._rest is None and self.stopped is None:
            self._journal.forget_what_was_read({tp.topic for tp in self.tps})

    async def _run_cycle(self) -> None:
        """Run a cycle; then what it has begun to look up is found."""
        task = self._task
        self._run(task.run_cycle() if task.stopped is None else task.wait_for_order())
        for _ in range(_LOOP_ROUNDS):
            await asyncio.sleep(0)

    def _check_failure(self) -> None:
        """No error is lasting but those that the script causes."""
        for error in (self._task.failure, self.stopped and self.stopped.error):
            if error is not None and not isinstance(error, CAUSED):
                raise error

    def fail_after(self, pauses: int) -> None:
        """Let the next commit fail after so many pauses."""
        self._commit.fail_after(pauses)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end. Whenever it yields to the network, the commit advances."""
        while True:
            try:
                waits_for = work.send(None)
            except StopIteration as done:
                return done.value
            is_sleep = isinstance(waits_for, Sleep)
            if isinstance(waits_for, NoOrder) or (is_sleep and self._task.trouble == FENCED):
                self._rest = work
                return None
            if not is_sleep:
                self._commit.drive()

    def drive_commit(self, error: Exception | None = None) -> None:
        """Run the commit in flight to its next pause, or make it fail there."""
        self._commit.drive(error)

    def hand_over(self) -> None:
        """The unit is assigned to another worker; this one serves it until that one has it."""
        self._lose_rest()
        self._run(self._task.hand_over())

    def close(self) -> None:
        """The unit is revoked."""
        self._lose_rest()
        self._run(self._task.close())

    def crash(self) -> None:
        """The process is gone, with what it was about to write."""
        self._lose_rest()
        self._commit.lose()

    def _lose_rest(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.close()
