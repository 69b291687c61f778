"""The world of a history: producers, consumers and workers, around one broker."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ringfaust.core import levels
from ringfaust.core.limits import UNHEARD_RECHECK_MS
from ringfaust.errors import UnknownRowVersion
from ringfaust.protocol.records import OutRecord
from ringfaust.worker.partition.stopped import Stopped
from ringfaust.worker.store.identity import ForeignState
from tests.sim.bookkeeper import Bookkeeper
from tests.sim.broker import Broker, Transaction
from tests.sim.faults import Faults
from tests.sim.order_book import OrderBook, order_to
from tests.sim.plan import (
    ADDED,
    ADDRESS,
    CREATED,
    DECLARED,
    KEEPER,
    MEMBERS,
    PARTITIONS,
    REMOVABLE,
    ROUTES,
    Plan,
    partition_for,
)
from tests.sim.queue_book import demand
from tests.sim.replay import check_replay
from tests.sim.script import TOPICS, WORKERS, Step
from tests.sim.worker import TOMBSTONE_MS, Unit, Worker, units

START_MS = 1_000_000
_ALL = 10_000
_LATER_MS = 20_000
_MAX_ROUNDS = 1_000
"""How many rounds a history may take to end. In careful mode each record takes several."""
_HEARTBEAT_MS = 15
"""Between two heartbeats of the keeper; the shortest timeout is 60."""
_RECREATION_MS = 60
"""Deleting a topic and creating it again took a real broker 73 ms or more."""
_JITTERS = (0, 7, -300)
"""Errors of a producer's clock. Nothing may depend on it."""
Message = tuple[str, str, dict[str, Any]]
State = tuple[int, dict[tuple[str, int], int]]
"""How many rows a changelog has, and the offsets of the group."""


