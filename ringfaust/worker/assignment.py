"""The partitions of this worker: opened when the group assigns them, and handed over afterwards.

A change concerns only what it moves (R124). A partition that stays is not touched, and one that
moves is served until its next owner has caught up and shuts this one out.

The topics that are read without repartition are assigned together: one `partition_task` reads the
same partition of all of them, and of the control and hop topics. Each partition of a repartitioned
topic is assigned on its own, to a `repartition_task`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence, Set
from functools import partial

from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.config.topics import GROWN_REMEDY
from ringfaust.errors import RingfaustError
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import Route
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.faust.shares import Held
from ringfaust.worker.interfaces import Batch
from ringfaust.worker.partition.repartition import repartition_task
from ringfaust.worker.partition.task import Task
from ringfaust.worker.partition.work import PartitionWork, partition_task
from ringfaust.worker.store.data_dir import written_ms
from ringfaust.worker.store.follower import Follower
from ringfaust.worker.store.standbys import Standbys

log = logging.getLogger(__name__)

_WATCH_S = 5.0
"""How often the ids of the topics are compared with those that the tasks know."""

_LAST_HANDOVER_S = 5.0
"""How long a worker that stops serves a partition that nobody else opens."""

_END_TIMEOUT_S = 1.0
"""How long the client may take to end its membership. During a rebalance it waits for the other
members, until this one has left."""

_LEAVE_TIMEOUT_S = 5.0


class NotCopartitioned(RingfaustError):
    """This worker was assigned a partition of one input topic and not of another.

    What to do: give all topics that are read directly the same number of partitions;
    `ringfaust topics verify` names the one that differs.
    """


class Assignment:
    """Runs the tasks of the assigned partitions; an `AssignmentListener` of the transport."""

    def __init__(self, context: WorkerContext, repartitioned: Sequence[Route]) -> None:
        """`repartitioned`: the routes whose records are repartitioned."""
        self._context = context
        ours = (context.topics[Role.CONTROL], context.topics[Role.HOP])
        direct = (route.topic for route in context.processor_config.routes)
        self._copartitioned = frozenset({*ours, *direct})
        self._repartitioned = {route.topic: route for route in repartitioned}
        self._tasks: dict[TP, Task] = {}
        """Also those that are handed over, until they are closed."""
        self._found = written_ms(context.data_dir)
        """By partition whose folder existed at the start: when it was written last."""
        self._followers: dict[int, Follower] = {}
        """The stores, by partition, as long as the worker runs."""
        self.standbys = Standbys(context, self._follower)
        """The partitions that it follows, for others to see."""
        self._handovers: dict[Task, asyncio.Task[None]] = {}
        self._closing: dict[asyncio.Task[None], frozenset[TP]] = {}
        self._beside: list[asyncio.Task[None]] = []
        """What runs beside the tasks."""
        self._is_stopping = False

    @property
    def topics(self) -> frozenset[str]:
        """All input topics."""
        return self._copartitioned | self._repartitioned.keys()

    @property
    def stored_topics(self) -> frozenset[str]:
        """The topics whose partitions have a store, one for a partition of all of them."""
        return self._copartitioned

    @property
    def takes_standbys(self) -> bool:
        """Whether this worker follows partitions of others."""
        return self._context.takes_standbys

    @property
    def level(self) -> int:
        """The highest feature level that this worker knows to be in use (R129). Any thread."""
        works = (task.work for task in self.tasks if not task.trouble)
        found = [work.state.level for work in works if isinstance(work, PartitionWork)]
        return max([self._context.level, *found])

    def held(self) -> dict[int, Held]:
        """What the worker has of each partition's state. Any thread."""
        held = {number: Held(0, ms) for number, ms in self._found.items()}
        for number, follower in [*self._followers.items()]:
            if (offset := follower.offset) is not None:
                held[number] = Held(offset)
        return held

    @property
    def tasks(self) -> Set[Task]:
        """The tasks of the assigned partitions."""
        return {*self._tasks.values()} - self._handovers.keys()

    def offer(self, batch: Batch) -> None:
        """Pass a fetched batch to its task. A batch of a closed partition is dropped."""
        task = self._tasks.get(batch.tp)
        if task is not None:
            task.offer(batch)

    def on_unreadable(self, tp: TP) -> None:
        """Let the task find out what has become of the topic, or of the records."""
        task = self._tasks.get(tp)
        if task is not None:
            task.check_inputs(f"{tp.topic} cannot be read at its position")

    async def on_assigned(self, tps: frozenset[TP], standbys: frozenset[int]) -> None:
        """Open what is new, and hand over what is not assigned any more.

        Args:
            tps: what this worker serves.
            standbys: the partitions whose changelog it follows (R127).

        Raises:
            NotCopartitioned: some topics that belong together are assigned to other workers.
        """
        if self._is_stopping:
            return
        wanted, running = self._wanted(tps), {task.work.tps: task for task in self.tasks}
        for each in running.keys() - wanted.keys():
            is_ours = bool(each & tps)  # one of its topics was created or deleted
            self._give_up(running[each], hands_over=not is_ours)
        served = {tp.partition for tp in tps if tp.topic in self._copartitioned}
        self.standbys.follow(standbys - served, served)
        for each in wanted.keys() - running.keys():
            self._take_over(wanted[each]())
        if not self._beside:
            for work in (self._watch_topics(), self.standbys.run()):
                self._beside.append(asyncio.ensure_future(work))
                self._beside[-1].add_done_callback(self._on_end)
        log.info("assigned: %s", "; ".join(sorted(task.work.name for task in self.tasks)))

    def _take_over(self, task: Task) -> None:
        """Open a partition, after this worker has closed it itself, if it still has it."""
        tps = task.work.tps
        before = [closing for closing, those in self._closing.items() if those & tps]
        for leaving in {self._tasks[tp] for tp in tps & self._tasks.keys()}:
            self._handovers[leaving].cancel()
        self._tasks |= dict.fromkeys(tps, task)
        if before:
            waiting = asyncio.ensure_future(self._start_after(before, task))
            self._closing[waiting] = frozenset()
            waiting.add_done_callback(self._on_closed)
        else:
            task.start()

    async def _start_after(self, before: Collection[asyncio.Task[None]], task: Task) -> None:
        await asyncio.wait(before)
        if task in self.tasks:
            task.start()

    def _give_up(self, task: Task, *, hands_over: bool) -> None:
        """Close a partition. `hands_over`: another worker is going to open it."""
        handover = asyncio.ensure_future(task.hand_over())
        self._handovers[task] = handover
        if not hands_over:
            handover.cancel()
        closing = asyncio.ensure_future(self._close(task, handover))
        self._closing[closing] = task.work.tps
        closing.add_done_callback(self._on_closed)

    async def _close(self, task: Task, handover: asyncio.Task[None]) -> None:
        await asyncio.wait({handover})
        await task.close()
        del self._handovers[task]
        for tp in task.work.tps:
            if self._tasks.get(tp) is task:
                del self._tasks[tp]
        self._context.reader().stop_reading(task.work.tps)

    def _on_closed(self, closing: asyncio.Task[None]) -> None:
        del self._closing[closing]
        self._on_end(closing)

    def _on_end(self, ended: asyncio.Task[None]) -> None:
        """Stop the worker on an error that nobody expects."""
        if not ended.cancelled() and (error := ended.exception()) is not None:
            self._context.crash(error)

    async def _watch_topics(self) -> None:
        """Notice what has become of the topics, even while nobody reads them (R111).

        A changelog that was created again lacks what the rings hold: opening the partitions refuses
        it, before more is written to it.

        The Kafka client notices topics that are deleted and created, too, and joins the group
        again; but it forgets that if it notices while the group is being rebalanced.
        """
        watched = {*self.topics, self._context.topics[Role.CHANGELOG]}
        changed: set[str] = set()
        missing: Set[str] = frozenset()
        while True:
            await asyncio.sleep(_WATCH_S)
            tasks = self.tasks
            try:
                found = (await self._context.topic_ids(watched)).topics
            except (TimeoutError, KafkaError, OSError) as error:
                log.debug("cannot read the ids of the topics: %r", error)
                continue
            for task in tasks & self.tasks:
                if task.trouble:
                    continue  # opening it compares them
                for topic, known in task.work.topic_ids().items():
                    if known and found.get(topic, known) not in (known, ""):
                        task.check_inputs(f"{topic} was created again")
            read = {tp.topic for task in tasks for tp in task.work.tps}
            for topic in sorted((gone := self.topics - found.keys()) - missing):
                log.warning(
                    "topic %s does not exist: it was deleted. It is read again once it exists; or "
                    "remove its route from queues.yaml and restart the workers", topic,
                )  # fmt: skip
            missing = gone
            before, changed = changed, {*(read - found.keys())}
            if tasks:  # partitions of a repartitioned topic may all belong to other workers
                changed |= (self._copartitioned & found.keys()) - read
            if missed := sorted(before & changed):
                log.info("joining the group again: %s was deleted or created", ", ".join(missed))
                self._context.reader().rejoin()
                changed.clear()

    def _wanted(self, tps: frozenset[TP]) -> dict[frozenset[TP], Callable[[], Task]]:
        """By the partitions that it reads: what creates each task of an assignment.

        A topic of which nothing is assigned does not exist, or did not when the group was last
        rebalanced. It is left out until the rebalance that brings it.
        """
        grown = {tp.topic for tp in tps if tp.partition >= self._context.partitions}
        for topic in sorted(grown & self._copartitioned):
            raise NotCopartitioned(
                f"topic {topic} has got more than the {self._context.partitions} partitions of "
                f"this application, and is read without the hop. {GROWN_REMEDY}"
            )
        topics_of: dict[int, set[str]] = {}
        wanted: dict[frozenset[TP], Callable[[], Task]] = {}
        for tp in sorted(tps):
            if tp.topic in self._copartitioned:
                topics_of.setdefault(tp.partition, set()).add(tp.topic)
            elif tp.topic in self._repartitioned:
                route = self._repartitioned[tp.topic]
                new = partial(repartition_task, route, tp.partition, self._context)
                wanted[frozenset({tp})] = new
        present = {tp.topic for tp in tps}
        for number, topics in sorted(topics_of.items()):
            if missing := (self._copartitioned & present) - topics:
                raise NotCopartitioned(
                    f"partition {number} of {sorted(missing)} is assigned to another worker: "
                    "the topics have different numbers of partitions"
                )
            follower = self._follower(number)
            new = partial(partition_task, follower, frozenset(topics), self._context)
            wanted[frozenset(TP(topic, number) for topic in topics)] = new
        return wanted

    def _follower(self, number: int) -> Follower:
        return self._followers.setdefault(number, Follower(number, self._context))

    async def on_stop(self, *, is_orderly: bool) -> None:
        """Leave the group, serve the partitions until other workers have them, and close them.

        Args:
            is_orderly: no error has stopped the worker.
        """
        self._is_stopping = True
        for each in self._beside:
            each.cancel()
        hands_over = await self._leave_to_others() and is_orderly
        for task in self.tasks:
            self._give_up(task, hands_over=hands_over)
        if self._handovers:
            await asyncio.wait({*self._handovers.values()}, timeout=_LAST_HANDOVER_S)
        for handover in self._handovers.values():
            handover.cancel()
        await asyncio.gather(*self._closing, self.standbys.stop(), return_exceptions=True)

    async def _leave_to_others(self) -> bool:
        """Leave the group. Returns whether other workers are in it."""
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await self._context.reader().end_membership()
        except (TimeoutError, KafkaError) as error:  # after a crash the client has stopped
            log.debug("the client does not end its membership: %r", error)
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                return await self._context.leave_group()
        except (TimeoutError, KafkaError, OSError, RingfaustError) as error:
            log.debug("cannot leave the group in order: %r", error)
            return False
