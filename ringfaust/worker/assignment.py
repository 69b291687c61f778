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
from collections.abc import Collection, Set
from typing import NamedTuple

from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.config.topics import GROWN_REMEDY
from ringfaust.errors import RingfaustError
from ringfaust.protocol.records import Role
from ringfaust.protocol.route_changes import feeds_of, routes_of
from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import Feeds
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.faust.shares import Held
from ringfaust.worker.interfaces import Batch, InputChanged
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


class Unit(NamedTuple):
    """What one task serves."""

    tp: TP
    """A partition of the home topic, for that of all stored topics; or of a repartitioned one."""
    route: Route | None = None
    """Of the repartitioned topic."""


class Assignment:
    """Runs the tasks of the assigned partitions; an `AssignmentListener` of the transport."""

    def __init__(self, context: WorkerContext, feeds: Feeds, revision: int = 0) -> None:
        """Take part with the topics of these routes, until there are newer ones.

        Args:
            context: what the tasks of the worker share.
            feeds: the newest routes.
            revision: of the configuration that has them; 0: nothing was applied yet.
        """
        self._context = context
        self._set_routes(feeds, revision)
        self._assigned: tuple[frozenset[TP], frozenset[int]] | None = None
        """What the group has assigned: to serve, and to follow."""
        self._has_changed = asyncio.Event()
        """Whether the group was rebalanced, which may be because of new routes."""
        self._tasks: dict[TP, Task] = {}
        """By what they have been given. Also those that are handed over, until they are closed."""
        self._units: dict[Task, Unit] = {}
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

    def _set_routes(self, feeds: Feeds, revision: int) -> None:
        direct = (route.topic for route in routes_of(feeds, repartitioned=False))
        self._revision = revision
        self.stored_topics = frozenset({self.home_topic, self._context.topics[Role.HOP], *direct})
        """The topics whose partitions have a store, one for a partition of all of them."""
        self._repartitioned = {route.topic: route for route in routes_of(feeds, repartitioned=True)}

    def use_routes(self, revision: int, feeds: Feeds) -> None:
        """Take part with the topics of these routes from now on, if they are newer (R128).

        The group assigns new topics; until then nobody reads them. Each worker joins it again at
        most once for a revision, so this comes to an end.
        """
        if revision <= self._revision or self._is_stopping:
            return
        topics, repartitioned = self.topics, self._repartitioned
        self._set_routes(feeds, revision)
        if self.topics != topics:
            log.info("the routes of revision %d: %s", revision, ", ".join(sorted(self.topics)))
            self._context.reader().change_topics(self.topics)
        elif self._repartitioned != repartitioned:  # those who only repartition cannot know
            self._context.reader().rejoin()
        self._change_tasks()

    @property
    def has_joined(self) -> bool:
        """Whether the group has assigned something, which may be nothing. Any thread."""
        return self._assigned is not None

    @property
    def topics(self) -> frozenset[str]:
        """All input topics."""
        return self.stored_topics | self._repartitioned.keys()

    @property
    def home_topic(self) -> str:
        """The control topic: who has a partition of it has that of all stored topics."""
        return self._context.topics[Role.CONTROL]

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

    def on_unreadable(self, tp: TP, error: KafkaError) -> None:
        """Let the task find out what has become of the topic, or of the records, or stop."""
        task = self._tasks.get(tp)
        if task is not None:
            task.check_inputs(error)

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
        self._assigned = (tps, standbys)
        self._change_tasks()
        self._has_changed.set()
        if not self._beside:
            for work in (self._watch_topics(), self._watch_routes(), self.standbys.run()):
                self._beside.append(asyncio.ensure_future(work))
                self._beside[-1].add_done_callback(self._on_end)
        log.info("assigned: %s", "; ".join(sorted(task.work.name for task in self.tasks)))

    def _change_tasks(self) -> None:
        """Open, change and give up tasks, so that they are those of the assignment and routes."""
        if self._assigned is None:
            return
        tps, standbys = self._assigned
        wanted, running = self._wanted(tps), {self._units[task]: task for task in self.tasks}
        for unit in running.keys() - wanted.keys():
            self._give_up(running[unit], hands_over=self._has_route(unit))
        for task, handover in self._handovers.items():
            if not self._has_route(self._units[task]):
                handover.cancel()
        served = {unit.tp.partition for unit in wanted if unit.route is None}
        self.standbys.follow(standbys - served, served)
        for unit, topics in wanted.items():
            if unit in running:
                self._give(running[unit], unit, topics)
            else:
                self._take_over(unit, topics)

    def _has_route(self, unit: Unit) -> bool:
        """Whether somebody serves it. Nobody opens what has no route, or another one, any more."""
        return self._repartitioned.get(unit.tp.topic) == unit.route

    def _give(self, task: Task, unit: Unit, topics: frozenset[str]) -> None:
        """Let a task read these topics; it is not closed for that (R128)."""
        tps = {TP(topic, unit.tp.partition) for topic in topics}
        before = {tp for tp, each in self._tasks.items() if each is task}
        if tps == before:
            return
        if gone := before - tps:  # what comes of them from here on would be dropped
            self._context.reader().stop_reading(gone)
        for tp in gone:
            del self._tasks[tp]
        self._tasks |= dict.fromkeys(tps, task)
        task.give(topics)

    def _take_over(self, unit: Unit, topics: frozenset[str]) -> None:
        """Open a partition, after this worker has closed it itself, if it still has it."""
        number = unit.tp.partition
        tps = frozenset(TP(topic, number) for topic in topics)
        if unit.route is None:
            task = partition_task(self._follower(number), topics, self._context)
        else:
            task = repartition_task(unit.route, number, self._context, self._revision)
        self._units[task] = unit
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
        del self._handovers[task], self._units[task]
        for tp in [tp for tp, each in self._tasks.items() if each is task]:
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
        changed: set[str] = set()
        missing: Set[str] = frozenset()
        while True:
            await asyncio.sleep(_WATCH_S)
            tasks = self.tasks
            watched = {*self.topics, self._context.topics[Role.CHANGELOG]}
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
                        task.check_inputs(InputChanged(f"{topic} was created again"))
            read = {tp.topic for tp in self._tasks}
            for topic in sorted((gone := self.topics - found.keys()) - missing):
                log.warning(
                    "topic %s does not exist. It is read once it exists; or remove its route from "
                    "queues.yaml, and run `ringfaust apply`", topic,
                )  # fmt: skip
            missing = gone
            before, changed = changed, {*(read - found.keys())}
            if tasks:  # partitions of a repartitioned topic may all belong to other workers
                changed |= (self.stored_topics & found.keys()) - read
            if missed := sorted(before & changed):
                log.info("joining the group again: %s came or went", ", ".join(missed))
                self._context.reader().rejoin()
                changed.clear()

    async def _watch_routes(self) -> None:
        """Learn of new routes also if this worker has no open partition that could tell (R128).

        Those who have learned of them join the group again, so it is rebalanced.
        """
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            if any(self._units[task].route is None and not task.trouble for task in self.tasks):
                continue
            try:
                newest = await self._context.newest_configuration()
            except (TimeoutError, KafkaError, OSError) as error:
                log.debug("cannot read what was applied: %r", error)
                await asyncio.sleep(_WATCH_S)
                self._has_changed.set()
                continue
            if newest is not None:
                feeds = feeds_of(newest.document, self._context.partitions)
                self.use_routes(newest.revision, feeds)

    def _wanted(self, tps: frozenset[TP]) -> dict[Unit, frozenset[str]]:
        """What an assignment serves, each with the topics that it reads.

        A topic of which nothing is assigned does not exist, or did not when the group was last
        rebalanced. It is left out until the rebalance that brings it. While routes change, members
        have different topics: a partition that is assigned without its home is left out, too.
        """
        limit = self._context.partitions
        for topic in sorted({tp.topic for tp in tps} & self.stored_topics):
            count = self._context.reader().partitions_of(topic)
            if count > limit:
                raise NotCopartitioned(
                    f"topic {topic} has got more than the {limit} partitions of this application, "
                    f"and is read without the hop. {GROWN_REMEDY}"
                )
            if 0 < count < limit:
                raise NotCopartitioned(
                    f"topic {topic} has {count} partitions, and this application {limit}. It is "
                    "read without the hop, so the numbers must be equal"
                )
        wanted: dict[Unit, frozenset[str]] = {}
        homes = {tp.partition for tp in tps if tp.topic == self.home_topic}
        for topic, number in sorted(tps):
            if topic in self.stored_topics and number in homes:
                unit = Unit(TP(self.home_topic, number))
                wanted[unit] = wanted.get(unit, frozenset()) | {topic}
            elif topic in self._repartitioned:
                wanted[Unit(TP(topic, number), self._repartitioned[topic])] = frozenset({topic})
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
