"""What the fetcher asks of brokers, and what it makes of their answers; the brokers are simulated.

tests/broker/test_transport.py reads from a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from struct import pack
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import google_crc32c
import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    TopicAuthorizationFailedError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from faust.types import TP

from ringfaust.worker.faust import fetcher as module
from ringfaust.worker.faust.fetcher import Fetcher
from ringfaust.worker.faust.transport import BatchConsumer
from ringfaust.worker.interfaces import Batch, InputChanged

ONE, TWO, FAR = TP("in", 0), TP("in", 1), TP("far", 0)
LEADERS = {ONE: 1, TWO: 1, FAR: 2}
NOT_LEADER, OUT_OF_RANGE, NO_TOPIC, NOT_AUTHORIZED, DAMAGED = 6, 1, 3, 29, 2


def records(first: int, count: int) -> bytes:
    """A batch of records."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for number in range(count):
        builder.append(number, 1, None, b"%d" % (first + number), [])
    raw = bytearray(builder.build())
    raw[0:8] = first.to_bytes(8, "big")
    return bytes(raw)


def undecodable(good: int, rest: int) -> bytes:
    """A batch, of which a record has a header whose name is not UTF-8."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for number in range(good + rest):
        builder.append(number, 1, None, b"x", [("n\xff", b"")] if number == good else [])
    raw = bytearray(builder.build().replace("n\xff".encode(), b"n\xff\xff"))
    raw[17:21] = pack(">I", google_crc32c.value(bytes(raw[21:])))
    return bytes(raw)


Answer = dict[TP, bytes | int]
"""Of a broker: records of a partition, or an error code."""


class Brokers:
    """A Kafka client whose brokers answer when the test says so."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.leaders = dict(LEADERS)
        self.cluster = SimpleNamespace(leader_for_partition=lambda tp: self.leaders.get(TP(*tp)))
        self.asked: list[tuple[int, dict[TP, int]]] = []
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.refreshed = 0

    async def bootstrap(self) -> None: ...

    async def close(self) -> None: ...

    def set_topics(self, topics: set[str]) -> None:
        self.topics = topics

    async def force_metadata_update(self) -> None:
        self.refreshed += 1

    async def send(self, node: int, request: Any) -> Any:
        asked = {
            TP(topic, number): offset
            for topic, partitions in request.topics
            for number, offset, _ in partitions
        }
        self.asked.append((node, asked))
        assert node not in self._answers, "two fetches from one broker"
        self._answers[node] = asyncio.get_running_loop().create_future()
        return await self._answers[node]

    async def answer(self, node: int, found: Answer) -> None:
        """Let a broker answer, once it is asked: see `Answer`."""
        await self._until_asked(node)
        answers = [
            (tp.topic, [(
                tp.partition, raw if isinstance(raw, int) else 0, 1_000, 1_000, 0, [], -1,
                b"" if isinstance(raw, int) else raw,
            )])
            for tp, raw in found.items()
        ]  # fmt: skip
        self._answers.pop(node).set_result(SimpleNamespace(topics=answers))

    async def answer_each(self, answers: Iterable[tuple[int, Answer]]) -> None:
        for node, found in answers:
            await self.answer(node, found)

    async def fail(self, node: int) -> None:
        await self._until_asked(node)
        self._answers.pop(node).set_exception(KafkaConnectionError())

    async def _until_asked(self, node: int) -> None:
        async with asyncio.timeout(30):
            while node not in self._answers:
                await asyncio.sleep(0.001)


async def turn() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0)


