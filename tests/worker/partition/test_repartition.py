"""Where a topic continues that was read directly before it was repartitioned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from ringfaust.core import limits
from ringfaust.kafka.offsets import CommittedOffset, repartition_metadata
from ringfaust.kafka.topic_ids import TopicIds
from ringfaust.protocol.records import FetchedRecord
from ringfaust.protocol.routes import Route, copied_key, repartition_headers
from ringfaust.protocol.stored_rows import POSITIONS_KEY, write_positions
from ringfaust.worker.context import TaskSettings
from ringfaust.worker.interfaces import Bounds, StateLost
from ringfaust.worker.partition.repartition import repartition_task
from ringfaust.worker.store.identity import copied_before
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
    tp, sought = TP("in", number), list[int]()

    async def group_offsets(_: object) -> dict[TP, CommittedOffset]:
        return {} if found is None else {tp: found}

    async def read_bounds(_: object) -> dict[TP, Bounds]:
        return {tp: Bounds(0, 100, "id")}

    async def seek(partition: TP, offset: int) -> None:
        sought.append(offset)

    async def prove_membership(*, is_fenced: bool) -> None: ...

    async def topic_ids(_: object) -> TopicIds:
        return TopicIds("cluster", {"in": "id"})

    context: Any = SimpleNamespace(
        application="app",
        partitions=1,
        topics={"changelog": "changelog", "hop": "hop"},
        topic_ids=topic_ids,
        processor_config=SimpleNamespace(max_record_bytes=1000, cloud_events_of=""),
        stops_at_gaps=False,
        clock=SimpleNamespace(wall_ms=lambda: 0),
        open_changelog=lambda: VirtualConsumer(broker),
        open_producer=lambda *_: Producer(),
        new_commit_slot=SimpleNamespace,
        group_offsets=group_offsets,
        read_bounds=read_bounds,
        reader=lambda: SimpleNamespace(seek=seek, prove_membership=prove_membership),
        task_settings=TaskSettings(batch_records=1),
    )
    task = repartition_task(Route("in", "{header:queue}"), number, context)
    await task.open()
    assert sought == [task.work.positions["in"]]
    return sought[0]


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
    own = CommittedOffset(40, repartition_metadata("id"))
    assert await start_of(broker_after(50), own) == 40


async def test_a_partition_that_no_partition_task_had_starts_at_its_offset() -> None:
    assert await start_of(broker_after(50), CommittedOffset(40), number=1) == 40
    assert await start_of(broker_after(50), None) == 0


def hop_record(offset: int, topic_id: str) -> Any:
    record = FetchedRecord("in", 0, offset)
    return (None, b"", repartition_headers(record, "to", 0, topic_id))


@pytest.mark.parametrize("read_of_hop", [0, 1, 3])
async def test_without_an_offset_it_continues_where_the_rings_have_its_records(
    read_of_hop: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The group's offsets were deleted, and 101 messages were added for 51 that were sent."""
    broker = Broker(0)
    known = {"hop": read_of_hop} | ({copied_key("in/0", "id"): 7} if read_of_hop else {})
    broker.write(CHANGELOG, [(POSITIONS_KEY, write_positions(known), [])])
    offsets = (6, 9, 8) if read_of_hop < 3 else (6,)
    broker.write(("hop", 0), [hop_record(at, "id") for at in offsets])
    broker.write(("hop", 0), [hop_record(80, "another"), (None, b"", [])])
    assert await start_of(broker, None) == (7 if read_of_hop == 3 else 10)
    assert "the consumer group has no offset any more" in caplog.text


async def test_without_an_offset_it_does_not_guess_once_the_rings_keep_no_more_positions() -> None:
    """R120. It read the topic from its beginning, and added everything again."""
    broker, key = Broker(0), copied_key("in/0", "id")
    others = {copied_key(f"other/{each}", "id"): 7 for each in range(limits.COPIED_PARTITIONS)}
    broker.write(CHANGELOG, [(POSITIONS_KEY, write_positions(others), [])])
    broker.write(("changelog", 1), [(POSITIONS_KEY, write_positions({key: 50}), [])])
    logs = {TP("hop", number): TP("changelog", number) for number in range(2)}
    with pytest.raises(StateLost, match="in/0: the group has no offset, and partition 0"):
        await copied_before(key, logs, VirtualConsumer(broker))  # 1 alone knows less than both
    broker.write(("hop", 0), [hop_record(80, "id")])
    assert await copied_before(key, logs, VirtualConsumer(broker)) == 81


async def test_a_topic_that_was_created_again_is_copied_from_its_beginning() -> None:
    broker = Broker(0)
    known = {copied_key("in/0", "its predecessor"): 50}
    broker.write(CHANGELOG, [(POSITIONS_KEY, write_positions(known), [])])
    assert await start_of(broker, None) == 0
