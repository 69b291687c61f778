"""The client drops a record that repeats a delivery, no matter what repeated it (R118)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ringfaust.client.attachment import REMEMBERED, Attachment, SeenDeliveries
from ringfaust.client.locate import QueueLocation
from ringfaust.protocol import headers as h

PREFIX_AND_ALL = (1, 2, 3, 1, 2, 3, 4)
"""What a Spark job leaves in the topic: a part of an interrupted micro-batch, then all of it."""


class Reader:
    """The dispatched topic of one partition: deliveries to the consumer `me` of the queue `q`."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._records = [
            SimpleNamespace(
                offset=offset,
                headers=(
                    (h.CONSUMER, b"me"), (h.QUEUE, b"q"), (h.DELIVERY, b"%d" % number),
                ),
            )
            for offset, number in enumerate(numbers)
        ]  # fmt: skip

    async def getone(self) -> Any:
        return self._records.pop(0)

    async def getmany(self, **_: object) -> dict[str, list[Any]]:
        records, self._records = self._records, []
        return {"dispatched": records}

    async def stop(self) -> None:
        """Nothing is open."""


class Connected:
    """A connection whose worker accepts everything."""

    def __init__(self, *readers: Reader) -> None:
        self._readers = list(readers)

    async def reader(self, *_: object) -> Reader:
        return self._readers.pop(0)

    async def request(self, *_: object) -> dict[str, Any]:
        return {}

    async def write_command(self, *_: object) -> None:
        """It is written."""


async def nothing() -> None:
    """No acks wait."""


def attachment(*readers: Reader) -> Attachment:
    connection: Any = Connected(*readers)
    return Attachment(
        connection, {"consumer": "me"}, "q", 1_000, on_heartbeat=nothing, on_lost=lambda: None
    )


async def handed_out(consumer: Attachment, count: int) -> list[int]:
    return [int((await consumer.next())[1][h.DELIVERY]) for _ in range(count)]


async def test_a_repeated_delivery_is_handed_out_once() -> None:
    consumer = attachment(Reader(PREFIX_AND_ALL))
    await consumer.start(QueueLocation(0, True))
    assert await handed_out(consumer, 4) == [1, 2, 3, 4]
    await consumer.close()


async def test_each_partition_has_its_own_numbers() -> None:
    consumer = attachment(Reader((7, 8)), Reader((1, 1, 2)))
    await consumer.start(QueueLocation(0, True))
    assert await handed_out(consumer, 2) == [7, 8]
    await consumer._attach_at(1)
    assert await handed_out(consumer, 2) == [1, 2]
    await consumer.close()


def test_a_record_that_was_missing_in_the_first_attempt_is_no_repeat() -> None:
    """Kafka may lose a record in the middle of an attempt that fails; the next one has it."""
    seen = SeenDeliveries()
    assert [n for n in (1, 3, 1, 2, 3, 4) if seen.is_new(n)] == [1, 3, 2, 4]


def test_what_is_remembered_is_bounded() -> None:
    seen = SeenDeliveries()
    for number in range(1, 3 * REMEMBERED):
        assert seen.is_new(number)
    assert len(seen._numbers) == REMEMBERED
    assert not any(seen.is_new(number) for number in range(1, 3 * REMEMBERED))
