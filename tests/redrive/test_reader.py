"""Reading the dead and evicted topics backwards, on a consumer in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition

from ringfaust.errors import BadSelector
from ringfaust.protocol import headers as h
from ringfaust.protocol.dead import DeadFilter, DeadMessage
from ringfaust.protocol.records import FetchedRecord
from ringfaust.redrive import reader as reading
from ringfaust.redrive.reader import Cursor, DeadReader
from tests.records import new_record

FROM_MS = 1_000_000_000_000


def record(number: int, time_ms: int, queue: str = "q", reason: str = "overflow") -> FetchedRecord:
    said = {
        h.ID: f"m{number}", h.QUEUE: queue, h.SEQUENCE: "1", h.PRIORITY: "4",
        h.ENQUEUED_MS: str(time_ms), h.SOURCE: f"in/0/{number}", h.HANDOVERS: "0",
        h.REASON: reason, h.TIME_MS: str(time_ms), "colour": "red" if number % 2 else "blue",
    }  # fmt: skip
    headers = tuple((name, text.encode()) for name, text in said.items())
    return new_record("evicted", number, b"body", headers)


def placed(record: FetchedRecord, partition: int, offset: int) -> FetchedRecord:
    time_ms = int(dict(record.headers)[h.TIME_MS])
    return record._replace(partition=partition, offset=offset, timestamp=time_ms)


class Consumer:
    """The part of aiokafka's consumer that the reader uses. Offsets are positions in a list."""

    def __init__(self, *logs: Sequence[FetchedRecord]) -> None:
        self.logs = {
            TopicPartition("evicted", number): [
                placed(each, number, at) for at, each in enumerate(log)
            ]
            for number, log in enumerate(logs)
        }
        self._at = dict.fromkeys(self.logs, 0)
        self._paused: set[TopicPartition] = set()
        self.read = 0

    async def beginning_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return {each: len(self.logs[each]) for each in places}

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[Any, Any]:
        found = {}
        for place, at_ms in times.items():
            later = [each for each in self.logs[place] if each.timestamp >= at_ms]
            found[place] = later[0] if later else None
        return found

    async def position(self, place: TopicPartition) -> int:
        return self._at[place]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at[place] = offset

    def pause(self, *places: TopicPartition) -> None:
        self._paused.update(places)

    def resume(self, *places: TopicPartition) -> None:
        self._paused.difference_update(places)

    async def getmany(self, *places: TopicPartition, **options: Any) -> dict[Any, Any]:
        found = {}
        for place in set(places or self.logs) - self._paused:
            at = self._at[place]
            if fetched := self.logs[place][at : at + 7]:
                found[place] = fetched
                self._at[place] = at + len(fetched)
                self.read += len(fetched)
        return found


def reader(*logs: Sequence[FetchedRecord]) -> tuple[DeadReader, Consumer]:
    consumer = Consumer(*logs)
    return DeadReader(consumer, list(consumer.logs)), consumer


def ids(found: Sequence[DeadMessage]) -> list[str]:
    return [each.id for each in found]


@pytest.fixture(autouse=True)
def _small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_FIRST_SPAN", 10)


async def test_the_latest_are_read_without_the_rest() -> None:
    looks, consumer = reader([record(n, FROM_MS + n) for n in range(1_000)])
    assert ids(await looks.latest(DeadFilter(), 3)) == ["m997", "m998", "m999"]
    assert consumer.read < 30


async def test_the_latest_are_merged_by_time_over_partitions_of_different_pace() -> None:
    quick = [record(n, FROM_MS + n) for n in range(0, 1_000)]
    slow = [record(n, FROM_MS + n * 30) for n in range(2_000, 2_020)]
    slow[-1] = record(2_019, FROM_MS + 998)
    slow[:-1] = [record(2_000 + n, FROM_MS + n) for n in range(19)]
    looks, _ = reader(quick, slow)
    assert ids(await looks.latest(DeadFilter(), 3)) == ["m2019", "m998", "m999"]


async def test_the_latest_of_many_at_the_same_time_are_the_last() -> None:
    looks, _ = reader([record(n, FROM_MS) for n in range(100)])
    assert ids(await looks.latest(DeadFilter(), 3)) == ["m97", "m98", "m99"]


