"""The verdict: accounts balance, events are legal, and stores equal their changelog."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code
from rocksdict import Cache

from ringfaust.kafka.reader import read_whole
from ringfaust.protocol.records import InRecord
from ringfaust.testing.accounts.prove import counter_differences, prove
from ringfaust.worker.store.rocks import RocksStore, StoreDamaged
from tests.chaos.harness import Application
from tests.chaos.load import ask_lists

Rows = dict[bytes, bytes]


class Progress(NamedTuple):
    """How far the inputs have been read."""

    done: int
    left: int


async def progress(app: Application) -> Progress:
    """How many records of the inputs have been read and committed, and how many have not.

    Those that were repartitioned count twice, as they are read twice. Records behind an open
    transaction count, too: they will be read once the brokers abort it.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=app.servers)
    consumer = AIOKafkaConsumer(bootstrap_servers=app.servers)
    try:
        await admin.start()
        await consumer.start()
        topics = await admin.describe_topics([*app.inputs, app.topic("control"), app.topic("hop")])
        for topic in topics:
            if topic["error_code"]:
                raise for_code(topic["error_code"])(topic["topic"])
        tps = [
            TopicPartition(topic["topic"], each["partition"])
            for topic in topics
            for each in topic["partitions"]
        ]
        name = app.worker_config.application
        committed = await admin.list_consumer_group_offsets(name, partitions=tps)
        ends = await consumer.end_offsets(tps)  # afterwards: they include what was repartitioned
    finally:
        await admin.close()
        await consumer.stop()
    done = sum(max(committed[tp].offset if tp in committed else 0, 0) for tp in tps)
    return Progress(done, sum(ends.values()) - done)


async def wait_until_read(app: Application, seconds: float) -> None:
    """Wait until all input has been read and committed; fail after so long without progress."""
    now_s = asyncio.get_running_loop().time
    left = -1
    try:
        async with asyncio.timeout(seconds) as limit:
            while left:
                await asyncio.sleep(0.1)
                with suppress(KafkaError):  # the broker or the coordinator is still starting
                    before, left = left, (await progress(app)).left
                    if left < before:
                        limit.reschedule(now_s() + seconds)
    except TimeoutError:
        raise AssertionError(f"none of {left} records was read within {seconds} s") from None


async def wait_until_alone(app: Application, seconds: float = 90) -> None:
    """Wait until consumers that are never heard of again have timed out (R13)."""
    async with asyncio.timeout(seconds):
        while any(each["consumers"] for each in (await ask_lists(app)).values()):
            await asyncio.sleep(0.5)


async def wait_until_clocks_agree(app: Application, seconds: float = 60) -> None:
    """Wait until all workers trust their clocks again: before, nothing comes due (R115)."""
    async with asyncio.timeout(seconds):
        while not all(worker.trusts_its_clock() for worker in app.workers):
            await asyncio.sleep(0.5)


async def wait_for_work(app: Application, seconds: float = 60) -> None:
    """Wait until records are being processed."""
    first = -1
    async with asyncio.timeout(seconds):
        while True:
            try:
                done = (await progress(app)).done
            except KafkaError:
                continue
            if 0 <= first < done:
                return
            first = done
            await asyncio.sleep(0.1)


async def judge_topics(app: Application) -> list[str]:
    """The faults in the topics. The application must be idle."""
    held = await ask_lists(app)
    proof = await prove(app.worker_config, app.inputs, held)
    faults = [*proof.problems(), *counter_differences(proof, held)]
    if not proof.balanced and not faults:
        faults.append("the proof does not balance")
    return faults


async def judge_stores(app: Application, damaged: Collection[Path] = ()) -> list[str]:
    """The faults in the stores: each must equal the changelog up to its offset.

    The workers were stopped in order, so one store of each partition has the whole changelog.
    Damage done on purpose that no worker has read since is no fault.
    """
    changelog: dict[int, list[InRecord]] = defaultdict(list)
    await read_whole(
        {"bootstrap_servers": app.servers},
        [app.topic("changelog")],
        lambda records: changelog[records[0].partition].extend(records),
    )
    faults = []
    for partition in range(app.worker_config.partitions):
        records = changelog[partition]
        whole = False
        for worker in app.workers:
            path = worker.data_dir / f"partition-{partition}"
            if not path.exists():
                continue
            try:
                rows, applied = _read_store(path)
            except StoreDamaged as error:
                if path in damaged:
                    whole = True  # it may have been the one
                else:
                    faults.append(str(error))
                continue
            expected = _replayed([record for record in records if record.offset < applied])
            if rows != expected:
                faults.append(f"{path} differs from the changelog: {_differ(rows, expected)}")
            whole |= not records or applied > records[-1].offset
        if not whole:
            faults.append(f"no store of partition {partition} has the whole changelog")
    return faults


def _replayed(records: Sequence[InRecord]) -> Rows:
    rows: Rows = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.value
    return rows


def _read_store(path: Any) -> tuple[Rows, int]:
    store = RocksStore(path, Cache(8 << 20))
    try:
        applied, _ = store.applied
        ours = (b"\0applied", b"\0identity")  # what a store says about itself
        rows = {key: value for key, value in store.items_from(b"") if key not in ours}
    finally:
        store.close()
    return rows, applied


def _differ(one: Rows, other: Rows) -> str:
    more, less = len(one.keys() - other.keys()), len(other.keys() - one.keys())
    unlike = sum(one[key] != other[key] for key in one.keys() & other.keys())
    return f"{more} extra rows, {less} missing, {unlike} different"
