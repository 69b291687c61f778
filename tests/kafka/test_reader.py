"""`read_to_end`: the position decides when a partition has been read."""

from __future__ import annotations

from typing import Any

from aiokafka import TopicPartition

from ringfaust.kafka.reader import read_to_end

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class ScriptedConsumer:
    """Returns prepared batches. Each also moves the position of its partition."""

    def __init__(self, batches: list[tuple[TopicPartition, list[str], int]]) -> None:
        self._batches = batches
        self._positions = {ONE: 0, TWO: 0}
        self.paused: list[TopicPartition] = []

    async def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    def pause(self, *tps: TopicPartition) -> None:
        self.paused += tps

    async def getmany(
        self, *tps: TopicPartition, timeout_ms: int, max_records: int | None
    ) -> dict[TopicPartition, list[str]]:
        tp, records, position = self._batches.pop(0)
        assert tp in tps
        self._positions[tp] = position
        return {tp: records} if records else {}


async def read(consumer: Any, ends: dict[TopicPartition, int]) -> list[str]:
    return [record async for records in read_to_end(consumer, ends) for record in records]


async def test_it_reads_past_transaction_markers_at_the_end() -> None:
    # The records end at offset 2; a marker, which consumers never see, is at offset 2.
    consumer = ScriptedConsumer([(ONE, ["a", "b"], 2), (ONE, [], 3)])
    assert await read(consumer, {ONE: 3}) == ["a", "b"]


async def test_a_partition_that_is_done_is_paused_while_others_are_read() -> None:
    consumer = ScriptedConsumer([(ONE, ["a"], 1), (TWO, ["b"], 1), (TWO, ["c"], 2)])
    assert await read(consumer, {ONE: 1, TWO: 2}) == ["a", "b", "c"]
    assert consumer.paused == [ONE]


async def test_an_empty_partition_needs_no_fetch() -> None:
    assert await read(ScriptedConsumer([]), {ONE: 0}) == []
