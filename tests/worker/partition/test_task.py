"""What a task puts into one batch, and what it does when a commit fails."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    MessageSizeTooLargeError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)
from faust.types import TP

from ringfaust.errors import BrokenAccounts, ProtocolError
from ringfaust.processor.processor import Writes
from ringfaust.protocol.control import OrderRecord, read_control
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.worker.clock import SystemClock
from ringfaust.worker.context import TaskSettings
from ringfaust.worker.interfaces import (
    Batch,
    CancelledByNobody,
    InputChanged,
    PendingCommit,
    StateLost,
)
from ringfaust.worker.partition.commit_slot import BackgroundCommit
from ringfaust.worker.partition.task import Task
from ringfaust.worker.store.rocks import StoreDamaged
from tests.background import until


class OneCommit:
    """Work that commits once, after each restore."""

    name = "partition 0"
    unit, number = "0", 0
    paused_topics: Collection[str] = ()
    tps: frozenset[TP] = frozenset()
    positions: Mapping[str, int] = {}
    is_full = False
    has_other_inputs = False
    blocked = ""

    def __init__(self) -> None:
        self.has_work = False
        self.settled = asyncio.Event()

    def restore(self, *_: object) -> None:
        self.has_work = True

    def check_inputs(self, *_: object) -> None: ...

    def topic_ids(self) -> dict[str, str]:
        return {}

    def skip_to(self, *_: object) -> None: ...

    def poll_timeout_s(self) -> None: ...

    def begin_cycle(self, wall_ms: int) -> None: ...

    def decide(self, *_: object) -> None: ...

    def decided_outputs(self) -> Collection[tuple[Role, int | None]]:
        return ()

    def take_commit(self, wall_ms: int, **_: bool) -> PendingCommit | None:
        if not self.has_work:
            return None
        self.has_work = False
        return PendingCommit({}, Writes([], []), {}, wall_ms)

    def committed(self, *_: object) -> None:
        self.settled.set()

    async def end_cycle(self) -> None: ...


class FailingProducer:
    """Fails its first commits."""

    def __init__(self, errors: list[BaseException]) -> None:
        self._errors = errors
        self.stopped = asyncio.Event()

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.stopped.set()

    def new_batches(self) -> Any: ...

    begins_early = False

    async def commit(self, *_: object) -> int:
        if self._errors:
            raise self._errors.pop()
        return 0


class NoStore:
    """The source of a task without a store, or with `store`."""

    def __init__(self, store: Any = None) -> None:
        self.store = store

    async def catch_up(self) -> None: ...

    async def open(self, committed: object) -> Any:
        return self.store

    def close(self) -> None: ...


class Orders:
    """Orders that a test gives, and the answers to them."""

    def __init__(self) -> None:
        self._given: asyncio.Queue[OrderRecord] = asyncio.Queue()
        self.answers: asyncio.Queue[str] = asyncio.Queue()

    def give(self, **order: str) -> None:
        value = json.dumps({"partition": "0", "by": "ann", "reply": "r", **order}).encode()
        found = read_control(value)
        assert isinstance(found, OrderRecord)
        self._given.put_nowait(found)

    async def next(self, unit: str) -> OrderRecord:
        assert unit == "0"
        return await self._given.get()

    async def answer(self, order: OrderRecord, refused: str = "") -> None:
        self.answers.put_nowait(refused)

    async def close(self) -> None: ...


def context_of(
    batch_records: int, crash: Callable[[BaseException], None], orders: Orders | None = None
) -> Any:
    async def nothing(*_: object) -> Any:
        return {}

    async def new_orders(number: int) -> Orders:
        return orders or Orders()

    return SimpleNamespace(
        clock=SystemClock(), group_offsets=nothing, read_bounds=nothing, reader=AnyReader,
        new_commit_slot=BackgroundCommit, crash=crash,
        task_settings=TaskSettings(batch_records=batch_records), open_orders=new_orders,
    )  # fmt: skip


def new_task(
    work: OneCommit,
    errors: list[BaseException],
    opened: list[Any],
    orders: Orders | None = None,
    crash: Callable[[BaseException], None] = print,
) -> Task:
    def open_producer() -> FailingProducer:
        opened.append(FailingProducer(errors))
        return opened[-1]

    return Task(work, context_of(1, crash, orders), NoStore(), open_producer)


@asynccontextmanager
async def running(
    work: OneCommit, errors: list[BaseException], opened: list[Any], orders: Orders | None = None
) -> AsyncIterator[Task]:
    """A task that is open, and runs, and does not crash the worker."""
    crashed: list[BaseException] = []
    task = new_task(work, errors, opened, orders, crashed.append)
    async with asyncio.timeout(10):
        await task.open()
        task.start()
        yield task
        await task.close()
    assert crashed == []


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfaust.worker.partition.task.RETRY_MIN_S", 0.01)


async def test_a_new_owner_is_up_to_date_and_a_member_before_it_shuts_out_the_old_one() -> None:
    """R124, R126: to apply the changelog may take long, and may fail."""
    calls: list[str] = []
    errors: list[Exception] = [KafkaConnectionError("no broker")]
    work = OneCommit()

    class Reader(AnyReader):
        async def prove_membership(self, *, is_fenced: bool) -> None:
            calls.append("member")

    class Producer(FailingProducer):
        async def start(self) -> None:
            calls.append("shut out")

    class Source(NoStore):
        async def catch_up(self) -> None:
            calls.append("catch up")
            if errors:
                raise errors.pop()

    async def read_bounds(_: object) -> dict[TP, Any]:
        calls.append("look at the logs")
        return {}

    context = context_of(1, print)
    context.reader, context.read_bounds = Reader, read_bounds
    task = Task(work, context, Source(), lambda: Producer([]))
    task.start()
    async with asyncio.timeout(30):
        await work.settled.wait()
    await task.close()
    # The old owner reads on until it is shut out. An older end of a log would lie before its
    # position, as if the log had lost its end, and its records would be read twice (R112).
    assert calls == ["catch up", "catch up", "member", "shut out", "look at the logs"]


async def test_other_inputs_are_read_without_closing_anything() -> None:
    """R128: a ring whose topics change is served meanwhile, and while new ones are looked up."""
    calls: list[str] = []
    GONE, IN, NEW = (TP(name, 0) for name in ("gone", "in", "new"))  # noqa: N806

    class Rerouted(OneCommit):
        tps = frozenset({GONE, IN})
        positions: Mapping[str, int] = {"gone": 5, "in": 7, "new": 3}
        has_other_inputs = True

        def take_up_inputs(self) -> bool:
            calls.append("take up")
            self.has_other_inputs, self.tps = False, frozenset({IN, NEW})
            return True

        def check_inputs(self, *found: object) -> None:
            calls.append(f"check {found}")

    class Reader(AnyReader):
        def stop_reading(self, tps: Collection[TP]) -> None:
            calls.append(f"stop {tps}")

        async def seek(self, tp: TP, offset: int) -> None:
            calls.append(f"seek {tp.topic} {offset}")

    brokers_answer = asyncio.Event()

    async def bounds(tps: Collection[TP]) -> dict[TP, str]:
        await brokers_answer.wait()
        return dict.fromkeys(tps, "bounds")

    async def offsets(tps: Collection[TP]) -> dict[TP, str]:
        return dict.fromkeys(tps, "offset")

    opened: list[Any] = []
    task = new_task(Rerouted(), [], opened)
    await task.open()
    calls.clear()
    context: Any = task._context
    context.reader, context.read_bounds, context.group_offsets = Reader, bounds, offsets
    async with asyncio.timeout(10):
        await task.run_cycle()
        assert calls == ["take up", f"stop {frozenset({GONE})}", "seek in 7"]
        await task.run_cycle()
        brokers_answer.set()
        while "seek new 3" not in calls:
            await asyncio.sleep(0)
            await task.run_cycle()
    assert calls[3:] == ["check ({'new': 'bounds'}, {'new': 'offset'})", "seek new 3"]
    await task.run_cycle()
    await task.close()
    assert calls.count("take up") == len(opened) == 1
    assert not task.failure


async def test_an_unknown_outcome_reopens_the_partition_with_a_new_producer() -> None:
    """R117: the producer whose commit failed is not used again."""
    work, opened = OneCommit(), []
    async with running(work, [KafkaConnectionError("closed")], opened):
        await work.settled.wait()
    assert len(opened) == 2


LASTING: list[BaseException] = [
    struct.error("int too large to convert"), MessageSizeTooLargeError("the changelog"),
    TopicAuthorizationFailedError("dead"), BrokenAccounts("q", "added = acked", "2 = 1"),
]  # fmt: skip


@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
async def test_a_lasting_error_stops_the_partition_after_one_retry(error: BaseException) -> None:
    """R123. Reopening would repeat it every second, forever; the others need the worker."""
    work, opened, orders = OneCommit(), [], Orders()
    async with running(work, [error] * 3, opened, orders) as task:
        await until_stopped(task)
        assert len(opened) == 2
        assert opened[-1].stopped.is_set()
        assert task.stopped is not None
        assert task.stopped.error is error
        assert task.trouble == f"stopped at no record: {task.stopped.reason}"
        orders.give(type="retry_partition")
        assert "it has stopped" in await orders.answers.get()  # the error is still there
        orders.give(type="skip_record", at="in/0/7")
        assert await orders.answers.get() == "it has stopped at no record, not at in/0/7"
        orders.give(type="retry_partition")
        assert await orders.answers.get() == ""
        assert task.trouble == ""


async def test_an_input_that_may_not_be_read_stops_the_partition() -> None:
    """R123. Without a retry, after which everything would go well until it is read again."""
    opened: list[Any] = []
    async with running(OneCommit(), [], opened, Orders()) as task:
        task.check_inputs(TopicAuthorizationFailedError("in may not be read"))
        await until_stopped(task)
        assert len(opened) == 1
        assert task.stopped is not None
        assert "in may not be read" in task.stopped.reason
        assert "grant" in task.stopped.remedy


async def until_stopped(task: Task) -> None:
    await until(lambda: task.stopped)


async def test_a_cancellation_that_nobody_asked_for_stops_the_worker() -> None:
    """If not: the partition would not be served any more, without a word."""
    work, crashed = OneCommit(), asyncio.get_running_loop().create_future()
    task = new_task(work, [asyncio.CancelledError()], [], crash=crashed.set_result)
    await task.open()
    task.start()
    async with asyncio.timeout(10):
        assert isinstance(await crashed, CancelledByNobody)
    await task.close()


async def test_a_task_says_that_it_is_closed_before_its_store_is() -> None:
    """An assignment that ends while it opens closes tasks that were open already.

    It lists them until the others are closed, too, and the count must not read their stores.
    """
    work, said = OneCommit(), []
    task = new_task(work, [], [])
    await task.open()
    work.has_work = False
    source: Any = SimpleNamespace(close=lambda: said.append(task.trouble))
    task._source = source
    await task.close()
    assert said == ["closed"]


class Behind:
    """A store whose rows end at offset 10 of the changelog."""

    path, applied = "data/partition-0", (10, 0)

    def apply(self, *_: object) -> None:
        raise AssertionError

    def close(self) -> None: ...


@pytest.mark.parametrize("end", [1, 12], ids=["created again", "cut"])
async def test_a_changelog_that_has_lost_rows_stops_the_partition(end: int) -> None:
    """The store has them. If the worker went on, the rings would lose them with the store."""

    class Producer(FailingProducer):
        async def commit(self, *_: object) -> int:
            return end

    class Work(OneCommit):
        def take_commit(self, wall_ms: int, **_: bool) -> PendingCommit:
            return PendingCommit({}, Writes([], [(b"row", b"")] * min(end, 3)), {}, wall_ms)

    crashed: list[BaseException] = []
    context = context_of(1, crashed.append)
    task = Task(Work(), context, NoStore(Behind()), lambda: Producer([]))
    async with asyncio.timeout(10):
        await task.open()
        task.start()
        await until_stopped(task)  # without a retry, which might not notice it any more
        assert task.stopped is not None
        assert isinstance(task.stopped.error, StateLost)
        await task.close()  # commits nothing more
    assert crashed == []


async def test_a_task_that_refuses_its_state_commits_nothing() -> None:
    """Offsets that it commits for the group would hide from the next start what is missing."""

    class Refusing(OneCommit):
        def check_inputs(self, *_: object) -> None:
            raise StateLost("the changelog lost its end")

    work, opened = Refusing(), []
    async with running(work, [], opened) as task:
        await until_stopped(task)
    assert len(opened) == 1
    assert opened[-1].stopped.is_set()
    assert not work.settled.is_set()
    assert work.has_work


class CountingWork(OneCommit):
    """Notes how many records each batch has."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.decided = 0
        self.is_last = False
        self.began = asyncio.Event()

    def restore(self, *_: object) -> None: ...

    def decide(self, records: Iterator[Any], wall_ms: int) -> None:
        self.decided += len(list(records))
        self.began.set()

    def take_commit(
        self, wall_ms: int, *, is_last: bool = False, is_probe: bool = False
    ) -> PendingCommit | None:
        self.is_last = is_last
        if not self.decided and not is_last:
            return None
        self.batches.append(self.decided)
        self.decided = 0
        return PendingCommit({}, Writes([], []), {}, wall_ms)


