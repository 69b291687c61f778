"""All rows of a batch are encoded as each by itself; C refuses what is no row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core.model import PLAIN, Delivery, Message, timed_key
from ringfaust.core.queue import QueueRow
from ringfaust.core.state import Clock
from ringfaust.core.table import Kind
from ringfaust.protocol.records import Payload
from ringfaust.protocol.stored_rows.keys import write_key
from ringfaust.protocol.stored_rows.values import write_value
from tests.native.checks import REFUSALS, assert_keeps_nothing, cut
from tests.protocol.made_effects import counts, deliveries, messages, texts, times

numbers = st.integers(0, 2**63 - 1) | st.integers(0, 9)
positions = st.integers(0, 2**105 - 1) | counts.map(lambda sequence: PLAIN | sequence)
holders = st.lists(texts.filter(bool), max_size=3).map(tuple)
stored_messages = st.builds(
    lambda message, position, held, is_bodyless: message._replace(
        position=position, holders=held, is_bodyless=is_bodyless
    ),
    messages, positions, holders, st.booleans(),
)  # fmt: skip
stored_deliveries = st.builds(
    lambda delivery, message, xid, is_orphan: delivery._replace(
        message=message, xid=xid, is_orphan=is_orphan
    ),
    deliveries, stored_messages, texts, st.booleans(),
)  # fmt: skip
settings = st.dictionaries(texts, st.integers() | texts, max_size=2)
SHARED = {"ring_size": 10}


def tuples(length: int, each: Any = numbers) -> Any:
    return st.lists(each, min_size=length, max_size=length).map(tuple)


queues = st.builds(
    QueueRow,
    settings=settings, applied=settings | st.just(SHARED), counts=st.just(()) | tuples(12),
    level_counts=tuples(10), sequence=numbers, orders=numbers,
    cursors=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), numbers, numbers), max_size=2)
    .map(tuple),
    paused=st.lists(texts, max_size=2).map(tuple), wake_ms=numbers, expiring=numbers,
    attached=numbers, departures=tuples(2), size_bytes=numbers, non_persistent=numbers,
    groups=st.just(()) | tuples(3), sent_bounds=tuples(2),
    set_ms=st.dictionaries(texts, numbers, max_size=2),
)  # fmt: skip
timed = st.builds(timed_key, times, counts)
tables = (
    st.tuples(st.just(Kind.RING), texts, st.integers(0, 9),
              st.dictionaries(positions, st.none() | stored_messages, max_size=2))
    | st.tuples(st.just(Kind.SCHEDULED), texts, st.just(0),
                st.dictionaries(timed, st.none() | stored_messages, max_size=2))
    | st.tuples(st.just(Kind.DELIVERY), texts, st.just(0),
                st.dictionaries(numbers, st.none() | stored_deliveries, max_size=2))
    | st.tuples(st.just(Kind.QUEUE), st.just(""), st.just(0),
                st.dictionaries(texts, st.none() | queues, max_size=2))
    | st.tuples(st.just(Kind.EXPIRY), texts, st.just(0),
                st.dictionaries(timed, st.none() | st.tuples(counts, counts), max_size=2))
    | st.just((Kind.CLOCK, "", 0, {0: Clock(1, 2, 3)}))
)  # fmt: skip


def rows_of(writes: list[Any]) -> list[tuple[bytes, bytes | None]]:
    """The keys and values of all rows, one by one."""
    return [
        (write_key((kind, queue, part, key)), None if value is None else write_value(kind, value))
        for kind, queue, part, rows in writes
        for key, value in rows.items()
    ]


@given(writes=st.lists(tables, max_size=3))
def test_writes(functions: Any, writes: list[Any]) -> None:
    assert functions.encode_writes(writes) == rows_of(writes)
    assert functions.encode_writes(iter(writes)) == rows_of(writes)


def test_queues_that_share_their_settings(functions: Any) -> None:
    one = QueueRow({}, SHARED, (), (0,) * 10, 1, 0, (), (), 0, 0, 0, (0, 0))
    rows = {
        "a": one,
        "b": one._replace(sequence=2),
        "c": one._replace(settings={"ring_size": 3}),
        "d": one._replace(paused=("dispatch",)),
        "e": one._replace(applied={"ring_size": 4}),
        "f": one,
        "g": one._replace(set_ms={"ring_size": 5}),
    }
    table = (Kind.QUEUE, "", 0, rows)
    assert functions.encode_writes([table]) == rows_of([table])


MESSAGE = Message(
    "m", 1, PLAIN, 4, 5, 0, 0, "", 0, 0, (), 1, Payload(b"k", b"v", (("n", b"x"),), "in/0/1")
)
DELIVERY = Delivery(1, "c", MESSAGE, 5)
QUEUE = QueueRow({}, {}, (1,), (0,) * 10, 1, 0, (), (), 0, 0, 0, (0, 0))


def ring(value: Any, key: Any = 1, queue: Any = "q", level: Any = 0) -> list[Any]:
    return [(Kind.RING, queue, level, {key: value})]


def queue(**changes: Any) -> list[Any]:
    return [(Kind.QUEUE, "", 0, {"q": QUEUE._replace(**changes)})]


WRONG: list[Any] = [
    7,
    [7],
    [("kind", "q", 0, {})],
    ring(7),
    ring(MESSAGE._replace(payload=None)),
    ring(MESSAGE._replace(id=7)),  # type: ignore[arg-type]
    ring(MESSAGE._replace(id="x" * 70_000)),
    ring(MESSAGE._replace(sequence=-1)),
    ring(MESSAGE._replace(sequence=2**64)),
    ring(MESSAGE._replace(attempts=2**33)),
    ring(MESSAGE._replace(position="first")),  # type: ignore[arg-type]
    ring(MESSAGE._replace(position=1 << 112)),
    ring(MESSAGE._replace(holders=["c"])),  # type: ignore[arg-type]
    ring(MESSAGE._replace(holders=(b"c",))),  # type: ignore[arg-type]
    ring(MESSAGE._replace(payload=Payload("k", b"v", (), "s"))),  # type: ignore[arg-type]
    ring(MESSAGE._replace(payload=Payload(b"k", b"v", (("n", "x"),), "s"))),
    ring(MESSAGE._replace(payload=Payload(b"k", b"v", ("n",), "s"))),  # type: ignore[arg-type]
    ring(cut(MESSAGE)),
    ring(MESSAGE._replace(payload=cut(MESSAGE.payload))),
    ring(MESSAGE._replace(priority=256)),
    ring(MESSAGE._replace(priority=-1)),
    ring(MESSAGE._replace(priority=16, persistent=False)),
    [(Kind.DELIVERY, "q", 0, {1: cut(DELIVERY)})],
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(message=cut(MESSAGE))})],
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(number=-1)})],
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(number=2**62)})],
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(handed_ms=-1)})],
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(handed_ms=2**48)})],
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(consumer="c" * 65_536)})],
    [(Kind.QUEUE, "", 0, {"q": cut(QUEUE)})],
    queue(cursors=((2**31, 1, 1),)),
    queue(cursors=((-(2**31) - 1, 1, 1),)),
    queue(cursors=((1, -1, 1),)),
    queue(cursors=((1, 1, -1),)),
    queue(cursors=((1, 1),)),
    queue(departures=()),
    ring(MESSAGE, key="first"),
    ring(MESSAGE, key=-1),
    ring(MESSAGE, queue=b"q"),
    ring(MESSAGE, level=256),
    [(Kind.DELIVERY, "q", 0, {1: MESSAGE})],
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(consumer=b"c")})],  # type: ignore[arg-type]
    [(Kind.DELIVERY, "q", 0, {1: DELIVERY._replace(message=None)})],  # type: ignore[arg-type]
    queue(sequence=-1),
    queue(counts=(1,) * 13),
    queue(counts=[1]),
    queue(cursors=[1]),
    queue(cursors=((1, 2, "3"),)),
    queue(applied=None),
    queue(paused=7),
    queue(settings=7),
    queue(settings=None),
    [(Kind.EXPIRY, "q", 0, {"time": (0, 1)})],
]


@pytest.mark.parametrize("writes", WRONG)
def test_what_is_no_row_is_refused(c: Any, writes: Any) -> None:
    with pytest.raises(REFUSALS):
        c.encode_writes(writes)


def test_nothing_is_kept(c: Any) -> None:
    kept = {"ring_size": 1}
    right = [*ring(MESSAGE), (Kind.DELIVERY, "q", 0, {1: DELIVERY}), *queue(applied=kept)]

    calls = [lambda writes=writes: c.encode_writes(writes) for writes in (right, *WRONG)]
    assert_keeps_nothing(calls, [MESSAGE, DELIVERY, QUEUE, MESSAGE.payload, b"k", "in/0/1"])