class Reader(Fetcher):
    """A fetcher, and the brokers from which it reads."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        new_client: Any = lambda: self.brokers  # noqa: E731
        super().__init__(new_client, max_records=10, max_partition_bytes=1, checks_crcs=True)

    async def read(
        self, wanted: Collection[TP], *answers: tuple[int, Answer]
    ) -> dict[TP, list[int]]:
        """The offsets that one fetch returns, while brokers answer one after the other."""
        answering = asyncio.create_task(self.brokers.answer_each(answers))
        async with asyncio.timeout(30):
            found = await self.fetch(wanted)
            await answering
        return {batch.tp: [record.offset for record in batch.records] for batch in found}


@pytest.fixture
async def fetcher() -> AsyncIterator[Reader]:
    fetcher = Reader()
    await fetcher.start()
    yield fetcher
    await fetcher.stop()


def offsets(first: int, count: int) -> list[int]:
    return [*range(first, first + count)]


async def sought(fetcher: Reader, positions: dict[TP, int]) -> None:
    for tp, at in positions.items():
        fetcher.seek(tp, at)
    assert await fetcher.read([]) == {}  # it is awake, because other partitions may be wanted now


async def test_each_broker_is_asked_once_for_all_that_it_leads(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 5, TWO: 7, FAR: 9})
    assert await fetcher.read([ONE, TWO, FAR], (2, {FAR: records(9, 3)})) == {FAR: offsets(9, 3)}
    found = await fetcher.read([ONE, TWO, FAR], (1, {ONE: records(5, 1), TWO: records(7, 2)}))
    assert found == {ONE: [5], TWO: offsets(7, 2)}
    assert fetcher.brokers.asked == [(1, {ONE: 5, TWO: 7}), (2, {FAR: 9}), (2, {FAR: 12})]
    assert fetcher.read_position(TWO) == (9, 9)
    assert fetcher.end(TWO) == 1_000


async def test_what_is_not_wanted_is_fetched_once_and_kept(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0, TWO: 0})
    found = await fetcher.read(
        [TWO], (1, {ONE: records(0, 3), TWO: b""}), (1, {TWO: records(0, 1)})
    )
    assert found == {TWO: [0]}
    assert fetcher.brokers.asked == [(1, {ONE: 0, TWO: 0}), (1, {TWO: 0})]
    assert await fetcher.read([ONE, TWO]) == {ONE: offsets(0, 3)}


async def test_a_broker_is_asked_again_once_all_that_is_wanted_is_taken(fetcher: Reader) -> None:
    """Before, it would wait for records of the others."""
    await sought(fetcher, {ONE: 0, TWO: 0})
    found = await fetcher.read([ONE, TWO], (1, {ONE: records(0, 25), TWO: b""}))
    assert found == {ONE: offsets(0, 10)}
    assert await fetcher.read([ONE, TWO]) == {ONE: offsets(10, 10)}
    assert await fetcher.read([ONE, TWO]) == {ONE: offsets(20, 5)}
    assert await fetcher.read([ONE, TWO], (1, {TWO: records(0, 1)})) == {TWO: [0]}
    assert fetcher.brokers.asked[1:] == [(1, {ONE: 25, TWO: 0})]


async def test_partitions_take_turns(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0, TWO: 0})
    found = await fetcher.read([ONE, TWO], (1, {ONE: records(0, 15), TWO: records(0, 12)}))
    assert found == {ONE: offsets(0, 10)}
    assert await fetcher.read([ONE, TWO]) == {TWO: offsets(0, 10)}
    assert await fetcher.read([ONE, TWO]) == {ONE: offsets(10, 5), TWO: offsets(10, 2)}


async def test_an_answer_from_before_a_seek_is_dropped(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0, TWO: 0})
    before = fetcher.generation(ONE)
    reading = asyncio.create_task(fetcher.read([ONE, TWO]))
    await turn()
    fetcher.seek(ONE, 0)
    fetcher.stop_reading([TWO])
    assert await reading == {}
    assert fetcher.generation(ONE) != before
    assert (fetcher.generation(TWO), fetcher.read_position(TWO)) == (None, None)
    found = await fetcher.read(
        [ONE], (1, {ONE: records(0, 3), TWO: records(0, 3)}), (1, {ONE: records(0, 4)})
    )
    assert found == {ONE: offsets(0, 4)}


async def test_a_late_answer_of_a_former_leader_is_dropped(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0})
    reading = asyncio.create_task(fetcher.read([ONE]))
    await turn()
    fetcher.brokers.leaders[ONE] = 2
    fetcher.wake()
    assert await reading == {}
    assert await fetcher.read([ONE], (2, {ONE: records(0, 3)})) == {ONE: offsets(0, 3)}
    found = await fetcher.read(
        [ONE], (1, {ONE: records(0, 1) + records(1, 2)}), (2, {ONE: records(3, 1)})
    )
    assert found == {ONE: [3]}


async def test_reading_may_stop_before_a_request_goes_out(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0, TWO: 0})
    reading = asyncio.create_task(fetcher.read([ONE, TWO]))
    await asyncio.sleep(0)
    fetcher.stop_reading([ONE])
    await fetcher.brokers.answer(1, {ONE: records(0, 1), TWO: records(0, 1)})
    assert await reading == {TWO: [0]}


async def test_what_was_kept_before_a_seek_is_dropped(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0})
    assert await fetcher.read([ONE], (1, {ONE: records(0, 15)})) == {ONE: offsets(0, 10)}
    await sought(fetcher, {ONE: 3})
    found = await fetcher.read([ONE], (1, {ONE: records(0, 15)}))  # the batch that has the offset
    assert found == {ONE: offsets(3, 10)}


@pytest.mark.parametrize("code", [OUT_OF_RANGE, NO_TOPIC])
async def test_a_position_that_does_not_exist_is_told_and_read_no_more(
    code: int, fetcher: Reader
) -> None:
    """R112: it must not go unnoticed."""
    await sought(fetcher, {ONE: 0, TWO: 0})
    assert await fetcher.read([ONE, TWO], (1, {ONE: code, TWO: records(0, 1)})) == {TWO: [0]}
    [(tp, error)] = fetcher.take_failed()
    assert tp == ONE
    assert isinstance(error, InputChanged)
    assert fetcher.take_failed() == []
    assert fetcher.being_read == {TWO}
    assert await fetcher.read([TWO], (1, {TWO: records(1, 1)})) == {TWO: [1]}
    assert fetcher.brokers.asked[1:] == [(1, {TWO: 1})]


async def test_a_partition_that_cannot_be_read_ends_the_wait(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0})
    assert await fetcher.read([ONE], (1, {ONE: OUT_OF_RANGE})) == {}
    [(tp, error)] = fetcher.take_failed()
    assert tp == ONE
    assert isinstance(error, InputChanged)


async def test_another_leader_is_asked_once_it_is_known(fetcher: Reader) -> None:
    await sought(fetcher, {ONE: 0, TWO: 0})
    reading = asyncio.create_task(fetcher.read([ONE, TWO]))
    await turn()
    fetcher.brokers.leaders[ONE] = 2
    await fetcher.brokers.answer(1, {ONE: NOT_LEADER, TWO: b""})
    await fetcher.brokers.answer(2, {ONE: records(0, 1)})
    assert await reading == {ONE: [0]}
    assert fetcher.brokers.refreshed
    assert fetcher.brokers.asked == [(1, {ONE: 0, TWO: 0}), (2, {ONE: 0}), (1, {TWO: 0})]


async def test_a_partition_without_a_leader_keeps_no_other_waiting(fetcher: Reader) -> None:
    del fetcher.brokers.leaders[ONE]
    await sought(fetcher, {ONE: 0, FAR: 0})
    assert await fetcher.read([ONE, FAR], (2, {FAR: records(0, 1)})) == {FAR: [0]}
    fetcher.brokers.leaders[ONE] = 1
    assert await fetcher.read([ONE, FAR], (1, {ONE: records(0, 1)})) == {ONE: [0]}


async def test_what_has_no_leader_that_answers_is_told_until_one_does(fetcher: Reader) -> None:
    del fetcher.brokers.leaders[ONE]
    await sought(fetcher, {ONE: 0, TWO: 0, FAR: 0})
    reading = asyncio.create_task(fetcher.read([ONE, TWO, FAR]))
    await fetcher.brokers.answer(1, {TWO: NOT_LEADER})
    await fetcher.brokers.fail(2)
    await turn()
    assert {*fetcher.unreadable(0)} == {ONE, TWO, FAR}
    assert fetcher.unreadable(60) == []
    fetcher.brokers.leaders[ONE] = 2
    await fetcher.brokers.answer(1, {TWO: b""})
    await fetcher.brokers.answer(2, {FAR: b""})
    await fetcher.brokers.answer(2, {ONE: records(0, 1)})
    assert await reading == {ONE: [0]}
    assert fetcher.unreadable(0) == []


async def test_a_broker_that_fails_is_asked_again_and_keeps_no_other_waiting(
    fetcher: Reader,
) -> None:
    await sought(fetcher, {ONE: 0, FAR: 0})
    reading = asyncio.create_task(fetcher.read([ONE, FAR]))
    await fetcher.brokers.fail(1)
    await fetcher.brokers.answer(2, {FAR: records(0, 1)})
    assert await reading == {FAR: [0]}
    assert await fetcher.read([ONE, FAR], (1, {ONE: records(0, 1)})) == {ONE: [0]}


async def test_a_topic_that_may_not_be_read_is_told_and_keeps_no_other_waiting(
    fetcher: Reader,
) -> None:
    """R123."""
    await sought(fetcher, {ONE: 0, TWO: 0})
    found = await fetcher.read([ONE, TWO], (1, {ONE: NOT_AUTHORIZED, TWO: records(0, 1)}))
    assert found == {TWO: [0]}
    [(tp, error)] = fetcher.take_failed()
    assert tp == ONE
    assert isinstance(error, TopicAuthorizationFailedError)
    assert fetcher.being_read == {TWO}


async def test_an_error_of_a_partition_is_in_the_log_once(
    fetcher: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless another broker leads the partition now, which is no fault."""
    await sought(fetcher, {ONE: 0})
    reading = asyncio.create_task(fetcher.read([ONE]))
    for code in (NOT_LEADER, DAMAGED, DAMAGED):
        await fetcher.brokers.answer(1, {ONE: code})
    await fetcher.brokers.answer(1, {ONE: records(0, 1)})
    assert await reading == {ONE: [0]}
    assert caplog.text.count("cannot read in, partition") == 1
    assert "CorruptRecord" in caplog.text


