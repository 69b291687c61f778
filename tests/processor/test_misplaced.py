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
    addresses = {
        "news.*": {
            "subscriptions": {
                "one": {"selector": "JMSMessageID = 'm0'"},
                "two": {"selector": "JMSMessageID = 'm1'"},
            }
        },
        "kept.*": {"retroactive_count": 1},
    }
    catalog = Catalog(
        {"keyed.*": {}, "strict.*": {"max_message_bytes": 200}, "fixed": {}}, {}, addresses
    )
    return Processor(shared, State(ByteStore(MemoryKeyValue()), catalog), {}, list)


def said(processor: Processor[list[OutRecord]], partition: int, count: int = 3) -> list[Any]:
    """The event after some records with the key; the log must have the same text."""
    records = [
        new_record("in", offset, b"x", [("ringfaust-id", b"m%d" % offset)], KEY)._replace(
            partition=partition
        )
        for offset in range(count)
    ]
    processor.take(records, 1_000)
    return reported(processor)


def say(processor: Processor[list[OutRecord]], kind: str, **fields: Any) -> None:
    """A command; it must be accepted."""
    offset = processor.positions.get("control", 0)
    asked = {"type": kind, "reply": "me", **fields}
    processor.take([new_record("control", offset, json.dumps(asked).encode())], 1_000)
    (reply,) = processor.outputs()[(Role.REPLIES, None)]
    assert json.loads(reply[1] or b"")["ok"], reply


def reported(processor: Processor[list[OutRecord]]) -> list[Any]:
    """The events of the batch; the log must have the same texts."""
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
    ("kind", "fields"),
    [
        ("pause", {"what": "dispatch"}),
        ("configure", {"settings": {"ring_size": 5}}),
        ("attach", {"consumer": "me", "credit": 0}),
        ("list", {}),
    ],
)
def test_a_queue_that_was_in_use_before_its_first_message_is_reported(
    kind: str, fields: dict[str, Any]
) -> None:
    processing = processor()
    say(processing, kind, queue="keyed.k", **fields)
    (line,) = said(processing, OTHER)
    assert (line["queue"], line["by"]) == ("keyed.k", f"in/{OTHER}/0")


def test_a_queue_whose_reading_was_paused_before_its_first_message_is_reported() -> None:
    processing = processor()
    say(processing, "pause", queue="keyed.k", what="pulling")
    assert said(processing, OTHER) == []
    say(processing, "resume", queue="keyed.k", what="pulling")
    processing.resume("in")
    (line,) = said(processing, OTHER)
    assert (line["queue"], line["by"]) == ("keyed.k", f"in/{OTHER}/0")


def test_a_queue_that_refused_its_first_message_is_reported_with_the_first_that_it_takes() -> None:
    processing = processor("strict.{key}")
    long = new_record("in", 0, b"x" * 300, key=KEY)._replace(partition=OTHER)
    processing.take([long], 1_000)
    assert reported(processing) == []
    (line,) = said(processing, OTHER)
    assert (line["queue"], line["by"]) == ("strict.k", f"in/{OTHER}/1")


@pytest.mark.parametrize("template", ["news.{key}", "kept.{key}"])
def test_an_address_is_reported_once(template: str) -> None:
    """Also if its subscriptions get their first messages one after the other."""
    processing = processor(template)
    (line,) = said(processing, OTHER)
    assert (line["queue"], line["by"]) == (template.format(key="k"), f"in/{OTHER}/0")
    assert (line["home"], said(processor(template), HOME)) == (HOME, [])


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