class AppliedWork(CountingWork):
    """Knows how far its commits have come."""

    tps = frozenset({TP("in", 0)})

    def committed(self, *_: object) -> None:
        self.positions = {"in": sum(self.batches)}

    def restore(self, *_: object) -> None:
        self.positions = {"in": 0}
        self.batches, self.decided = [], 0


async def reopened(task: Task, opened: list[Any], times: int) -> None:
    """Offer a fetch of three records, which the next commit does not get past."""
    task.offer(fetch_of(3))
    await until(lambda: len(opened) >= times)


DAMAGE = StoreDamaged(Path("data/partition-0"), "a checksum")


async def test_a_damaged_database_is_no_records_fault() -> None:
    """R123. The partition is rebuilt; one record at a time would only hold up its queues."""
    work, opened = AppliedWork(), []
    async with running(work, [DAMAGE], opened) as task:
        await reopened(task, opened, 2)
        task.offer(fetch_of(3))
        await until(lambda: task.failure is None and work.batches)
        assert work.batches == [3]


@pytest.mark.parametrize("again", [True, False], ids=["damaged again", "and a record"])
async def test_after_a_damage_the_partition_stops_where_it_should(again: bool) -> None:
    """R123. The next damage stops it; an error of a record does so at this record."""
    opened: list[Any] = []
    lasting: list[BaseException] = [MessageSizeTooLargeError("the changelog")] * 2
    errors = [DAMAGE, DAMAGE] if again else [*lasting, DAMAGE]
    async with running(AppliedWork(), errors, opened) as task:
        for times in range(2, 3 if again else 4):
            await reopened(task, opened, times)
        task.offer(fetch_of(3))
        await until_stopped(task)
        assert task.stopped is not None
        assert isinstance(task.stopped.error, StoreDamaged) == again
        assert (task.stopped.record is None) == again


