"""The partitions that are assigned to this worker: opened on assignment, closed on revocation.

The topics that are read without repartition are assigned together: one `partition_task` reads the
same partition of all of them, and of the control and hop topics. Each partition of a repartitioned
topic is assigned on its own, to a `repartition_task`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from faust.types import TP

from ringfaust.config.topics import GROWN_REMEDY
from ringfaust.errors import RingfaustError
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import Route
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import Batch
from ringfaust.worker.partition.repartition import repartition_task
from ringfaust.worker.partition.task import RETRY_MAX_S, RETRY_MIN_S, Task
from ringfaust.worker.partition.work import partition_task

log = logging.getLogger(__name__)

_WATCH_S = 5.0
"""How often the ids of the topics are compared with those that the tasks know."""

_REJOIN_AFTER_S = 4.0
"""A topic that has been missing since an assignment for longer than about this was deleted, and the
client has missed that."""


class NotCopartitioned(RingfaustError):
    """This worker was assigned a partition of one input topic and not of another.

    What to do: give all topics that are read directly the same number of partitions;
    `ringfaust topics verify` names the one that differs.
    """


class Assignment:
    """Runs the tasks of the assigned partitions; a `RebalanceListener` of the transport."""

    def __init__(self, context: WorkerContext, repartitioned: Sequence[Route]) -> None:
        """`repartitioned`: the routes whose records are repartitioned."""
        self._context = context
        ours = (context.topics[Role.CONTROL], context.topics[Role.HOP])
        direct = (route.topic for route in context.processor_config.routes)
        self._copartitioned = frozenset({*ours, *direct})
        self._repartitioned = {route.topic: route for route in repartitioned}
        self._tasks: dict[TP, Task] = {}
        self._opening: list[Task] = []
        self._watch: asyncio.Task[None] | None = None

    @property
    def topics(self) -> frozenset[str]:
        """All input topics."""
        return self._copartitioned | self._repartitioned.keys()

    @property
    def tasks(self) -> Collection[Task]:
        """The tasks of the assigned partitions, also while they are opened."""
        return self._opening or {*self._tasks.values()}

    def offer(self, batch: Batch) -> None:
        """Pass a fetched batch to its task. A batch of a revoked partition is dropped."""
        task = self._tasks.get(batch.tp)
        if task is not None:
            task.offer(batch)

    def on_unreadable(self, tp: TP) -> None:
        """Let the task find out what has become of the topic, or of the records."""
        task = self._tasks.get(tp)
        if task is not None:
            task.check_inputs(f"{tp.topic} cannot be read at its position")

    async def on_assigned(self, tps: frozenset[TP]) -> Mapping[TP, int]:
        """Open the assigned partitions. Returns the offsets to start at.

        Raises:
            NotCopartitioned: some topics that belong together are assigned to other workers.
            StopsWorker: the worker must not run.
        """
        wait_s = RETRY_MIN_S
        while True:
            try:
                tasks = self._new_tasks(tps, await self._absent_topics(tps))
                positions = await self._open(tasks)
                break
            except (TimeoutError, KafkaError, OSError) as error:
                if isinstance(error, UnknownTopicOrPartitionError) and wait_s > _REJOIN_AFTER_S:
                    self._context.reader().rejoin()
                log.warning(
                    "cannot open the assigned partitions (%r); retrying in %.1f s", error, wait_s
                )
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)
        self._tasks, self._opening = {tp: task for task in tasks for tp in task.work.tps}, []
        for task in tasks:
            task.start()
        self._watch = asyncio.ensure_future(self._watch_topics())
        log.info("assigned: %s", "; ".join(task.work.name for task in tasks))
        return positions

    async def _absent_topics(self, tps: frozenset[TP]) -> frozenset[str]:
        """The input topics of which nothing is assigned.

        They do not exist, or did not when the group was last rebalanced. They are left out until
        the rebalance that brings them.
        """
        absent = self.topics - {tp.topic for tp in tps}
        if not absent:
            return frozenset()
        for topic in sorted(absent - (await self._context.topic_ids(absent)).topics.keys()):
            log.warning(
                "topic %s does not exist: it was deleted. It is read again once it exists; or "
                "remove its route from queues.yaml and restart the workers", topic,
            )  # fmt: skip
        return absent

    async def _watch_topics(self) -> None:
        """Notice what has become of the topics, even while nobody reads them (R111).

        A changelog that was created again lacks what the rings hold: opening the partitions refuses
        it, before more is written to it.

        The Kafka client notices topics that are deleted and created, too, and joins the group
        again; but it forgets that if it notices while the group is being rebalanced.
        """
        watched = {*self.topics, self._context.topics[Role.CHANGELOG]}
        changed: set[str] = set()
        while True:
            await asyncio.sleep(_WATCH_S)
            tasks = {*self._tasks.values()}
            try:
                found = (await self._context.topic_ids(watched)).topics
            except (TimeoutError, KafkaError, OSError) as error:
                log.debug("cannot read the ids of the topics: %r", error)
                continue
            for task in tasks & {*self._tasks.values()}:
                if task.trouble:
                    continue  # opening it compares them
                for topic, known in task.work.topic_ids().items():
                    if known and found.get(topic, known) not in (known, ""):
                        task.check_inputs(f"{topic} was created again")
            read = {tp.topic for tp in self._tasks}
            before, changed = changed, {*(read - found.keys())}
            if tasks:  # partitions of a repartitioned topic may all belong to other workers
                changed |= (self._copartitioned & found.keys()) - read
            if missed := sorted(before & changed):
                log.info("joining the group again: %s was deleted or created", ", ".join(missed))
                self._context.reader().rejoin()
                changed.clear()

    def _new_tasks(self, tps: frozenset[TP], absent: frozenset[str]) -> list[Task]:
        """The tasks that read these partitions, not open yet.

        Args:
            tps: what is assigned.
            absent: topics of which nothing is assigned.
        """
        grown = {tp.topic for tp in tps if tp.partition >= self._context.partitions}
        for topic in sorted(grown & self._copartitioned):
            raise NotCopartitioned(
                f"topic {topic} has got more than the {self._context.partitions} partitions of "
                f"this application, and is read without the hop. {GROWN_REMEDY}"
            )
        topics_of: dict[int, set[str]] = {}
        tasks: list[Task] = []
        for tp in sorted(tps):
            if tp.topic in self._copartitioned:
                topics_of.setdefault(tp.partition, set()).add(tp.topic)
            elif tp.topic in self._repartitioned:
                route = self._repartitioned[tp.topic]
                tasks.append(repartition_task(route, tp.partition, self._context))
        for number, topics in sorted(topics_of.items()):
            if missing := self._copartitioned - topics - absent:
                raise NotCopartitioned(
                    f"partition {number} of {sorted(missing)} is assigned to another worker: "
                    "the topics have different numbers of partitions"
                )
            tasks.append(partition_task(number, frozenset(topics), self._context))
        return tasks

    async def _open(self, tasks: Sequence[Task]) -> dict[TP, int]:
        """Open the tasks. One that cannot be opened now tries again by itself, or stops (R123)."""
        bounds = await self._context.read_bounds([tp for task in tasks for tp in task.work.tps])
        opening = [
            asyncio.ensure_future(task.open({tp.topic: bounds[tp] for tp in task.work.tps}))
            for task in tasks
        ]
        self._opening = [*tasks]
        try:
            opened = await asyncio.gather(*opening)
        except BaseException:
            # Leave none half open for the next attempt, or for the next owner.
            for attempt in opening:
                attempt.cancel()
            await asyncio.wait(opening)
            await asyncio.gather(*(task.close() for task in tasks))
            raise
        return {
            tp: positions[tp.topic]
            for task, positions in zip(tasks, opened, strict=True)
            for tp in task.work.tps
            if tp.topic in positions
        }

    async def on_revoked(self, tps: frozenset[TP]) -> None:
        """Close all tasks, so that the next owner finds everything committed."""
        if self._watch is not None:
            self._watch.cancel()
        tasks, self._tasks, self._opening = {*self._tasks.values()}, {}, []
        await asyncio.gather(*(task.close() for task in tasks))
