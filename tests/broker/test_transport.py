"""Faust's consumer delivers whole fetches; with a real broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import IllegalStateError
from faust.types import TP

from ringfaust.kafka.admin import connected_admin
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.faust.transport import BatchApp
from ringfaust.worker.interfaces import Batch

pytestmark = pytest.mark.kafka

STOP_S = 30
"""Less than the minute that Faust waits for a thread that does not end."""


@pytest.fixture(autouse=True)
def _data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust makes a folder for each app in the working directory."""
    monkeypatch.chdir(tmp_path)


class Recorder:
    """A listener that reads exactly what is assigned and notes what happens, with an app."""

    def __init__(self, broker: EmbeddedBroker, group: str, *topics: str, **options: Any) -> None:
        self.topics = frozenset(topics)
        self.positions: dict[TP, int] = {}
        self.batches: list[Batch] = []
        self.owned: frozenset[TP] = frozenset()
        self.stops_reading = True
        self.on_assignment: Callable[[], Awaitable[None]] | None = None
        self.before_stop: Callable[[], Awaitable[None]] | None = None
        self.on_batch: Callable[[Batch], None] | None = None
        url = f"kafka://{broker.bootstrap_servers}"
        self.app = BatchApp(group, broker=url, **options)
        self.app.listener = self

    async def on_assigned(self, tps: frozenset[TP], standbys: frozenset[int]) -> None:
        new, lost, self.owned = tps - self.owned, self.owned - tps, tps
        if self.on_assignment:
            await self.on_assignment()
        if self.stops_reading:
            self.app.reader.stop_reading(lost)
        for tp in new:
            await self.app.reader.seek(tp, self.positions.get(tp, 0))

    async def on_stop(self, *, is_orderly: bool) -> None:
        if self.before_stop:
            await self.before_stop()
        self.owned = frozenset()

    def on_unreadable(self, tp: TP) -> None: ...

    def offer(self, batch: Batch) -> None:
        self.batches.append(batch)
        if self.on_batch:
            self.on_batch(batch)

    def offsets(self, tp: TP) -> list[int]:
        return [
            record.offset for batch in self.batches if batch.tp == tp for record in batch.records
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Recorder]:
        await self.app.start()
        try:
            yield self
        finally:
            await self.app.stop()


async def until(true: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.01)


async def new_topic(broker: EmbeddedBroker, partitions: int = 1) -> str:
    name = f"transport-{uuid.uuid4().hex[:8]}"
    async with connected_admin({"bootstrap_servers": broker.bootstrap_servers}) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])
    return name


async def fill(
    broker: EmbeddedBroker, tp: TP, first: int, count: int, batch_bytes: int = 200_000
) -> None:
    """Append `count` records, whose values are the numbers from `first` on."""
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=5, max_batch_size=batch_bytes
    ) as producer:
        sent = [
            await producer.send(tp.topic, b"%d" % number, partition=tp.partition)
            for number in range(first, first + count)
        ]
        await asyncio.gather(*sent)


async def committed(broker: EmbeddedBroker, group: str) -> dict[Any, Any]:
    async with connected_admin({"bootstrap_servers": broker.bootstrap_servers}) as admin:
        return dict(await admin.list_consumer_group_offsets(group))


def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


async def test_batches_arrive_whole_and_in_order(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker, 2)
    tps = [TP(topic, 0), TP(topic, 1)]
    for tp in tps:
        await fill(broker, tp, 0, 10_000)
    async with Recorder(broker, group(), topic, broker_max_poll_records=3000).running() as recorder:
        await until(lambda: all(len(recorder.offsets(tp)) == 10_000 for tp in tps))
        await fill(broker, tps[0], 10_000, 1)
        await until(lambda: len(recorder.offsets(tps[0])) == 10_001)
    assert recorder.offsets(tps[0]) == list(range(10_001))
    assert recorder.offsets(tps[1]) == list(range(10_000))
    assert 0 < max(len(batch.records) for batch in recorder.batches) <= 3000
    assert [r.value for r in recorder.batches[0].records[:2]] == [b"0", b"1"]


async def test_aborted_records_are_not_delivered(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker)
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept", partition=0)
    async with Recorder(broker, group(), topic).running() as recorder:
        await until(lambda: recorder.batches)
    assert [record.value for batch in recorder.batches for record in batch.records] == [b"kept"]


async def test_the_position_passes_aborted_records(broker: EmbeddedBroker) -> None:
    """Otherwise a lag would be reported where nothing is left to read."""
    topic = await new_topic(broker)
    await fill(broker, TP(topic, 0), 0, 1)
    async with (
        Recorder(broker, group(), topic).running() as recorder,
        AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
        ) as producer,
    ):
        await until(lambda: recorder.batches)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        await until(lambda: recorder.batches[-1].next_offset == 3)
    assert [len(batch.records) for batch in recorder.batches] == [1, 0]


