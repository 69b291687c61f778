"""Whatever comes, in whatever order: nothing is raised, and what is refused has changed nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.protocol import control
from ringfaust.protocol import headers as h
from tests.fuzz.harness import Partition, Said

KINDS = control.MODELS
NAMES = {
    "queue": ["orders", "strict", "prices", "prices::ann", "prices::new", "new", "nowhere"],
    "address": ["prices", "orders", "nowhere"],
    "consumer": ["holder", "picky", "new", "@window"],
    "message": ["A", "B", "C", "D", "E", "F", "P", "S", "x", "nothing"],
    "to": ["strict", "orders", "nowhere"],
    "xid": ["", "open", "prepared", "new"],
    "owner": ["", "o", "o", "other"],
    "timeout_ms": [1, 300_000],
    "session": ["", "s", "new"],
    "what": ["dispatch", "everything"],
    "reply": ["r"],
    "credit": [0, 1, 5],
    "add": [0, 1],
    "delivery": [0, 1, 2, 3, 4],
    "subscription": ["", "ann", "new"],
    "settings": [
        {}, {"ring_size": 1, "shrink": "eager"}, {"retroactive_count": 0}, {"window": 2},
        {"max_messages": 1, "when_full": "drop_newest"}, {"max_active_consumers": 1},
        {"durable": False}, {"selector": "a ="}, {"ring_size": 0}, {"compat": "artemis"},
    ],
    "delay_ms": [None, 0, 5],
    "selector": ["", "a = 1", "a ="],
    "ack_mode": ["client", "none", "individual"],
}  # fmt: skip
"""Values that make sense, mostly."""
ODD = st.sampled_from(
    ["", "a\0", "x" * 250, 2**63, -1, 1.5, True, None, [], {}, [[]], {"a": {}}, float("nan"), "ü"]
) | st.text(max_size=5)


@st.composite
def commands(draw: st.DrawFn) -> dict[str, Any]:
    """A command whose fields are mostly right; one of them may be anything."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    fields: dict[str, Any] = {"type": kind}
    for name, field in KINDS[kind].model_fields.items():
        if name in NAMES and name != "reply" and (field.is_required() or draw(st.booleans())):
            fields[name] = draw(st.sampled_from(NAMES[name]))
    if draw(st.integers(0, 3)) == 0:
        fields[draw(st.sampled_from([*fields, "more"]))] = draw(ODD)
    return {**fields, "reply": "r"}


@st.composite
def produced(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    """Headers that are mostly right."""
    numbers = st.sampled_from([b"0", b"1", b"9", b"10", b"-1", b"", b"x", b"9" * 20, b"5000"])
    texts = st.sampled_from([b"", b"A", b"open", b"prepared", b"\xff", b"x" * 600])
    properties = st.sampled_from([b"{}", b'{"a":1}', b"[]", b"", b'{"a":NaN}', b'{"a":"\\ud800"}'])
    modes = st.sampled_from([b"persistent", b"non_persistent", b"other"])
    ours = {
        h.ID: texts, h.PRIORITY: numbers, h.GROUP: texts, h.DELAY_MS: numbers, h.TTL_MS: numbers,
        h.DELIVER_AT_MS: numbers, h.XID: texts, h.PROPERTIES: properties, h.REDRIVES: numbers,
        h.REDRIVE_OF: texts, h.XID_OWNER: st.sampled_from([b"o", b"o", b"other", b""]),
        h.DELIVERY_MODE: modes, "a": texts, h.QUEUE: texts, h.UNDECODABLE_CONTENT: texts,
    }  # fmt: skip
    queue = draw(st.sampled_from(NAMES["queue"]))
    names = draw(st.lists(st.sampled_from(sorted(ours)), max_size=3))
    return [("to", queue.encode()), *[(name, draw(ours[name])) for name in names]]


def assert_answered(said: Said) -> None:
    ((reply),) = said.replies
    if not reply["ok"]:
        assert reply["reason"]
        assert reply["text"]
        assert not said.has_changed
        assert said.others == 0


RECORDS = st.lists(st.one_of(commands(), produced(), st.binary(max_size=40)), max_size=25)


@given(RECORDS)
@settings(max_examples=60, deadline=None)
def test_any_records(records: list[Any]) -> None:
    partition = Partition()
    for record in records:
        if isinstance(record, bytes):
            said = partition.control(record)
            assert (len(said.dead), said.has_changed) == (1, False)
        elif isinstance(record, list):
            produce(partition, record)
        else:
            said = partition.say(record)
            if not said.dead:
                assert_answered(said)
            assert not (said.dead and said.has_changed and "unreadable" in said.reasons())


def produce(partition: Partition, headers: list[tuple[str, bytes]]) -> None:
    said = partition.produce(headers)
    events = {line["event"] for line in said.events}
    assert events, "each record has an event"
    if events <= {"refused", "unreadable"}:
        assert said.reasons()
        assert said.others == 0
        # An address keeps for later queues also what each of its queues refuses by itself.
        assert not said.has_changed or headers[0] == ("to", b"prices")


UNMOVED = Partition()


@given(st.recursive(ODD, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
@settings(max_examples=100, deadline=None)
def test_any_json_is_no_command(value: Any) -> None:
    said = UNMOVED.control(json.dumps(value).encode())
    assert not said.has_changed
    assert len(said.dead) == 1