async def test_those_before_another_are_read_page_by_page_without_the_rest() -> None:
    logs = [[record(2 * n + start, FROM_MS + n // 3) for n in range(100)] for start in (0, 1)]
    looks, _ = reader(*logs)
    whole = await looks.latest(DeadFilter(), 1_000)
    paged: list[DeadMessage] = []
    while page := await looks.latest(DeadFilter(), 7, Cursor.of(paged[0]) if paged else None):
        paged = [*page, *paged]
    assert ids(paged) == ids(whole)
    assert len({*ids(paged)}) == 200


async def test_what_is_long_after_the_page_is_not_read() -> None:
    log = [record(n, FROM_MS + n * 1_000_000) for n in range(1_000)]
    looks, consumer = reader(log)
    before = Cursor(FROM_MS + 10_000_000, 10, 0)
    assert ids(await looks.latest(DeadFilter(), 3, before)) == ["m7", "m8", "m9"]
    assert consumer.read < 30


async def test_a_rare_one_is_found_far_behind() -> None:
    log = [record(n, FROM_MS + n, "rare" if n == 5 else "often") for n in range(500)]
    looks, _ = reader(log, [])
    assert ids(await looks.latest(DeadFilter(queue="rare"), 10)) == ["m5"]
    assert ids(await looks.latest(DeadFilter(ids=["m7"]), 10)) == ["m7"]
    assert ids(await looks.latest(DeadFilter(selector="colour = 'red'"), 2)) == ["m497", "m499"]
    assert ids(await looks.latest(DeadFilter(queue="no.#"), 2)) == []


async def test_those_since_a_time_are_found_and_counted() -> None:
    far_ms = FROM_MS + 10_000_000
    log = [record(n, FROM_MS) for n in range(50)] + [
        record(n, far_ms + n, reason="purge" if n % 2 else "limit") for n in range(50, 56)
    ]
    looks, consumer = reader(log)
    counts = await looks.counts(DeadFilter(since_ms=far_ms + 52))
    assert counts == {("q", "limit"): 2, ("q", "purge"): 2}
    assert consumer.read == 6
    assert ids(await looks.latest(DeadFilter(since_ms=far_ms + 54), 10)) == ["m54", "m55"]
    assert sum((await looks.counts(DeadFilter())).values()) == 56


async def test_new_ones_are_followed() -> None:
    looks, consumer = reader([record(1, FROM_MS), record(2, FROM_MS)])
    await looks.latest(DeadFilter(), 1)
    (log,) = consumer.logs.values()
    log.append(placed(record(3, FROM_MS), 0, 2))
    async for each in looks.follow(DeadFilter()):
        assert each.id == "m3"
        break


async def test_a_bad_selector_is_refused() -> None:
    looks, _ = reader([])
    with pytest.raises(BadSelector):
        await looks.latest(DeadFilter(selector="a = = 1"), 1)


def test_an_undecodable_record_is_named_after_its_source() -> None:
    headers = ((h.SOURCE, b"in/0/7"), (h.REASON, b"undecodable"), (h.TIME_MS, b"5"))
    found = DeadMessage.read(new_record("dead", 1, b"x", headers))
    assert (found.id, found.queue, found.time_ms) == ("in/0/7", "", 5)


def test_an_undecodable_record_has_no_queue_whatever_its_producer_wrote() -> None:
    written = ((h.SEQUENCE, b"one"), (h.PRIORITY, b"x"))
    headers = (*written, (h.SOURCE, b"in/0/7"), (h.REASON, b"bad_header"), (h.TIME_MS, b"5"))
    found = DeadMessage.read(new_record("dead", 1, b"x", headers))
    assert (found.id, found.queue, found.sequence) == ("in/0/7", "", 0)


@pytest.mark.parametrize(
    "headers",
    [(), ((h.TIME_MS, b"5"),), ((h.REASON, b"\xff"),), ((h.QUEUE, None), (h.ID, b"m"))],
    ids=["none", "time", "bytes", "null"],
)
def test_records_that_no_worker_has_written_are_left_out(headers: Any) -> None:
    """One of them, from a console producer say, must not hide all the others."""
    ours = record(1, FROM_MS)
    others = new_record("evicted", 2, b"x", headers)
    assert ids([*DeadMessage.read_all([others, ours, others])]) == ["m1"]
