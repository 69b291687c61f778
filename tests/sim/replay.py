"""R102: the same input without crashes gives the same state and the same output, byte by byte."""

from __future__ import annotations

import json
from typing import Any

from ringfaust.core.state import State
from ringfaust.core.table import Kind
from ringfaust.processor.processor import Processor
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.stored_rows import FEEDS_KEY, INPUTS_KEY, POSITIONS_KEY
from tests.sim.broker import Broker
from tests.sim.order_book import ORDER
from tests.sim.plan import Plan
from tests.sim.queue_book import demand

_ALL = 1_000_000
_OUTPUTS = ("dispatched", "evicted", "dead", "events", "replies")


def check_replay(broker: Broker, plan: Plan, number: int, journal: list[tuple[Any, ...]]) -> None:
    """Run the committed journal of a partition through one processor, without interruption."""
    store = MemoryKeyValue()
    processor: Processor[list[Any]] = Processor(
        plan.processor_config(), State(ByteStore(store), plan.catalog()), {}, list
    )
    said: dict[str, list[Any]] = {topic: [] for topic in _OUTPUTS}
    for kind, *what in journal:
        if kind == "take":
            left = processor.take(*what)
            demand(not left, "an uninterrupted run would skip", left)
        elif kind == "skip":
            processor.skip(*what)
        elif kind == "tick":
            processor.tick(*what)
        elif kind == "go_to":
            processor.go_to(*what)
        else:
            processor.start()
        for (role, _), records in processor.outputs().items():
            said[role] += records
    store.apply(processor.writes().store)
    _compare_outputs(broker, number, said)
    _compare_rows(changelog(broker, number), dict(store.items_from(b"")))
    _check_cursors(ByteStore(store))


def _check_cursors(store: ByteStore) -> None:
    """R120: a queue's row has no cursor of a priority whose consumers have all left."""
    for name, row in store.scan(Kind.QUEUE, "", 0, None, _ALL):
        consumers = store.scan(Kind.CONSUMER, name, 0, None, _ALL)
        priorities = {consumer.priority for _, consumer in consumers}
        demand({each for each, *_ in row.cursors} <= priorities, "a cursor too many", name)


def _compare_outputs(broker: Broker, number: int, said: dict[str, list[Any]]) -> None:
    for topic, records in said.items():
        found = [
            (record.key, record.value, list(record.headers))
            for record in broker.log(topic, number).records()
            if not _is_of_repartition(topic, record.value, record.headers)
            and not (topic == "replies" and (record.key or b"").startswith(ORDER.encode()))
        ]
        if topic == "events":
            demand(
                _lines(found) == _lines(records),
                "the events differ from those of an uninterrupted run",
            )
        else:
            demand(found == records, topic, "differs from that of an uninterrupted run")


def _lines(records: list[Any]) -> list[bytes]:
    """The lines, however they are packed into records."""
    lines = [line for _, value, _ in records for line in value.split(b"\n")]
    return [line for line in lines if not line.startswith(b'{"step":0,"event":"unreadable"')]


def _is_of_repartition(topic: str, value: bytes | None, headers: Any) -> bool:
    """Whether the record was undecodable before the hop; a copy has its source twice."""
    said = dict(headers)
    is_copy = [name for name, _ in headers].count("ringfaust-source") > 1
    source = said.get("ringfaust-source", b"")
    is_unreadable = said.get("ringfaust-reason") in (b"undecodable", b"skipped")
    return topic == "dead" and is_unreadable and not is_copy and source.startswith(b"far/")


def changelog(broker: Broker, number: int) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for record in broker.log("changelog", number).records():
        assert record.key is not None
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.value
    return rows


def _compare_rows(found: dict[bytes, bytes], wanted: dict[bytes, bytes]) -> None:
    for rows in (found, wanted):
        rows.pop(INPUTS_KEY, None)
        rows.pop(FEEDS_KEY, None)
        rows.pop(POSITIONS_KEY, None)  # positions also move past records that wait for their queue
    for key in sorted({*found, *wanted}):
        demand(
            found.get(key) == wanted.get(key),
            "the row", key, "is", _show(found, key), "and uninterrupted", _show(wanted, key),
        )  # fmt: skip


def _show(rows: dict[bytes, bytes], key: bytes) -> Any:
    raw = rows.get(key)
    try:
        return raw and json.loads(raw)
    except ValueError:
        return raw
