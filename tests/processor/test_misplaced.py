"""R113: a queue that is named after a key, in another partition than that of the key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.outbox import MISPLACED
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import OutRecord, Role
from ringfaust.protocol.routes import Route
from tests.records import new_record

KEY = b"k"
HOME = partition_of(KEY, 4)
OTHER = (HOME + 1) % 4


def processor(template: str = "keyed.{key}", **more: Any) -> Processor[list[OutRecord]]:
    shared = ProcessorConfig(
        control_topic="control", repartition_topic="hop", routes=[Route("in", template)],
        max_record_bytes=1_000, log_is_clock=False, **{"partitions": 4, **more},
    )  # fmt: skip
    catalog = Catalog({"keyed.*": {}, "fixed": {}}, {})
    return Processor(shared, State(ByteStore(MemoryKeyValue()), catalog), {}, list)


def said(processor: Processor[list[OutRecord]], partition: int, count: int = 3) -> list[Any]:
    """The event after some records with the key; the log must have the same text."""
    records = [
        new_record("in", offset, b"x", key=KEY)._replace(partition=partition)
        for offset in range(count)
    ]
    processor.take(records, 1_000)
    logged = [each.text for each in processor.activity().log if each.asked == MISPLACED]
    lines: list[Any] = []
    for (role, _), out in processor.outputs().items():
        if role is Role.EVENTS:
            lines += [
                json.loads(line) for _, value, _ in out for line in (value or b"").split(b"\n")
            ]
    found = [line for line in lines if line["event"] == "misplaced"]
    assert logged == [line["text"] for line in found]
    return found


def test_the_first_message_of_a_misplaced_queue_is_reported_once() -> None:
    (line,) = said(processor(), OTHER)
    assert (line["queue"], line["partition"], line["home"]) == ("keyed.k", OTHER, HOME)
    assert line["by"] == f"in/{OTHER}/0"
    assert "hop: always" in line["text"]


@pytest.mark.parametrize(
    ("template", "partition", "more"),
    [
        ("keyed.{key}", HOME, {}),
        ("fixed", OTHER, {}),
        ("keyed.{key}", OTHER, {"spread": frozenset({"in"})}),
        ("keyed.{key}", OTHER, {"partitions": 0}),
        ("keyed.{key}", OTHER, {"partitions": 1}),
    ],
    ids=["at home", "not named after the key", "repartitioned", "unknown", "one partition"],
)
def test_nothing_is_reported_of(template: str, partition: int, more: dict[str, Any]) -> None:
    assert said(processor(template, **more), partition) == []