async def test_a_paused_partition_waits_and_the_others_continue(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker, 2)
    held, free = TP(topic, 0), TP(topic, 1)
    await fill(broker, held, 0, 5000)
    await fill(broker, free, 0, 5000)
    recorder = Recorder(broker, group(), topic)

    async def hold() -> None:
        recorder.app.reader.pause(held)

    recorder.on_assignment = hold
    async with recorder.running():
        await until(lambda: len(recorder.offsets(free)) == 5000)
        await fill(broker, free, 5000, 100)
        await until(lambda: len(recorder.offsets(free)) == 5100)
        assert recorder.offsets(held) == []
        recorder.app.reader.resume(held)
        await until(lambda: len(recorder.offsets(held)) == 5000)
        recorder.app.reader.pause(held)
        await fill(broker, held, 5000, 100)
        await fill(broker, free, 5100, 100)
        await until(lambda: len(recorder.offsets(free)) == 5200)
        recorder.app.reader.resume(held)
        await until(lambda: len(recorder.offsets(held)) == 5100)
    assert recorder.offsets(held) == list(range(5100))
    assert recorder.offsets(free) == list(range(5200))


async def test_a_paused_partition_does_not_slow_the_others(broker: EmbeddedBroker) -> None:
    """Its fetched records stay in the fetcher, and must not keep others from being fetched."""
    topic = await new_topic(broker, 2)
    busy = TP(topic, 0)
    await fill(broker, busy, 0, 20_000, 2_000)
    # A fetch returns one record batch, so a new one is there whenever one has been taken.
    one_take = {"consumer_max_fetch_size": 1, "broker_max_poll_records": 50_000}
    recorder = Recorder(broker, group(), topic, **one_take)
    free = TP(topic, 1)

    def work(batch: Batch) -> None:
        if batch.tp == busy:
            recorder.app.reader.pause(busy)
        else:
            recorder.app.reader.resume(busy)

    recorder.on_batch = work
    async with (
        recorder.running(),
        AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        await until(lambda: recorder.batches)
        for number in range(10):
            await producer.send_and_wait(topic, b"x", partition=1)
            await until(lambda: len(recorder.offsets(free)) == number + 1)  # noqa: B023
        assert len(recorder.offsets(busy)) < 20_000


async def test_a_seek_drops_batches_that_were_fetched_before(broker: EmbeddedBroker) -> None:
    """None of them is delivered after the seek, wherever it was in flight."""
    topic = await new_topic(broker)
    tp = TP(topic, 0)
    await fill(broker, tp, 0, 5000)
    recorder = Recorder(broker, group(), topic, broker_max_poll_records=5)
    async with recorder.running():
        for _ in range(30):
            seen = len(recorder.batches)
            await recorder.app.reader.seek(tp, 0)  # a fast machine has read everything by now
            await until(lambda: len(recorder.batches) > seen)  # noqa: B023
            stale = recorder.batches[-1]
            await recorder.app.reader.seek(tp, 1234)
            assert not recorder.app.reader.is_current(stale)
            seen = len(recorder.batches)
            await until(lambda: len(recorder.batches) > seen)  # noqa: B023
            assert recorder.batches[seen].records[0].offset == 1234
        await until(lambda: recorder.offsets(tp)[-1] == 4999)
        assert recorder.app.reader.is_current(recorder.batches[-1])
    last = next(b for b in reversed(recorder.batches) if b.records[0].offset == 1234)
    rest = [r.offset for b in recorder.batches[recorder.batches.index(last) :] for r in b.records]
    assert rest == list(range(1234, 5000))


async def test_the_listener_decides_where_each_partition_starts(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker, 2)
    given, first = TP(topic, 0), TP(topic, 1)
    for tp in (given, first):
        await fill(broker, tp, 0, 1000)
    recorder = Recorder(broker, group(), topic)
    recorder.positions = {given: 700}
    async with recorder.running():
        await until(lambda: sum(len(batch.records) for batch in recorder.batches) >= 1300)
    assert recorder.offsets(given) == list(range(700, 1000))
    assert recorder.offsets(first) == list(range(1000))


async def test_a_partition_that_nobody_has_sought_is_not_read(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker, 2)
    sought, left = TP(topic, 0), TP(topic, 1)
    for tp in (sought, left):
        await fill(broker, tp, 0, 100)
    recorder = Recorder(broker, group(), topic)
    recorder.owned = frozenset({left})  # so it is not new
    async with recorder.running():
        await until(lambda: len(recorder.offsets(sought)) == 100)
        assert recorder.offsets(left) == []
        assert recorder.app.reader.read_position(left) is None


async def test_faust_commits_nothing(broker: EmbeddedBroker) -> None:
    topic, name = await new_topic(broker), group()
    await fill(broker, TP(topic, 0), 0, 1000)
    async with Recorder(broker, name, topic, broker_commit_interval=0.1).running() as recorder:
        await until(lambda: len(recorder.offsets(TP(topic, 0))) == 1000)
        await asyncio.sleep(0.5)  # five commit intervals
        await recorder.app.commit({topic})
        assert not recorder.app.reader.unacked
        assert await committed(broker, name) == {}
    assert await committed(broker, name) == {}


async def test_two_workers_share_partitions(broker: EmbeddedBroker) -> None:
    one, two, name = await new_topic(broker, 3), await new_topic(broker, 3), group()
    # So long that a worker that stops must leave the group itself.
    session: dict[str, Any] = {"broker_session_timeout": 300.0, "broker_request_timeout": 310.0}
    first, second = (Recorder(broker, name, one, two, **session) for _ in range(2))
    async with first.running():
        await until(lambda: len(first.owned) == 6)
        async with second.running():
            await until(lambda: {len(first.owned), len(second.owned)} == {2, 4})
            await until(lambda: first.owned.isdisjoint(second.owned))  # each learns by itself
            for recorder in (first, second):  # the same worker has partition p of each topic
                ours = {tp.partition for tp in recorder.owned}
                assert recorder.owned == {TP(topic, p) for topic in (one, two) for p in ours}
            everything = {TP(one, partition) for partition in range(3)}
            for tp in everything:
                await fill(broker, tp, 0, 100)
            await until(
                lambda: all(len(first.offsets(tp) + second.offsets(tp)) == 100 for tp in everything)
            )
            await first.app.stop()
            await until(lambda: len(second.owned) == 6)


async def test_a_worker_that_has_nothing_to_read_stays_a_member(broker: EmbeddedBroker) -> None:
    """If not, nobody takes over when the others are gone."""
    topic, name = await new_topic(broker), group()
    both = [Recorder(broker, name, topic, broker_max_poll_interval=0.001) for _ in range(2)]
    async with both[0].running(), both[1].running():
        await until(lambda: {len(each.owned) for each in both} == {0, 1})
        busy, spare = sorted(both, key=lambda each: not each.owned)
        before_s = spare.app.reader.unconfirmed_s()
        await until(lambda: spare.app.reader.unconfirmed_s() < before_s)  # a heartbeat
        await busy.app.stop()
        await until(lambda: spare.owned, 20)


async def test_a_rebalance_does_not_interrupt_what_is_read(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """R124: not while it waits for a worker that is gone, and not when it has ended."""
    topic, name = await new_topic(broker, 3), group()
    recorder, other = Recorder(broker, name, topic), Recorder(broker, name, topic)
    recorder.stops_reading = False
    worker = Worker(broker, tmp_path, name, topic)
    await worker.start()
    async with recorder.running():
        await until(lambda: len(recorder.owned) in (1, 2))
        owned = recorder.owned
        worker.process.kill()  # the brokers wait for it for the length of a session
        await worker.process.wait()
        starting = asyncio.create_task(other.app.start())
        for first in range(0, 1000, 100):
            for tp in owned:
                await fill(broker, tp, first, 100)
            await until(lambda: all(len(recorder.offsets(tp)) == first + 100 for tp in owned))  # noqa: B023
        assert other.owned == frozenset()  # all of this took place during the rebalance
        await until(lambda: other.owned)
        for tp in owned:
            await fill(broker, tp, 1000, 100)
        await until(lambda: all(len(recorder.offsets(tp)) == 1100 for tp in owned))
        await starting
        await other.app.stop()
    for tp in owned:
        assert recorder.offsets(tp) == list(range(1100))
        assert len({batch.generation for batch in recorder.batches if batch.tp == tp}) == 1


async def test_batches_of_a_partition_that_is_not_read_any_more_are_not_current(
    broker: EmbeddedBroker,
) -> None:
    topic = await new_topic(broker)
    tp = TP(topic, 0)
    await fill(broker, tp, 0, 100)
    async with Recorder(broker, group(), topic).running() as recorder:
        await until(lambda: recorder.batches)
        assert recorder.app.reader.is_current(recorder.batches[0])
        recorder.app.reader.stop_reading([tp])
        await until(lambda: not recorder.app.reader.is_current(recorder.batches[0]))
        await fill(broker, tp, 100, 100)
        await recorder.app.reader.seek(tp, 50)
        await until(lambda: recorder.offsets(tp)[-1] == 199)
    assert recorder.offsets(tp) == [*range(100), *range(50, 200)]


async def test_a_partition_that_is_not_assigned_cannot_be_sought(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker)
    async with Recorder(broker, group(), topic).running() as recorder:
        await until(lambda: recorder.owned)
        with pytest.raises(IllegalStateError):
            await recorder.app.reader.seek(TP(topic, 1), 0)


@pytest.mark.parametrize("where", ["on_assignment", "on_batch"])
async def test_an_error_of_the_listener_stops_the_worker(
    broker: EmbeddedBroker, where: str
) -> None:
    topic, name = await new_topic(broker), group()
    await fill(broker, TP(topic, 0), 0, 10)
    recorder = Recorder(broker, name, topic)

    def fail(*_: Any) -> Any:
        raise RuntimeError(f"failed {where}")

    setattr(recorder, where, fail)
    starting = asyncio.create_task(recorder.app.start())
    try:
        await until(lambda: recorder.app.crashed)
        assert isinstance(recorder.app.crash_reason, RuntimeError)
        assert len(recorder.batches) == (where == "on_batch")
    finally:
        await recorder.app.stop()
        await asyncio.wait({starting})


WORKER = """
from ringfaust.worker.faust.transport import BatchApp

class Listener:
    topics = frozenset({{{topic!r}}})

    async def on_assigned(self, tps, standbys):
        for tp in tps:
            await app.reader.seek(tp, 0)

    async def on_stop(self, *, is_orderly):
        pass

    def offer(self, batch):
        print(batch.tp.partition, batch.records[0].offset, len(batch.records), flush=True)

app = BatchApp({group!r}, broker={url!r}, datadir={folder!r})
app.listener = Listener()

@app.task
async def ready():
    print("ready", flush=True)
"""


class Worker:
    """A worker process, started by Faust's command line."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, group: str, topic: str) -> None:
        self.log = folder / f"{uuid.uuid4().hex}.log"
        (folder / "worker.py").write_text(
            WORKER.format(
                group=group,
                url=f"kafka://{broker.bootstrap_servers}",
                folder=str(folder / "data"),
                topic=topic,
            )
        )
        self._folder = folder

    async def start(self) -> None:
        command = [sys.executable, "-m", "faust", "-A", "worker", "worker", "--without-web"]
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                "--loglevel=info",
                cwd=self._folder,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
                stdout=log,
                stderr=log,
            )
        await until(lambda: "ready" in self.log.read_text())


async def test_a_worker_leaves_the_group_and_logs_no_traceback_when_it_stops(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = await new_topic(broker)
    worker = Worker(broker, tmp_path, group(), topic)
    await worker.start()
    await fill(broker, TP(topic, 0), 0, 10)
    await until(lambda: "LeaveGroup" not in worker.log.read_text())
    worker.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(STOP_S):
        assert await worker.process.wait() == 0
    log = worker.log.read_text()
    assert "LeaveGroup request succeeded" in log
    assert "Traceback" not in log


async def test_a_worker_that_stops_during_a_rebalance_leaves_the_group(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aiokafka")
    topic, name = await new_topic(broker, 2), group()
    stopping, other = Recorder(broker, name, topic), Recorder(broker, name, topic)
    joining: list[asyncio.Task[Any]] = []

    async def start_the_other() -> None:
        joining.append(asyncio.create_task(other.app.start()))
        await until(lambda: other.owned)

    stopping.before_stop = start_the_other
    await stopping.app.start()
    await until(lambda: len(stopping.owned) == 2)
    try:
        async with asyncio.timeout(STOP_S):
            await stopping.app.stop()
        assert "LeaveGroup request succeeded" in caplog.messages
        assert [each for each in caplog.records if each.exc_info] == []
        await until(lambda: len(other.owned) == 2)
    finally:
        await asyncio.gather(*joining)
        await other.app.stop()


async def test_a_worker_that_has_left_its_group_reads_on(broker: EmbeddedBroker) -> None:
    """R124: until the others have its partitions."""
    topic, name = await new_topic(broker), group()
    tp = TP(topic, 0)
    async with Recorder(broker, name, topic).running() as recorder:
        await until(lambda: recorder.owned)
        await recorder.app.reader.end_membership()
        async with Recorder(broker, name, topic).running() as other:
            await until(lambda: other.owned)
            await fill(broker, tp, 0, 100)
            await until(lambda: len(recorder.offsets(tp)) == len(other.offsets(tp)) == 100)


async def test_a_killed_worker_is_replaced(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic, name = await new_topic(broker, 2), group()
    worker = Worker(broker, tmp_path, name, topic)
    await worker.start()
    async with Recorder(broker, name, topic).running() as recorder:
        await until(lambda: len(recorder.owned) == 1)
        worker.process.kill()
        await worker.process.wait()
        await until(lambda: len(recorder.owned) == 2)
        await fill(broker, TP(topic, 0), 0, 10)
        await fill(broker, TP(topic, 1), 0, 10)
        await until(
            lambda: len(recorder.offsets(TP(topic, 0)) + recorder.offsets(TP(topic, 1))) == 20
        )