async def test_a_damage_stops_no_record_though_one_is_committed_by_itself() -> None:
    """R123. A skip of that record would be answered as done, and the record be processed."""
    errors, opened, orders = [DAMAGE, MessageSizeTooLargeError("the changelog")], [], Orders()
    async with running(AppliedWork(), errors, opened, orders) as task:
        await reopened(task, opened, 2)
        task.offer(fetch_of(3))
        await until_stopped(task)
        orders.give(type="skip_record", at="in/0/0")
        assert await orders.answers.get() == "it has stopped at no record, not at in/0/0"


class AskedWork(CountingWork):
    """Decides one record at a time, as if each were a question. Notes when."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.turns: list[int] = []

    def decide(self, records: Iterator[Any], wall_ms: int) -> None:
        self.turns.append(self.turn)
        super().decide(islice(records, 1), wall_ms)


class HeldProducer(FailingProducer):
    """Its commits wait until they are let go."""

    def __init__(self) -> None:
        super().__init__([])
        self.began = asyncio.Semaphore(0)
        self.let_go = asyncio.Semaphore(0)
        self.begun_next: list[object] = []

    def begin_next(self, outputs: object) -> None:
        self.begun_next.append(outputs)

    async def commit(self, *_: object) -> int:
        self.begins_early = True
        self.began.release()
        await self.let_go.acquire()
        self.begins_early = False
        return 0


class AnyReader:
    """Every fetch is current."""

    def is_current(self, batch: Batch) -> bool:
        return True

    def pause(self, tp: TP) -> None: ...

    def resume(self, tp: TP) -> None: ...

    def pause_until_seek(self, tp: TP) -> None: ...

    def stop_reading(self, tps: Collection[TP]) -> None: ...

    async def seek(self, tp: TP, offset: int) -> None: ...

    async def prove_membership(self, *, is_fenced: bool) -> None: ...


def fetch_of(count: int) -> Batch:
    records = [FetchedRecord(value=b"0123456789")] * count
    return Batch(TP("in", 0), records, 1, count)


async def counting(work: CountingWork, producer: HeldProducer, most: int = 1000) -> Task:
    """A running task."""

    task = Task(work, context_of(most, lambda error: None), NoStore(), lambda: producer)
    await task.open()
    task.start()
    return task


async def test_others_run_after_each_question() -> None:
    """R122."""
    work, producer = AskedWork(), HeldProducer()
    task = await counting(work, producer)
    task.buffer.offer(fetch_of(5))
    while not work.batches:
        await asyncio.sleep(0)
        work.turn += 1
    assert work.batches == [5]
    assert len({*work.turns}) == 5
    producer.let_go.release()
    producer.let_go.release()
    await task.close()


async def offer_each(task: Task, work: CountingWork, *counts: int) -> None:
    """Offer fetches, each after the one before was decided."""
    for count in counts:
        work.began.clear()
        task.offer(fetch_of(count))
        await work.began.wait()


@asynccontextmanager
async def held(work: CountingWork, most: int = 1000) -> AsyncIterator[tuple[Task, HeldProducer]]:
    """A running task whose first commit, of one record, is held until the end, or let go."""
    producer = HeldProducer()
    async with asyncio.timeout(10):
        task = await counting(work, producer, most)
        await offer_each(task, work, 1)
        await producer.began.acquire()
        yield task, producer
        for _ in range(3):
            producer.let_go.release()
        await task.close()


async def test_a_batch_grows_while_the_one_before_it_is_in_flight() -> None:
    """A record waits for one other batch at most, however small the fetches are."""
    work = CountingWork()
    async with held(work) as (task, producer):
        await offer_each(task, work, 2, 3, 4)
        assert work.batches == [1]
        producer.let_go.release()
        await producer.began.acquire()
        assert work.batches == [1, 9]


async def test_a_transaction_is_begun_early_only_if_a_batch_waits_for_it() -> None:
    """One that is never used would have to be aborted."""
    work, outputs = CountingWork(), [(Role.EVENTS, None)]
    work.decided_outputs = lambda: outputs if work.decided else ()  # type: ignore[method-assign]
    async with held(work) as (task, producer):
        assert producer.begun_next == []
        await offer_each(task, work, 2)
        await until(lambda: producer.begun_next)
        assert producer.begun_next == [outputs]


async def test_a_batch_that_is_full_takes_no_more() -> None:
    work = CountingWork()
    async with held(work, most=5) as (task, producer):
        await offer_each(task, work, 3, 3)
        task.offer(fetch_of(1))
        producer.let_go.release()
        await producer.began.acquire()
        assert work.batches == [1, 6]


async def test_a_suspicion_is_not_forgotten_while_a_batch_grows() -> None:
    work, reopened = CountingWork(), asyncio.Event()
    work.check_inputs = lambda *_: reopened.set()  # type: ignore[method-assign]
    async with held(work) as (task, producer):
        await offer_each(task, work, 1)
        task.check_inputs(InputChanged("in was created again"))
        for _ in range(3):
            producer.let_go.release()
        await reopened.wait()
        await task.close()


async def test_closing_commits_what_may_wait_otherwise() -> None:
    """The offsets of the group, for example: they are up to date once a worker has stopped."""
    work, producer = CountingWork(), HeldProducer()
    async with asyncio.timeout(10):
        task = await counting(work, producer)
        producer.let_go.release()
        await task.close()
    assert work.is_last
    assert work.batches == [0]


@pytest.mark.parametrize("waiting", [0, 1], ids=["no cycle", "a cycle"])
async def test_closing_abandons_a_commit_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    """The brokers are away, and a worker that is to stop must not wait for them for ever.

    Nor must it if the next cycle waits for the commit.
    """
    monkeypatch.setattr("ringfaust.worker.partition.task._LAST_COMMIT_TIMEOUT_S", 0.01)
    work, producer = CountingWork(), HeldProducer()
    async with asyncio.timeout(10):
        task = await counting(work, producer)
        await offer_each(task, work, 1)
        await producer.began.acquire()
        await offer_each(task, work, *[1] * waiting)
        await task.close()
    assert work.batches == [1], "what has waited since is not committed"
    assert not work.settled.is_set()


async def test_closing_does_not_commit_after_a_failure() -> None:
    """Its outcome is unknown, so what the work holds in memory is worthless."""
    work, opened = CountingWork(), []
    async with running(work, [KafkaConnectionError("closed")], opened) as task:
        await offer_each(task, work, 1)
        await opened[0].stopped.wait()
    assert work.batches == [1]


class Log(OneCommit):
    """Work on one topic, of which a record cannot be decided."""

    tps = frozenset({TP("in", 0)})

    def __init__(self, poison: int) -> None:
        super().__init__()
        self.poison = poison
        self.done: list[int] = []
        """The offsets in committed batches."""
        self.skipped: list[tuple[int, str]] = []
        self._batch: list[int] = []
        self._position = 0

    @property
    def positions(self) -> Mapping[str, int]:  # type: ignore[override]
        return {"in": self._position}

    def restore(self, *_: object) -> None:
        self._batch, self._position = [], len(self.done)

    def decide(self, records: Iterator[Any], wall_ms: int) -> None:
        for record in records:
            if record.offset < self._position:
                continue
            if record.offset == self.poison:
                raise ValueError("a bug")
            self._batch.append(record.offset)
            self._position = record.offset + 1

    def skip(self, record: Any, why: ProtocolError, wall_ms: int) -> None:
        self.skipped.append((record.offset, f"{why.reason}: {why}"))
        self._batch.append(record.offset)
        self._position = record.offset + 1

    def take_commit(self, wall_ms: int, **_: bool) -> PendingCommit | None:
        self.done += self._batch
        batch, self._batch = self._batch, []
        return PendingCommit({}, Writes([], []), {}, wall_ms) if batch else None


async def test_a_record_that_cannot_be_processed_is_named_and_skipped() -> None:
    """R123: those before it are committed, whatever batch they were in; those behind it wait."""
    work, orders, sought = Log(poison=2), Orders(), asyncio.Event()

    class Reader(AnyReader):
        async def seek(self, tp: TP, offset: int) -> None:
            sought.set()

    crashed: list[BaseException] = []
    context = context_of(1000, crashed.append, orders)
    context.reader = Reader
    task = Task(work, context, NoStore(), lambda: FailingProducer([]))
    await task.open()
    sought.clear()
    task.start()
    await asyncio.sleep(0)
    log = [FetchedRecord("in", 0, each, value=b"x") for each in range(5)]
    fetch = Batch(TP("in", 0), log, 1, 5)
    async with asyncio.timeout(10):
        task.offer(fetch)
        await sought.wait()
        task.offer(fetch)
        await until_stopped(task)
        assert work.done == [0, 1]
        assert task.trouble == "stopped at in/0/2: ValueError: a bug"
        task.offer(fetch)  # one that was on its way
        for at in ("in/0/1", "in/0/2"):
            orders.give(type="skip_record", at=at)
        assert await orders.answers.get() == "it has stopped at in/0/2, not at in/0/1"
        sought.clear()
        await sought.wait()
        task.offer(fetch)
        assert await orders.answers.get() == ""
        await until(lambda: work.done == [0, 1, 2, 3, 4])
        assert work.skipped == [(2, "skipped: skipped by ann: ValueError: a bug")]
        await task.close()
    assert crashed == []


async def test_an_idle_partition_finds_out_that_its_next_owner_has_shut_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R124. If not, a worker that stops would wait 5 s for it."""
    monkeypatch.setattr("ringfaust.worker.partition.task._PROBE_S", 0.01)

    class Idle(OneCommit):
        probes = 0

        def restore(self, *_: object) -> None: ...

        def take_commit(
            self, wall_ms: int, *, is_last: bool = False, is_probe: bool = False
        ) -> PendingCommit | None:
            if not is_probe:
                return None
            self.probes += 1
            if self.probes == 3:
                errors.append(ProducerFenced())
            return PendingCommit({}, Writes([], []), {}, wall_ms)

    work, errors = Idle(), list[BaseException]()
    async with running(work, errors, []) as task:
        for _ in range(20):
            await asyncio.sleep(0)
        assert work.probes == 0
        await task.hand_over()
        assert work.probes == 3
        assert task.is_handed_over
