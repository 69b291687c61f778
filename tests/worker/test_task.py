"""What a task does when a commit fails: it reopens its partition, or stops the worker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from faust.types import TP

from ringfaust.processor.processor import Writes
from ringfaust.worker.clock import SystemClock
from ringfaust.worker.task import BackgroundCommit, PendingCommit, Task, TaskSettings


class OneCommit:
    """Work that commits once, after each restore."""

    name = "partition 0"
    tps: frozenset[TP] = frozenset()
    positions: Mapping[str, int] = {}
    is_full = False

    def __init__(self) -> None:
        self.has_work = False
        self.settled = asyncio.Event()

    def restore(self, *_: object) -> None:
        self.has_work = True

    def start(self, *_: object) -> None: ...

    def check_inputs(self, *_: object) -> None: ...

    def topic_ids(self) -> dict[str, str]:
        return {}

    def skip_to(self, *_: object) -> None: ...

    def poll_timeout_s(self) -> None: ...

    def begin_cycle(self, wall_ms: int) -> None: ...

    def decide(self, *_: object) -> None: ...

    def take_commit(self, wall_ms: int) -> PendingCommit | None:
        if not self.has_work:
            return None
        self.has_work = False
        return PendingCommit({}, Writes([], []), {}, wall_ms)

    def settle(self) -> None:
        self.settled.set()

    async def end_cycle(self) -> None: ...


class FailingProducer:
    """Fails its first commits."""

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def new_batches(self) -> Any: ...

    async def commit(self, *_: object) -> int:
        if self._errors:
            raise self._errors.pop()
        return 0


def new_task(
    work: OneCommit, errors: list[Exception], opened: list[Any], crashed: asyncio.Future[object]
) -> Task:
    async def nothing(*_: object) -> Any:
        return {}

    async def no_store() -> None: ...

    def open_producer() -> FailingProducer:
        opened.append(FailingProducer(errors))
        return opened[-1]

    return Task(
        work, SystemClock(), no_store, open_producer, group_offsets=nothing, read_bounds=nothing,
        reader=lambda: None, commits=BackgroundCommit(), crash=crashed.set_result,
        settings=TaskSettings(batch_records=1, fenced_wait_s=0.01),
    )  # fmt: skip


async def test_an_unknown_outcome_reopens_the_partition_with_a_new_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R117: the producer whose commit failed is not used again."""
    monkeypatch.setattr("ringfaust.worker.task.RETRY_MIN_S", 0.01)
    work, opened = OneCommit(), []
    crashed = asyncio.get_running_loop().create_future()
    task = new_task(work, [KafkaConnectionError("closed")], opened, crashed)
    await task.open({})
    task.start()
    async with asyncio.timeout(10):
        await work.settled.wait()
    await task.close()
    assert len(opened) == 2
    assert not crashed.done()


async def test_a_programming_error_stops_the_worker() -> None:
    """Reopening would repeat it every second, forever."""
    work, opened, error = OneCommit(), [], struct.error("int too large to convert")
    crashed = asyncio.get_running_loop().create_future()
    task = new_task(work, [error], opened, crashed)
    await task.open({})
    task.start()
    async with asyncio.timeout(10):
        assert await crashed is error
    await task.close()
    assert len(opened) == 1
