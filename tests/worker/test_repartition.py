"""Where a topic continues that was read directly before it was repartitioned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import POSITIONS_KEY, write_positions
from ringfaust.worker.interfaces import Bounds, CommittedOffset, repartition_note
from ringfaust.worker.repartition import repartition_task
from ringfaust.worker.task import Task, TaskSettings
from tests.sim.broker import Broker
from tests.sim.kafka import VirtualConsumer

CHANGELOG = ("changelog", 0)


class Producer:
    """Starts, and has no epoch."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def new_batches(self) -> list[Any]:
        return []


async def start_of(broker: Broker, found: CommittedOffset | None, number: int = 0) -> int:
    """Where the repartition task of `in` starts."""
    tp = TP("in", number)

    async def group_offsets(_: object) -> dict[TP, CommittedOffset]:
        return {} if found is None else {tp: found}

    def new_task(work: Any, open_store: Any, open_producer: Any) -> Any:
        return Task(
            work, SimpleNamespace(), open_store, open_producer, group_offsets=group_offsets,
            read_bounds=group_offsets, reader=lambda: None, commits=SimpleNamespace(),
            crash=print, settings=TaskSettings(batch_records=1, fenced_wait_s=1),
        )  # fmt: skip

    context: Any = SimpleNamespace(
        application="app",
        partitions=1,
        topics={"changelog": "changelog"},
        processor_config=SimpleNamespace(max_record_bytes=1000, cloud_events_of=""),
        stops_at_gaps=False,
        clock=SimpleNamespace(wall_ms=lambda: 0),
        open_changelog=lambda: VirtualConsumer(broker),
        open_producer=lambda *_: Producer(),
        new_task=new_task,
    )
    task = repartition_task(Route("in", "{header:queue}"), number, context)
    positions = await task.open({"in": Bounds(0, 100, "id")})
    return positions["in"]


def broker_after(position: int, more_rows: int = 0) -> Broker:
    """A broker with the changelog of a partition task that has read `in` up to `position`."""
    broker = Broker(0)
    row = (POSITIONS_KEY, write_positions({"in": position}), [])
    broker.write(CHANGELOG, [row, *((b"%d" % n, b"row", []) for n in range(more_rows))])
    return broker


@pytest.mark.parametrize("more_rows", [0, 2_500])
async def test_it_continues_where_the_state_ends_if_the_group_lags(more_rows: int) -> None:
    """The worker was killed before it could commit the group's offset."""
    assert await start_of(broker_after(50, more_rows), CommittedOffset(40)) == 50


async def test_its_own_offset_decides_once_it_has_one() -> None:
    own = CommittedOffset(40, repartition_note("id"))
    assert await start_of(broker_after(50), own) == 40


async def test_a_partition_that_no_partition_task_had_starts_at_its_offset() -> None:
    assert await start_of(broker_after(50), CommittedOffset(40), number=1) == 40
    assert await start_of(broker_after(50), None) == 0
