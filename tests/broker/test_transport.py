"""Faust's consumer handing on whole fetches, against a real broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import IllegalStateError
from faust.types import TP

from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.transport import BatchApp

pytestmark = pytest.mark.kafka

STOP_S = 30
"""Faust gives a thread that does not end a minute."""


class Recorder:
    """A host that notes what happens, and an app with an agent that gives it the batches."""

    def __init__(self, broker: EmbeddedBroker, group: str, *topics: str, **options: Any) -> None:
        self.positions: dict[TP, int] = {}
        self.batches: list[Batch] = []
        self.told: list[tuple[str, frozenset[TP]]] = []
        self.owned: frozenset[TP] = frozenset()
        self.before_assigned: Callable[[], Awaitable[None]] | None = None
        self.before_revoked: Callable[[], Awaitable[None]] | None = None
        self.on_batch: Callable[[Batch], Awaitable[None]] | None = None
        url = f"kafka://{broker.bootstrap_servers}"
        self.app = BatchApp(group, broker=url, listener=self, **options)
        self.app.agent(self.app.topic(*topics), name="recorder")(self._agent)

    async def on_assigned(self, tps: frozenset[TP]) -> Mapping[TP, int]:
        self.told.append(("assigning", tps))
        if self.before_assigned:
            await self.before_assigned()
        self.told.append(("assigned", tps))
        self.owned = tps
        return self.positions

    async def on_revoked(self, tps: frozenset[TP]) -> None:
        if self.before_revoked:
            await self.before_revoked()
        self.told.append(("revoked", tps))
        self.owned = frozenset()

    async def _agent(self, stream: AsyncIterator[Batch]) -> None:
        async for batch in stream:
            self.batches.append(batch)
            if self.on_batch:
                await self.on_batch(batch)

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
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        await admin.close()
    return name


async def fill(broker: EmbeddedBroker, tp: TP, first: int, count: int) -> None:
    """Append `count` records, whose values are the numbers from `first` on."""
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=5, max_batch_size=200_000
    ) as producer:
        sent = [
            await producer.send(tp.topic, b"%d" % number, partition=tp.partition)
            for number in range(first, first + count)
        ]
        await asyncio.gather(*sent)


async def committed(broker: EmbeddedBroker, group: str) -> dict[Any, Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        return dict(await admin.list_consumer_group_offsets(group))
    finally:
        await admin.close()


def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


async def test_batches_arrive_whole_and_in_order(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker, 2)
    tps = [TP(topic, 0), TP(topic, 1)]
    for tp in tps:
        await fill(broker, tp, 0, 10_000)
    async with Recorder(broker, group(), topic, broker_max_poll_records=3000).running() as host:
        await until(lambda: all(len(host.offsets(tp)) == 10_000 for tp in tps))
        await fill(broker, tps[0], 10_000, 1)
        await until(lambda: len(host.offsets(tps[0])) == 10_001)
    assert host.offsets(tps[0]) == list(range(10_001))
    assert host.offsets(tps[1]) == list(range(10_000))
    assert 0 < max(len(batch.records) for batch in host.batches) <= 3000
    assert [r.value for r in host.batches[0].records[:2]] == [b"0", b"1"]


async def test_aborted_records_are_not_seen(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker)
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept", partition=0)
    async with Recorder(broker, group(), topic).running() as host:
        await until(lambda: host.batches)
    assert [record.value for batch in host.batches for record in batch.records] == [b"kept"]


async def test_a_held_partition_waits_and_the_others_go_on(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker, 2)
    held, free = TP(topic, 0), TP(topic, 1)
    await fill(broker, held, 0, 5000)
    await fill(broker, free, 0, 5000)
    host = Recorder(broker, group(), topic)

    async def hold() -> None:
        host.app.reader.pause(held)

    host.before_assigned = hold
    async with host.running():
        await until(lambda: len(host.offsets(free)) == 5000)
        await fill(broker, free, 5000, 100)
        await until(lambda: len(host.offsets(free)) == 5100)
        assert host.offsets(held) == []
        host.app.reader.resume(held)
        await until(lambda: len(host.offsets(held)) == 5000)
        host.app.reader.pause(held)
        await fill(broker, held, 5000, 100)
        await fill(broker, free, 5100, 100)
        await until(lambda: len(host.offsets(free)) == 5200)
        # One batch may have been on its way when the hold came, but it is in order too.
        host.app.reader.resume(held)
        await until(lambda: len(host.offsets(held)) == 5100)
    assert host.offsets(held) == list(range(5100))
    assert host.offsets(free) == list(range(5200))


async def test_a_held_partition_does_not_slow_the_others(broker: EmbeddedBroker) -> None:
    """What was fetched of it stays in the client, and must not keep others from being fetched."""
    topic = await new_topic(broker, 2)
    busy = TP(topic, 0)
    await fill(broker, busy, 0, 400_000)
    # A fetch brings one batch of the producer's, so there is a new one whenever one was taken.
    one_take = {"consumer_max_fetch_size": 1, "broker_max_poll_records": 50_000}
    host = Recorder(broker, group(), topic, **one_take)
    free = TP(topic, 1)

    async def work(batch: Batch) -> None:
        if batch.tp == busy:
            host.app.reader.pause(busy)
        else:
            host.app.reader.resume(busy)

    host.on_batch = work
    async with (
        host.running(),
        AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        await until(lambda: host.batches)
        for number in range(10):
            await producer.send_and_wait(topic, b"x", partition=1)
            await until(lambda: len(host.offsets(free)) == number + 1)  # noqa: B023
        assert len(host.offsets(busy)) < 400_000
        fetcher = host.app.reader._thread._ensure_consumer()._fetcher
        assert fetcher._prefetch_backoff <= 0.02  # the client's own 100 ms is what would slow them


async def test_a_busy_agent_is_not_flooded(broker: EmbeddedBroker) -> None:
    """While an agent works on a batch, one more of the partition waits, whatever the topic has."""
    topic = await new_topic(broker)
    await fill(broker, TP(topic, 0), 0, 5000)
    host = Recorder(broker, group(), topic, broker_max_poll_records=100)
    work = asyncio.Event()
    host.on_batch = lambda _: asyncio.wait_for(work.wait(), 30)  # type: ignore[assignment,return-value]
    async with host.running():
        await until(lambda: host.batches)
        await asyncio.sleep(0.5)
        queue = next(iter(host.app.topics)).queue
        assert len(host.batches) == 1
        assert queue.qsize() <= 1
        work.set()
        await until(lambda: len(host.offsets(TP(topic, 0))) == 5000)


async def test_after_a_seek_comes_what_was_sought(broker: EmbeddedBroker) -> None:
    """Batches fetched before the seek never come after it, wherever they were on their way."""
    topic = await new_topic(broker)
    tp = TP(topic, 0)
    await fill(broker, tp, 0, 5000)
    host = Recorder(broker, group(), topic, broker_max_poll_records=50)
    async with host.running():
        for _ in range(30):
            seen = len(host.batches)
            await until(lambda: len(host.batches) > seen)  # noqa: B023
            stale = host.batches[-1]
            await host.app.reader.seek(tp, 1234)
            assert not host.app.reader.is_current(stale)
            seen = len(host.batches)
            await until(lambda: len(host.batches) > seen)  # noqa: B023
            assert host.batches[seen].records[0].offset == 1234
        await until(lambda: host.offsets(tp)[-1] == 4999)
        assert host.app.reader.is_current(host.batches[-1])
    last = next(b for b in reversed(host.batches) if b.records[0].offset == 1234)
    rest = [r.offset for b in host.batches[host.batches.index(last) :] for r in b.records]
    assert rest == list(range(1234, 5000))


async def test_a_seek_overtakes_what_waits_for_the_agent(broker: EmbeddedBroker) -> None:
    topic = await new_topic(broker)
    tp = TP(topic, 0)
    await fill(broker, tp, 0, 1000)
    host = Recorder(broker, group(), topic, broker_max_poll_records=100)
    work = asyncio.Event()
    host.on_batch = lambda _: asyncio.wait_for(work.wait(), 30)  # type: ignore[assignment,return-value]
    async with host.running():
        await until(lambda: host.batches)
        await asyncio.sleep(0.2)  # the second batch is in the agent's queue now
        await host.app.reader.seek(tp, 0)
        work.set()
        await until(lambda: len(host.batches) >= 11)
    assert host.offsets(tp) == [*range(100), *range(1000)]


async def test_the_host_gives_the_positions(broker: EmbeddedBroker) -> None:
    topic, name = await new_topic(broker, 3), group()
    given, resumed, fresh = (TP(topic, partition) for partition in range(3))
    for tp in (given, resumed, fresh):
        await fill(broker, tp, 0, 1000)
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=name, enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        await consumer.commit({TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 300})
    host = Recorder(broker, name, topic)
    host.positions = {given: 700}

    async def prepare() -> None:
        await asyncio.sleep(0.5)
        assert host.batches == []

    host.before_assigned = prepare
    async with host.running():
        await until(lambda: sum(len(batch.records) for batch in host.batches) >= 2000)
    assert host.offsets(given) == list(range(700, 1000))
    assert host.offsets(resumed) == list(range(300, 1000))
    assert host.offsets(fresh) == list(range(1000))


async def test_faust_commits_nothing(broker: EmbeddedBroker) -> None:
    topic, name = await new_topic(broker), group()
    await fill(broker, TP(topic, 0), 0, 1000)
    async with Recorder(broker, name, topic, broker_commit_interval=0.1).running() as host:
        await until(lambda: len(host.offsets(TP(topic, 0))) == 1000)
        await asyncio.sleep(0.5)
        await host.app.commit({topic})
        assert not host.app.reader.unacked
        assert await committed(broker, name) == {}
    assert await committed(broker, name) == {}


async def test_two_workers_share_and_hand_over(broker: EmbeddedBroker) -> None:
    one, two, name = await new_topic(broker, 3), await new_topic(broker, 3), group()
    # So long that who stops has to leave by itself.
    session: dict[str, Any] = {"broker_session_timeout": 300.0, "broker_request_timeout": 310.0}
    first, second = (Recorder(broker, name, one, two, **session) for _ in range(2))
    let_go = asyncio.Event()

    async def finish() -> None:
        await asyncio.sleep(0.3)
        let_go.set()

    first.before_revoked = finish

    async def after_the_first_let_go() -> None:
        assert let_go.is_set()

    second.before_assigned = after_the_first_let_go
    async with first.running():
        assert len(first.owned) == 6
        async with second.running():
            await until(lambda: {len(first.owned), len(second.owned)} == {2, 4})
            for host in (first, second):  # partition p of each topic is with the same worker
                ours = {tp.partition for tp in host.owned}
                assert host.owned == {TP(topic, p) for topic in (one, two) for p in ours}
            assert first.owned.isdisjoint(second.owned)
            everything = {TP(one, partition) for partition in range(3)}
            for tp in everything:
                await fill(broker, tp, 0, 100)
            await until(
                lambda: all(len(first.offsets(tp) + second.offsets(tp)) == 100 for tp in everything)
            )
            let_go.clear()
            await first.app.stop()
            await until(lambda: len(second.owned) == 6)
            assert first.told[-1][0] == "revoked"


async def test_revoked_batches_are_no_longer_current(broker: EmbeddedBroker) -> None:
    topic, name = await new_topic(broker, 2), group()
    await fill(broker, TP(topic, 0), 0, 100)
    host = Recorder(broker, name, topic)
    current: list[bool] = []

    async def look() -> None:
        current.append(host.app.reader.is_current(host.batches[0]))
        with pytest.raises(IllegalStateError):
            await host.app.reader.seek(TP(topic, 0), 0)

    async with host.running():
        await until(lambda: host.batches)
        assert host.app.reader.is_current(host.batches[0])
        host.before_revoked = look
        async with Recorder(broker, name, topic).running():
            await until(lambda: len(host.owned) == 1)
        host.before_revoked = None
    assert current == [False]


async def test_a_rebalance_breaks_off_a_long_preparation(broker: EmbeddedBroker) -> None:
    topic, name = await new_topic(broker, 2), group()
    host, other = Recorder(broker, name, topic), Recorder(broker, name, topic)
    never = asyncio.Event()

    async def forever() -> None:
        await never.wait()

    host.before_assigned = forever
    starting = asyncio.create_task(host.app.start())
    await until(lambda: host.told == [("assigning", {TP(topic, 0), TP(topic, 1)})])
    try:
        async with other.running():
            await until(lambda: len(other.owned) == 1)
            host.before_assigned = None
            # Revoked before it was assigned: only then may the partition go to the other.
            assert [what for what, _ in host.told[:2]] == ["assigning", "revoked"]
        await until(lambda: len(host.owned) == 2)
        await starting
    finally:
        await host.app.stop()


@pytest.mark.parametrize("where", ["before_assigned", "before_revoked", "on_batch"])
async def test_an_error_stops_the_worker(broker: EmbeddedBroker, where: str) -> None:
    topic, name = await new_topic(broker), group()
    await fill(broker, TP(topic, 0), 0, 10)
    host = Recorder(broker, name, topic)

    async def fail(*_: Any) -> None:
        raise RuntimeError(f"failed {where}")

    setattr(host, where, fail)
    starting = asyncio.create_task(host.app.start())
    try:
        if where == "before_revoked":
            await starting
            async with Recorder(broker, name, topic).running():
                await until(lambda: host.app.crashed)
        await until(lambda: host.app.crashed)
        assert isinstance(host.app.crash_reason, RuntimeError)
        if where == "on_batch":  # a second attempt would not have had the first one's records
            assert len(host.batches) == 1
    finally:
        host.before_revoked = None
        await host.app.stop()
        await asyncio.wait({starting})


async def test_a_worker_outlives_its_broker() -> None:
    with EmbeddedBroker() as broker:
        topic = await new_topic(broker)
        await fill(broker, TP(topic, 0), 0, 10)
        async with Recorder(broker, group(), topic).running() as host:
            await until(lambda: len(host.offsets(TP(topic, 0))) == 10)
            await asyncio.to_thread(broker.restart)
            await fill(broker, TP(topic, 0), 10, 10)
            await until(lambda: len(host.offsets(TP(topic, 0))) == 20)
            await asyncio.to_thread(broker.stop)
            await asyncio.sleep(1)
            async with asyncio.timeout(STOP_S):
                await host.app.stop()


WORKER = """
from ringfaust.worker.transport import BatchApp

app = BatchApp({group!r}, broker={url!r}, datadir={folder!r})

@app.agent(app.topic({topic!r}))
async def show(stream):
    async for batch in stream:
        print(batch.tp.partition, batch.records[0].offset, len(batch.records), flush=True)

@app.task
async def ready():
    print("ready", flush=True)
"""


class Worker:
    """A worker in a process of its own, started by Faust's command line."""

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


async def test_a_worker_stops_in_order_and_quietly(broker: EmbeddedBroker, tmp_path: Path) -> None:
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


async def test_a_killed_worker_is_replaced(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic, name = await new_topic(broker, 2), group()
    worker = Worker(broker, tmp_path, name, topic)
    await worker.start()
    async with Recorder(broker, name, topic).running() as host:
        assert len(host.owned) == 1
        worker.process.kill()
        await worker.process.wait()
        await until(lambda: len(host.owned) == 2)
        await fill(broker, TP(topic, 0), 0, 10)
        await fill(broker, TP(topic, 1), 0, 10)
        await until(lambda: len(host.offsets(TP(topic, 0)) + host.offsets(TP(topic, 1))) == 20)
