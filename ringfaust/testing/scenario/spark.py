"""Scenarios on the Spark host: one running job serves many files at once, each in a partition.

A step costs a micro-batch, whatever is in it: so files are played side by side. By public protocol
alone (see `kafka`); the job may repeat its output after a crash.

A crash kills the job that all files share. So the files that have one go first, and each waits at
its crash until all of them stand at one: one kill for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from threading import Condition

from ringfaust.testing.process import Process
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.channel import WorkerChannel
from ringfaust.testing.scenario.kafka import KafkaScenarioHost
from ringfaust.testing.scenario.loop_thread import LoopThread
from ringfaust.testing.scenario.partition import (
    START_SECONDS,
    ScenarioPartition,
    open_channel,
    prepare,
)
from ringfaust.testing.scenario.player import play

PARALLEL_FILES = 16
"""Partitions, and so files that are played side by side."""
_TASKS = 2


class SparkHarness:
    """Starts broker and job for the first file, and serves all of them.

    Args:
        bootstrap_servers: a broker of the user's own; none: one is started for this.
    """

    capabilities: frozenset[str] = frozenset()
    parallel_files = PARALLEL_FILES

    def __init__(self, bootstrap_servers: str | None) -> None:
        self._servers = bootstrap_servers
        self._opened = ExitStack()
        self._free: SimpleQueue[ScenarioPartition] = SimpleQueue()
        self._files = 0

    def open(self) -> None:
        """Start everything.

        Raises:
            WorkerFailed: the job does not start; the end of its log is told.
        """
        try:
            self._open()
        except BaseException:
            self._opened.close()
            raise

    def close(self) -> None:
        """End what was started, and leave nothing behind."""
        self._opened.close()

    def play(self, scenario: g.Scenario) -> None:
        """Play a file; several threads may do so at once.

        Raises:
            Difference: it does not hold.
        """
        partition = self._free.get()
        self._files += 1
        try:
            with self._crashes.taking_part(scenario.crashes() or scenario.has_xids()):
                play(scenario, KafkaScenarioHost(partition, f"file-{self._files}."))
        finally:
            self._free.put(partition)

    def _open(self) -> None:
        opened = self._opened
        folder, config, queues = prepare(opened, self._servers, PARALLEL_FILES)
        arguments = [
            "spark", "ring", "--config", str(folder), "--checkpoint", str(folder / "checkpoint"),
            "--trigger-ms", "0", "--tasks", str(_TASKS),
        ]  # fmt: skip
        job = Process(arguments, folder / "job.log")
        opened.callback(job.stop)
        self._crashes = SharedCrashes(job)
        job.start()
        loop = opened.enter_context(LoopThread())
        for partition in range(PARALLEL_FILES):
            channel = open_channel(
                opened,
                loop,
                lambda partition=partition: WorkerChannel(  # type: ignore[misc]
                    config.bootstrap_servers,
                    config.application,
                    job,
                    partition,
                    answer_seconds=START_SECONDS,
                    drops_repeats=True,
                ),
            )
            self._free.put(ScenarioPartition(loop, channel, config, queues, self._crashes.crash))


class SharedCrashes:
    """Kills the job once for all files that stand at a crash."""

    def __init__(self, job: Process) -> None:
        self._job = job
        self._turn = Condition()
        self._parts = 0
        self._waiting = 0
        self._done = 0

    @contextmanager
    def taking_part(self, takes_part: bool) -> Iterator[None]:
        """While a file is played that has a crash, or one that a crash would change."""
        with self._turn:
            self._parts += takes_part
        try:
            yield
        finally:
            with self._turn:
                self._parts -= takes_part
                self._look()

    def crash(self) -> None:
        """Return when the job has been killed and started again."""
        with self._turn:
            self._waiting += 1
            before = self._done
            self._look()
            self._turn.wait_for(lambda: self._done > before)

    def _look(self) -> None:
        if self._waiting and self._waiting >= self._parts:
            self._job.kill()
            self._job.start()
            self._waiting = 0
            self._done += 1
            self._turn.notify_all()
