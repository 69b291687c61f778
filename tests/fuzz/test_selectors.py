"""Hostile selectors: refused with the place and what would be right, wherever they come from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.core.selector import compile_selector
from ringfaust.errors import BadSelector
from tests.fuzz.harness import Partition

HOSTILE: dict[str, tuple[str, str]] = {
    "blank": (" \t\n", "character 1, in"),
    "cut off": ("color =", "character 8"),
    "two equals": ("a == 1", "character 4"),
    "not as in C": ("a != 1", "character 3"),
    "and as in C": ("a && b", "character 3"),
    "no end of text": ("a = 'red", "character 5"),
    "text in double quotes": ('a = "red"', "character 5"),
    "no end of bracket": ("((a = 1)", "character 9"),
    "a bracket too many": ("(a = 1))", "character 8"),
    "a value alone": ("5", "character 1"),
    "text alone": ("'red'", "character 1"),
    "text in order": ("'a' < 'b'", "character 1"),
    "null by equals": ("a = NULL", "character 5"),
    "an empty list": ("a IN ()", "character 7"),
    "numbers in a list": ("a IN (1)", "character 7"),
    "a number as pattern": ("a LIKE 1", "character 8"),
    "two escapes": ("a LIKE 'b' ESCAPE '!!'", "character 19"),
    "an escape of nothing": ("a LIKE 'b!' ESCAPE '!'", "character 8"),
    "a range of one": ("a BETWEEN 1", "character 12"),
    "arithmetic with text": ("a + 'b' = 1", "character 5"),
    "a number too large": ("a = 9223372036854775809", "character 5"),
    "a huge number": ("a = " + "9" * 4_000, "character 5"),
    "an infinite number": ("a = 1E999", "character 5"),
    "an octal of 9": ("a = 09", "character 5"),
    "NUL": ("a = 1\0", "character 6"),
    "a control character": ("a \x1b= 1", "character 3"),
    "a comment": ("a = 1 /* b */", "character 8"),
    "another statement": ("a = 1; DROP TABLE q", "character 6"),
    "a word that is taken": ("between = 1", "character 1"),
    "no letter": ("a = 1 AND \N{SNOWMAN} = 2", "character 11"),
    "too long": ("a = 1 OR " * 500 + "a = 1", "character 4097"),
    "too deep": ("(" * 150 + "a = 1" + ")" * 150, "at most 100 levels"),
    "negated too often": ("NOT (" * 120 + "a = 1" + ")" * 120, "at most 100 levels"),
    "a call": ("upper(a) = 'B'", "character 6"),
}


@pytest.fixture(scope="module")
def partition() -> Partition:
    """One for all: none of the selectors may leave a trace for the next."""
    return Partition()


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_with_its_place(partition: Partition, name: str) -> None:
    selector, place = HOSTILE[name]
    joins = {"consumer": "me", "credit": 1, "reply": "r", "selector": selector}
    for fields in (
        {"type": "attach", "queue": "orders"},
        {"type": "subscribe", "address": "prices"},
    ):
        said = partition.say({**fields, **joins})
        ((reply),) = said.replies
        assert (reply["ok"], reply["reason"]) == (False, "bad_selector")
        assert place in reply["text"]
        assert len(reply["text"]) < 400
        assert not said.has_changed


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_no_setting_either(partition: Partition, name: str) -> None:
    settings = {"ring_size": 1, "selector": HOSTILE[name][0]}
    for fields in (
        {"type": "configure", "queue": "orders"}, {"type": "create_queue", "queue": "prices::new"},
    ):  # fmt: skip
        said = partition.say({**fields, "settings": settings, "reply": "r"})
        ((reply),) = said.replies
        assert (reply["ok"], reply["reason"]) == (False, "bad_command")
        assert reply["text"].startswith("selector = ")
        assert not said.has_changed


@pytest.mark.parametrize(
    "selector",
    [
        "a LIKE '" + "%a" * 1_000 + "'",
        "a LIKE '" + "_%" * 1_000 + "b'",
        " AND ".join(["a = a"] * 400),
        "a IN (" + ", ".join(["'b'"] * 600) + ")",
        "- - - - - - - 1 = a",
        "1 / (a - a) = a",
        "a * 9223372036854775807 * 9223372036854775807 > 0",
        "a = '" + "'" * 2_000 + "'",
    ],
)
@pytest.mark.parametrize("value", ["a" * 30_000, "1" * 30_000, "9" * 64, "", "true", "7E9999"])
def test_what_is_odd_and_right_is_judged_at_once(selector: str, value: str) -> None:
    partition = Partition()
    attach: dict[str, Any] = {"type": "attach", "queue": "orders", "consumer": "me", "credit": 9}
    assert partition.say({**attach, "selector": selector, "reply": "r"}).replies[0]["ok"]
    said = partition.produce([("to", b"orders"), ("a", value.encode())])
    assert [line["event"] for line in said.events][0] == "added"


WORDS = [
    "a", "JMSPriority", "1", "-1", "1.5", "'x'", "'", "(", ")", "=", "<>", "<", ">=", "+", "-", "*",
    "/", ",", "AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE",
    "0x", "1e", "\0", "\N{SNOWMAN}", "\ud800", "9" * 30, "%", "_",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_selector_or_is_refused(text: str) -> None:
    try:
        selector = compile_selector(text)
    except BadSelector as error:
        assert (error.text, 1 <= error.position <= len(text) + 1) == (text, True)
        assert error.advice
    else:
        assert selector.text == text