class World:
    """Runs the steps, one after the other."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.broker = Broker(START_MS)
        self.journals: dict[int, list[tuple[Any, ...]]] = {}
        """By partition: what was committed, see `worker.JournalProcessor`."""
        self._faults = Faults(self.broker)
        self.workers = [
            Worker(f"worker-{number}", self.broker, plan, self.journals, self._faults)
            for number in range(WORKERS)
        ]
        self._units = units(plan)
        self._owners: dict[Unit, int] = {}
        self._open: dict[str, Transaction] = {}
        self._dispatched: list[tuple[int, str, str, str, int]] = []
        """Partition, queue, consumer, message and number of each delivery that was read."""
        self._read: dict[int, int] = {}
        self._settled: set[tuple[int, str, str, str, int]] = set()
        self._keeps = plan.has_keeper
        """Whether the keeper is alive."""
        if self._keeps:
            self._say_of_keeper("attach", credit=0)
        self._sent = self._ordered = 0
        self._crashes = 0
        self._document = copy.deepcopy(plan.document())
        """What was applied last; before that, what the workers started with."""
        self._revision = 0
        self.events: Counter[str] = Counter()
        """How often each event occurred, counted at the end."""

    def do(self, step: Step) -> None:
        getattr(self, f"_do_{step[0]}")(*step[1:])

    # --- producers -------------------------------------------------------------------------------

    def _do_send(self, topic: str, queue: str, fields: dict[str, Any]) -> None:
        self._produce((topic, queue, fields), None)

    def _do_transaction(self, messages: Sequence[Message], committed: bool) -> None:
        transaction = Transaction()
        for message in messages:
            self._produce(message, transaction)
        self.broker.end(transaction, commit=committed)

    def _do_open(self, name: str, messages: Sequence[Message]) -> None:
        transaction = self._open.setdefault(name, Transaction())
        for message in messages:
            self._produce(message, transaction)

    def _do_hold(self, name: str, number: int) -> None:
        transaction = self._open.setdefault(name, Transaction())
        self.broker.write(("control", number), [(None, b"{", [])], transaction)

    def _do_close(self, name: str, committed: bool) -> None:
        if (transaction := self._open.pop(name, None)) is not None:
            self.broker.end(transaction, commit=committed)

    def _produce(self, message: Message, transaction: Transaction | None) -> None:
        topic, queue, fields = message
        self._sent += 1
        target = fields.get("queue", queue)
        if topic == "far":
            number = self._sent % self.plan.far_partitions
            fields = {**fields, "queue": target}
        else:
            number = partition_for(queue)
        clock = self.broker.now_ms + _JITTERS[self._sent % 3]
        record = _record(topic, queue, fields, self._sent)
        is_broker_time = topic == "timed"
        self.broker.write(
            (topic, number), [record], transaction, broker_time=is_broker_time, timestamp=clock
        )

    # --- consumers and operators -----------------------------------------------------------------

    def _do_say(self, number: int, command: dict[str, Any], times: int) -> None:
        value = json.dumps(command).encode()
        self.broker.write(("control", number), [(b"key", value, [])] * times)

    def _do_apply(
        self, name: str, settings: dict[str, Any], has_route: bool, is_newer: bool
    ) -> None:
        """Change settings in the configuration, and have or remove a route (R128)."""
        document = copy.deepcopy(self._document)
        if name in document["queues"] or name == ADDED:
            document["queues"].setdefault(name, {}).update(settings)
        elif document["addresses"] and name == ADDRESS:
            document["addresses"][ADDRESS].update(settings)
        elif document["addresses"] and name == DECLARED:
            document["addresses"][ADDRESS]["subscriptions"]["all"].update(settings)
        document["routes"] = [each for each in ROUTES if has_route or each["topic"] != REMOVABLE]
        if is_newer:
            self._document, self._revision = document, self._revision + 1
        if revision := self._revision:
            self._say_to_all(
                type="apply", revision=revision, configuration=document, who="ann", text=""
            )

    def _do_raise_level(self) -> None:
        self._say_to_all(type="raise_level", level=levels.NEWEST, who="ann")

    def _say_to_all(self, **command: Any) -> None:
        """Write a command for all partitions, in one transaction."""
        transaction, value = Transaction(), json.dumps(command).encode()
        for number in range(PARTITIONS):
            self.broker.write(("control", number), [(None, value, [])], transaction)
        self.broker.end(transaction, commit=True)

    def _do_poison(self, step: Step) -> None:
        """Do a step; nobody can decide the first record that it writes in a partition."""
        tps = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        before = {tp: self.broker.log(*tp).next_offset() for tp in tps}
        self.do(step)
        for tp, at in before.items():
            if self.broker.log(*tp).next_offset() > at:
                self._faults.poison(*tp, at)

    def _do_forbid(self, index: int, what: str) -> None:
        self._faults.forbid(self._units[index], what)

    def _do_order(self, index: int, what: str, mends: bool, pauses: int) -> None:
        """An order to one that has stopped, or to any if none has.

        Args:
            index: chooses which.
            what: it orders.
            mends: whether it mends before what is wrong there.
            pauses: after how many the next commit fails; 0: it does not.
        """
        owned = {each: self._worker(each).drivers[each] for each in self._units}
        found = [each for each in owned if owned[each].stopped is not None] or self._units
        unit = found[index % len(found)]
        if mends:
            self._faults.mend(unit)
        owned[unit].fail_after(pauses)
        self._order(unit, what, owned[unit].stopped)

    def _order(self, unit: Unit, what: str, stopped: Stopped | None) -> None:
        self._ordered += 1
        order = order_to(f"{unit}", what, (stopped and stopped.at) or "keyed/0/0", self._ordered)
        self._do_say(unit.number % PARTITIONS, order, 1)

    def _do_nonsense(self, number: int, text: str) -> None:
        self.broker.write(("control", number), [(None, text.encode(), [])])

    def _do_settle(
        self, nth: int, command: dict[str, Any], late: bool, by_name: bool, others: int
    ) -> None:
        """Settle the `nth` delivery that was read and not settled; if `late`, any delivery.

        `others`: how many more deliveries of its consumer are acked by the same record.
        """
        for number in range(PARTITIONS):
            self._read_dispatched(number)
        known = [each for each in self._dispatched if late or each not in self._settled]
        if not known:
            return
        chosen = known[nth % len(known)]
        self._settled.add(chosen)
        number, queue, consumer, message, delivery = chosen
        command = {**command, "queue": queue, "consumer": consumer}
        if others:
            alike = [each for each in known if each[:3] == chosen[:3] and each != chosen]
            several = [chosen, *alike[-others:]]
            self._settled.update(several)
            command |= {"type": "ack_many", "deliveries": [[each[4], each[3]] for each in several]}
        else:
            command["message"] = message
            if not by_name:
                command["delivery"] = delivery
        self._do_say(number, command, 1)

    def _read_dispatched(self, number: int) -> None:
        log = self.broker.log("dispatched", number)
        records, self._read[number] = log.read(self._read.get(number, 0), _ALL)
        for record in records:
            said = {name: value.decode() for name, value in record.headers}
            queue, consumer, message, delivery = (
                said[f"ringfaust-{name}"] for name in ("queue", "consumer", "id", "delivery")
            )
            self._dispatched.append((number, queue, consumer, message, int(delivery)))

    # --- workers ---------------------------------------------------------------------------------

    def _worker(self, unit: Unit) -> Worker:
        """The owner of the unit. Assigns it to a worker if nobody has it."""
        if unit not in self._owners:
            self._assign(unit, (unit.number + self._crashes) % WORKERS)
        return self.workers[self._owners[unit]]

    def _assign(self, unit: Unit, number: int) -> None:
        worker = self.workers[number]
        worker.revoke(unit)  # it may still have it from before
        before = self._state_of(unit)
        try:
            worker.assign(unit)
        except ForeignState:  # the operator gives it a folder of its own
            worker.disk.lose_all_of("another")
            self._assign(unit, number)
        except UnknownRowVersion as error:
            self._leave_to_another(unit, number, before, error)
        else:
            self._owners[unit] = number

    def _leave_to_another(self, unit: Unit, number: int, before: State, error: Exception) -> None:
        """A worker has refused the state of a unit. Another one serves it (R129)."""
        worker = self.workers[number]
        demand(worker.is_older, unit, "is refused:", error)
        demand(before == self._state_of(unit), unit, "is refused, and its state has changed")
        worker.revoke(unit)
        self._assign(unit, (number + 1) % WORKERS)

    def _cycle(self, unit: Unit) -> None:
        """A cycle of its owner. One that is too old finds that when it tries again (R123)."""
        worker = self._worker(unit)
        if not worker.is_older:
            worker.cycle(unit)
            return
        before = self._state_of(unit)
        try:
            worker.cycle(unit)
        except UnknownRowVersion as error:
            self._leave_to_another(unit, self._owners[unit], before, error)

    def _state_of(self, unit: Unit) -> State:
        rows = self.broker.log("changelog", unit.number).records()
        return len(rows), dict(self.broker.offsets)

    def _do_assign(self, index: int, number: int, how: str) -> None:
        unit = self._units[index]
        before = self._owners.pop(unit, None)
        if before is not None and how == "clean":
            self.workers[before].revoke(unit)
        if before is not None and how == "handover":
            self.workers[before].hand_over(unit)
        self._assign(unit, number)

    def _do_standby(self, number: int, worker: int, most: int) -> None:
        """A worker that does not have the partition applies up to `most` records (R127)."""
        try:
            self.workers[worker].follow(number, most)
        except ForeignState:  # the next owner finds the same
            self.workers[worker].disk.lose_all_of("another")

    def _do_crash(self, number: int, disk: str) -> None:
        self._crashes += 1
        worker = self.workers[number]
        worker.crash()
        if disk == "lose":
            worker.disk.lose_all()
        elif disk == "tail":
            worker.disk.lose_tail()
        elif disk == "other cluster":
            worker.disk.replace("sim", "another")
        elif disk == "other application":
            worker.disk.replace("another", "sim")
        self._owners = {unit: owner for unit, owner in self._owners.items() if owner != number}

    def _do_change_version(self, is_older: bool, disk: str) -> None:
        """The first worker continues in another version."""
        self._do_crash(0, disk)
        self.workers[0].is_older = is_older

    def _do_work(self, index: int, fetches: Sequence[tuple[str, int]], stages: int) -> None:
        unit = self._units[index]
        worker = self._worker(unit)
        for topic, most in fetches:
            worker.fetch(unit, unit.repartitioned or topic, most)
        self._cycle(unit)
        self._worker(unit).drive_commit(unit, stages)

    def _do_fetch(self, index: int, topic: str, most: int, again: int) -> None:
        unit = self._units[index]
        self._worker(unit).fetch(unit, unit.repartitioned or topic, most, again)

    def _do_cycle(self, index: int) -> None:
        self._cycle(self._units[index])

    def _do_commit(self, index: int, stages: int, fails: str) -> None:
        unit = self._units[index]
        self._worker(unit).drive_commit(unit, stages, fails=fails)

    def _do_late(self, index: int, fetches: Sequence[tuple[str, int]]) -> None:
        """A commit reaches the broker while the next batch is half written (R117)."""
        self._do_work(index, fetches, 0)
        self._do_commit(index, 2, "late")
        self._do_work(index, fetches, 1)
        self.broker.deliver_late()

    def _zombies(self) -> list[tuple[Worker, Unit]]:
        return [
            (worker, unit)
            for number, worker in enumerate(self.workers)
            for unit in sorted(worker.drivers)
            if self._owners.get(unit) != number
        ]

    def _do_zombie(self, what: str) -> None:
        """A worker that has not noticed a rebalance continues."""
        for worker, unit in self._zombies():
            if worker.drivers[unit].stopped is not None:
                continue  # before it carries out an order, it proves its membership (R126)
            if what == "work":
                for topic in TOPICS:
                    worker.fetch(unit, unit.repartitioned or topic, 5)
            if what != "commit":
                worker.cycle(unit)
            worker.drive_commit(unit, 3)

    def _do_advance(self, wait_ms: int) -> None:
        if not self._keeps:
            self.broker.now_ms += wait_ms
            return
        until_ms = self.broker.now_ms + wait_ms
        while self.broker.now_ms < until_ms:
            self.broker.now_ms = min(self.broker.now_ms + _HEARTBEAT_MS, until_ms)
            if self.broker.is_reachable:
                self._say_of_keeper("heartbeat")

    def _say_of_keeper(self, kind: str, **more: Any) -> None:
        for queue in self.plan.queues:
            command = {"type": kind, "queue": queue, "consumer": KEEPER, **more}
            self._do_say(partition_for(queue), command, 1)

    def _do_outage(self, wait_ms: int) -> None:
        """The broker is away; the workers go on with what they have, and their commits fail."""
        self.broker.is_reachable = False
        self._do_advance(wait_ms)
        for unit, number in sorted(self._owners.items()):
            self.workers[number].cycle(unit)
        self.broker.is_reachable = True
        self.broker.reachable_since_ms = self.broker.now_ms
        for unit, number in sorted(self._owners.items()):
            self.workers[number].drive_commit(unit, 0, fails="now")

    def _do_stall(self, index: int, wait_ms: int) -> None:
        """Time passes; then the worker goes on, before it has fetched what has come meanwhile."""
        self._do_advance(wait_ms)
        self._do_cycle(index)

    def _do_skew(self, number: int, skew_ms: int) -> None:
        self.workers[number].clock.skew_ms = skew_ms

    def _do_recreate(self, topic: str) -> None:
        if not self.broker.was_recreated(topic):
            self._faults.forget(topic)
            self.broker.recreate(topic)
            self._do_advance(_RECREATION_MS)
            for worker in self.workers:
                for driver in worker.drivers.values():
                    driver.forget_old_log(topic)

    def _do_retain(self, topic: str, number: int, share: float) -> None:
        """Delete the first records of a topic whose position is known."""
        if not self.broker.log("changelog", number).read(0, 1)[0]:
            return  # a worker begins with what a topic has when its first commit succeeds
        log = self.broker.log(topic, number)
        log.begin = max(log.begin, int(log.end * share))

    def _do_compact(self, number: int) -> None:
        self.broker.log("changelog", number).compact(self.broker.now_ms, TOMBSTONE_MS)

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let everything in flight finish, then compare the accounts, twice."""
        for name in list(self._open):
            self._do_close(name, False)
        self.broker.deliver_late()
        for number, worker in enumerate(self.workers):
            if not worker.clock.is_right:
                self._do_skew(number, 0)
        if self.workers[0].is_older:
            self._do_change_version(False, "keep")
        if self._revision:
            self._do_apply("", {}, True, True)  # whatever has waited for its route is read
        self._finish_stops()
        bookkeeper = Bookkeeper(self.broker, self.plan)
        for when in ("now", "later"):
            self._finish_all_work()
            # What was not heard at its deadline is looked at again, and what an idle partition has
            # heard is known one look later.
            for _ in range(2 if when == "later" else 0):
                self._do_advance(UNHEARD_RECHECK_MS)
                self._finish_all_work()
            members = MEMBERS if self.plan.addresses else ()
            for queue in (*self.plan.queues, ADDED, CREATED, *members):
                command = {"type": "list", "queue": queue, "reply": f"{when}/{queue}"}
                self._do_say(partition_for(queue), command, 1)
            self._finish_all_work()
            bookkeeper.read(when, is_kept=self._keeps)
            self._keeps = False
            self.events = bookkeeper.events
            self._do_advance(_LATER_MS)
        for unit, number in self._owners.items():
            self.workers[number].revoke(unit)
        bookkeeper.check_group()
        if not self.plan.has_non_persistent:
            for number, journal in self.journals.items():
                check_replay(self.broker, self.plan, number, journal)

    def _finish_stops(self) -> None:
        """Partitions that have stopped hold up no others; once they are mended, they go on."""
        self._finish_all_work()
        stopped = {unit: self._worker(unit).drivers[unit].stopped for unit in self._units}
        for unit, found in stopped.items():
            demand(found is None or unit in self._faults.units, unit, "has stopped:", found)
            self._faults.mend(unit)
            if found is not None:
                self._order(unit, "skip" if found.at and self._ordered % 2 else "retry", found)
        self._finish_all_work()
        for unit in self._units:
            driver = self._worker(unit).drivers[unit]
            demand(driver.stopped is None, unit, "has not gone on:", driver.stopped)
            demand(not driver.unanswered, unit, "has not answered", driver.unanswered)
        OrderBook(self.broker).check()

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.crash()
            worker.close()

    def _finish_all_work(self) -> None:
        for worker, unit in self._zombies():
            worker.revoke(unit)
        before = None
        for _ in range(_MAX_ROUNDS):
            for index, unit in enumerate(self._units):
                topics = [unit.repartitioned] if unit.repartitioned else TOPICS
                for _ in range(2):
                    self._do_work(index, [(topic, _ALL) for topic in topics], 3)
            now = [log.next_offset() for log in self.broker.all_logs()]
            if now == before and all(self._worker(unit).is_done(unit) for unit in self._units):
                return
            before = now
        raise AssertionError("the workers do not become idle")


def _record(topic: str, queue: str, fields: dict[str, Any], number: int) -> OutRecord:
    headers = []
    for name, value in fields.items():
        if name not in ("size", "colour"):
            headers.append((f"ringfaust-{name}", str(value).encode()))
        elif name == "colour":
            headers.append((name, value.encode()))
    value = b"%d" % number + b"." * fields.get("size", 3)
    return queue.encode(), value, headers