async def test_the_partition_that_waits_longest_comes_first_in_a_request(fetcher: Reader) -> None:
    """A broker exceeds the limits for the first one only: a large batch of another would wait."""
    await sought(fetcher, {ONE: 0, TWO: 0})
    assert await fetcher.read([ONE, TWO], (1, {ONE: records(0, 1)})) == {ONE: [0]}
    assert await fetcher.read([ONE, TWO], (1, {TWO: records(0, 1)})) == {TWO: [0]}
    assert [[*asked] for _, asked in fetcher.brokers.asked] == [[ONE, TWO], [TWO, ONE]]


async def test_damaged_records_are_fetched_again_and_hold_up_no_other_partition(
    fetcher: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """R123. A disk may be repaired, or another broker lead."""
    await sought(fetcher, {ONE: 0, TWO: 0})
    damaged = records(0, 2) + records(2, 1)[:-1] + b"?"
    assert await fetcher.read([ONE, TWO], (1, {ONE: damaged})) == {ONE: [0, 1]}
    reading = asyncio.create_task(fetcher.read([ONE, TWO]))
    await fetcher.brokers.answer(1, {ONE: damaged, TWO: records(0, 1)})
    assert await reading == {TWO: [0]}
    assert await fetcher.read([ONE, TWO], (1, {ONE: records(2, 1)})) == {ONE: [2]}
    assert caplog.text.count("cannot read in, partition") == 1
    assert "CorruptRecord" in caplog.text


async def test_what_cannot_be_decoded_is_passed(fetcher: Reader) -> None:
    """R116. The records behind it in its batch are lost, too."""
    await sought(fetcher, {ONE: 0})
    reading = asyncio.create_task(fetcher.fetch([ONE]))
    await fetcher.brokers.answer(1, {ONE: undecodable(1, 2) + records(3, 1)})
    (batch,) = await reading
    assert [record.value for record in batch.records] == [b"x", None, None]
    assert "header not UTF-8" in batch.records[1].headers[0][1].decode()
    assert fetcher.read_position(ONE) == (3, 3)


async def test_a_batch_that_cannot_be_decoded_is_bounded_and_takes_nothing_from_others(
    fetcher: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R121. One with a million records would be a million placeholders."""
    monkeypatch.setattr(module, "_PLACEHOLDERS", 20)
    fetcher.brokers.leaders[FAR] = 1
    await sought(fetcher, {ONE: 0, TWO: 0, FAR: 0})
    bad = undecodable(0, 200)
    found = await fetcher.read(
        [ONE, TWO, FAR], (1, {ONE: records(0, 8), TWO: bad, FAR: records(0, 1)})
    )
    assert found == {ONE: offsets(0, 8), TWO: offsets(0, 20)}
    assert await fetcher.read([ONE, TWO, FAR]) == {FAR: [0]}
    assert await fetcher.read([ONE, TWO, FAR], (1, {TWO: records(20, 1)})) == {TWO: [20]}


async def test_topics_are_followed_before_anything_is_read(fetcher: Reader) -> None:
    """Without a topic, the client would ask for all of the cluster."""
    fetcher.follow({"in", "far"})
    assert fetcher.brokers.topics == {"in", "far"}
    fetcher.seek(ONE, 0)
    fetcher.follow({"new"})
    assert fetcher.brokers.topics == {"in", "new"}
    fetcher.stop_reading([ONE])
    fetcher.follow(())
    assert fetcher.brokers.topics == {"in", "new"}


async def test_a_position_that_passes_a_marker_is_a_batch_without_records(fetcher: Reader) -> None:
    """Otherwise a lag would be reported where nothing is left to read."""
    await sought(fetcher, {ONE: 0})
    builder = DefaultRecordBatchBuilder(2, 0, 1, 7, 0, 0, 1 << 30)
    builder.append(0, 1, b"\0\0\0\1", b"", [])
    marker = bytearray(builder.build())
    marker[22] |= 0x20
    marker[17:21] = pack(">I", google_crc32c.value(bytes(marker[21:])))
    reading = asyncio.create_task(fetcher.fetch([ONE]))
    await fetcher.brokers.answer(1, {ONE: bytes(marker)})
    await turn()
    fetcher.wake()
    (batch,) = await reading
    assert (batch.records, batch.next_offset) == ([], 1)
    assert fetcher.read_position(ONE) == (1, 0)
    fetcher.wake()
    assert await fetcher.fetch([ONE]) == []


async def test_an_error_of_ours_is_not_lost(
    fetcher: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sought(fetcher, {ONE: 0})

    def fail(*_: object) -> None:
        raise AttributeError("a mistake")

    monkeypatch.setattr(fetcher, "_note", fail)
    reading = asyncio.create_task(fetcher.read([ONE]))
    await fetcher.brokers.answer(1, {ONE: records(0, 1)})
    with pytest.raises(AttributeError, match="a mistake"):
        await reading


async def test_a_batch_that_a_seek_makes_stale_on_its_way_is_not_handed_on() -> None:
    """A task that cannot run would pause the partition for it, until another seek."""
    offered: list[Batch] = []
    stale, current = Batch(ONE, [], 1, 5), Batch(ONE, [], 2, 9)
    running = SimpleNamespace(should_stop=False)

    async def next_batches() -> list[Batch]:
        running.should_stop = True
        return [stale, current]

    consumer: Any = SimpleNamespace(
        _fetcher=AsyncMock(follow=Mock()), _next_batches=next_batches, should_stop=False,
        app=SimpleNamespace(listener=SimpleNamespace(topics={"in"}, offer=offered.append)),
        is_current=lambda batch: batch is current,
    )  # fmt: skip
    await BatchConsumer.fetch_loop(consumer, running)  # type: ignore[arg-type]
    assert offered == [current]
    consumer._fetcher.follow.assert_called_with({"in"})
    consumer._fetcher.stop.assert_awaited()
