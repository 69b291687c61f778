"""The lines that a worker writes are those that `protocol/lifecycle.py` declares."""

from __future__ import annotations

import json
from collections import Counter
from typing import get_args

import pytest

from ringfaust.core import effects as e
from ringfaust.core.model import COUNTS, HELD_STATES, DeadReason, Refusal
from ringfaust.errors import ProtocolError
from ringfaust.protocol.encoder import event_line
from ringfaust.protocol.events import WRITERS, done_line, event_tail
from ringfaust.protocol.gaps import Gap, GapCause, gap_line
from ringfaust.protocol.lifecycle import ENDED, EVENTS, NEW
from ringfaust.protocol.misplaced import Misplaced, misplaced_line
from ringfaust.protocol.outputs import undecodable_line
from ringfaust.protocol.records import FetchedRecord
from tests.docs.test_protocol import DELIVERY, EFFECTS, MESSAGE
from tests.legal_effects import check_fields, values_of

PLAIN = MESSAGE._replace(due_ms=0, expires_at_ms=0, group="")
REFUSED = MESSAGE._replace(sequence=0)
BARE: tuple[e.Effect, ...] = (
    e.Added("q", PLAIN),
    e.Scheduled("q", PLAIN),
    e.Returned("q", DELIVERY, MESSAGE, 0),
    e.Dead("q", REFUSED, DeadReason.LIMIT, "", "text"),
)
"""Effects whose lines lack what is optional, or have it where others do not."""
LINES = [
    *(event_line(effect, 1, 7, "in/0/0") for effect in (*EFFECTS, *BARE)),
    *(WRITERS[type(effect)](effect, 1) + event_tail(7, "tick") for effect in (*EFFECTS, *BARE)),
    done_line(1, "purge", event_tail(7, "control/0/1")),
    gap_line(Gap("in", 0, 3, 5, GapCause.DELETED), 1, 0, 7),
    gap_line(Gap("in", 0, 3, None, GapCause.RECREATED), 1, 0, 7),
    misplaced_line(Misplaced("keyed.k", "in", 2, 0), "in/2/0", 1, 7),
    *(
        undecodable_line(FetchedRecord(topic), "in/0/0", ProtocolError("text"), 1, 7)
        for topic in ("in", "hop")
    ),
]


@pytest.mark.parametrize("text", LINES)
def test_a_line_has_the_declared_fields_in_order(text: str) -> None:
    check_fields(json.loads(text))


def test_a_line_with_another_field_type_or_order_is_noticed() -> None:
    line = json.loads(LINES[0])
    for wrong in (
        {**line, "more": 1},
        {name: line[name] for name in line if name != "priority"},
        {name: line[name] for name in reversed(line)},
        {**line, "sequence": -1},
        {**line, "id": 7},
    ):
        with pytest.raises(AssertionError):
            check_fields(wrong)


def test_every_event_and_every_optional_field_is_written_and_left_out() -> None:
    written, lacking = set(), set()
    for line in map(json.loads, LINES):
        for field in EVENTS[line["event"]].fields:
            (written if field.name in line else lacking).add((line["event"], field.name))
    every = {(name, field.name) for name, event in EVENTS.items() for field in event.fields}
    optional = {
        (name, field.name)
        for name, event in EVENTS.items() for field in event.fields if field.optional
    }  # fmt: skip
    assert (written, lacking) == (every, optional)


def test_every_effect_is_an_event() -> None:
    assert WRITERS.keys() == {type(effect) for effect in EFFECTS} == set(get_args(e.Effect))


def test_a_field_of_a_name_has_one_type_and_one_meaning() -> None:
    fields = {field for event in EVENTS.values() for field in event.fields}
    said = {(field.name, field.kind, field.meaning) for field in fields}
    assert max(Counter(name for name, _, _ in said).values()) == 1


def test_the_last_move_of_an_event_applies_always_and_the_others_do_not() -> None:
    for event in EVENTS.values():
        names = {field.name for field in event.fields}
        assert all(bool(move.unless) != bool(move.reasons) for move in event.moves[:-1])
        assert not any(move.unless or move.reasons for move in event.moves[-1:])
        for move in event.moves:
            assert {*move.before, move.after} <= {NEW, *HELD_STATES, ENDED}
            assert {move.unless} <= {"", *names}
            assert not move.reasons or "reason" in names


def test_the_moves_change_every_count_but_those_of_the_states() -> None:
    counted = {move.counted for event in EVENTS.values() for move in event.moves} - {""}
    assert counted == set(COUNTS) - set(HELD_STATES)
    for event in EVENTS.values():
        for move in event.moves:
            is_crossed = (move.before == (NEW,)) != (move.after == ENDED)
            assert bool(move.counted) == (is_crossed or move.counted == "refused")


def test_every_reason_of_the_engine_is_declared() -> None:
    (reason,) = (field for field in EVENTS["dead"].fields if field.name == "reason")
    assert set(values_of(reason.values)) == {*DeadReason, *Refusal}
