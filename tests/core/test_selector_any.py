"""Selectors of any text on any values, and SQLite as a second opinion on the logic (R15)."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.core.selector import Untyped, compile_selector
from ringfaust.errors import BadSelector
from tests.core.selecting import PLAIN, result_of

WORDS = [
    "a", "s", "JMSPriority", "1", "0", "2.5", "9223372036854775808", "'x'", "'%_'", "''", "TRUE",
    "NULL", "NOT", "AND", "OR", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "(", ")", ",", "+", "-",
    "*", "/", "=", "<>", "<", ">=", "!", "'",
]  # fmt: skip
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63), 10**400]),
    st.floats(),
    st.text(),
    st.text("0123456789.eE+-tru").map(Untyped),
    st.sampled_from(["1e400", "nan", "TRUE", "-0"]).map(Untyped),
)


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=15).map(" ".join)), VALUES)
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_selector_or_a_bad_one(text: str, value: Any) -> None:
    try:
        selector = compile_selector(text)
    except BadSelector as error:
        assert 1 <= error.position <= len(text) + 1
    else:
        assert selector.evaluate(PLAIN, {"a": value, "s": value}) in (True, False, None)


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(" ".join)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def words(*choices: str) -> st.SearchStrategy[str]:
    return st.sampled_from(choices)


SHORT = st.text("ab%_'\n", max_size=4)
NUMBERS = st.recursive(
    words("a", "b", "c", "0", "1", "2", "-3", "1.5", "+2"),
    lambda inner: st.one_of(
        joined(inner, words("+", "-", "*"), inner),
        joined(words("( 1.0 * ("), inner, words(") / ("), inner, words(") )")),
        joined(words("(", "- (", "+ ("), inner, words(")")),
    ),
    max_leaves=5,
)
ESCAPED = st.lists(words("a", "b", "%", "_", "!%", "!_", "!!"), max_size=4).map("".join)
SIMPLE = st.one_of(
    joined(NUMBERS, words("=", "<>", "<", "<=", ">", ">="), NUMBERS),
    joined(NUMBERS, words("BETWEEN", "NOT BETWEEN"), NUMBERS, words("AND"), NUMBERS),
    joined(words("s", "t"), words("=", "<>"), SHORT.map(quoted)),
    joined(words("s = t", "t <> s", "f", "f = TRUE", "g <> FALSE", "g = f", "TRUE")),
    joined(words("s", "t"), words("IN (", "NOT IN ("), SHORT.map(quoted), words(", 'a' )", ")")),
    joined(words("s", "t"), words("LIKE", "NOT LIKE"), SHORT.map(quoted)),
    joined(words("s", "t"), words("LIKE", "NOT LIKE"), ESCAPED.map(quoted), words("ESCAPE '!'")),
    joined(words("a", "s", "g"), words("IS NULL", "IS NOT NULL")),
)
CONDITIONS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        joined(inner, words("AND", "OR"), inner),
        joined(words("(", "NOT ("), inner, words(")")),
        joined(words("NOT"), inner),
    ),
    max_leaves=6,
)
SMALL = st.one_of(st.none(), st.integers(-3, 3))
PROPERTIES = st.fixed_dictionaries(
    {"a": SMALL, "b": SMALL, "c": SMALL}
    | dict.fromkeys("st", st.one_of(st.none(), SHORT))
    | dict.fromkeys("fg", st.one_of(st.none(), st.booleans()))
)
DATABASE = sqlite3.connect(":memory:")
DATABASE.execute("PRAGMA case_sensitive_like = ON")


@given(CONDITIONS, PROPERTIES)
@settings(max_examples=600, deadline=None)
def test_sqlite_says_the_same(text: str, properties: dict[str, Any]) -> None:
    columns = ", ".join(f"? AS {name}" for name in properties)
    query = f"SELECT ({text}) FROM (SELECT {columns})"
    ((answer,),) = DATABASE.execute(query, tuple(properties.values()))
    assert result_of(text, **properties) is (None if answer is None else bool(answer))


@given(CONDITIONS, st.fixed_dictionaries(dict.fromkeys("abcstfg", VALUES)))
@settings(max_examples=500, deadline=None)
def test_values_of_any_kind_are_result_of(text: str, properties: dict[str, Any]) -> None:
    assert result_of(text, **properties) in (True, False, None)
    opposite = result_of(f"NOT ({text})", **properties)
    result = result_of(text, **properties)
    assert opposite is (None if result is None else not result)


FIELDS = words("JMSPriority", "JMSXDeliveryCount", "JMSTimestamp", "JMSExpiration")
OF_FIELDS = st.one_of(
    joined(FIELDS, words("=", "<>", "<", "<=", ">", ">="), NUMBERS),
    joined(FIELDS, words("+", "*", "/", "-"), FIELDS, words("=", "<", ">"), NUMBERS),
    joined(FIELDS, words("BETWEEN", "NOT BETWEEN"), NUMBERS, words("AND"), NUMBERS),
    joined(words("JMSDeliveryMode", "JMSXGroupID"), words("=", "<>"), words("'PERSISTENT'", "''")),
    joined(words("JMSDeliveryMode", "JMSPriority"), words("IS NULL", "IN ('x')", "LIKE '%S%'")),
    joined(
        words("JMSRedelivered", "FALSE", "JMSPriority = TRUE", "1 = 2", "'a' < b", "JMSPriority")
    ),
)


@given(
    st.one_of(CONDITIONS, OF_FIELDS, joined(OF_FIELDS, words("AND", "OR"), CONDITIONS)),
    st.booleans(),
    st.fixed_dictionaries(dict.fromkeys("abcstfg", VALUES)),
    st.integers(0, 9), st.integers(0, 3),
)  # fmt: skip
@settings(max_examples=800, deadline=None)
def test_a_fault_is_found_only_where_nothing_is_true(
    text: str, is_negated: bool, properties: dict[str, Any], priority: int, attempts: int
) -> None:
    """The whole is never true, unless it is a part of OR that is not."""
    text = f"NOT ({text})" if is_negated else text
    try:
        selector = compile_selector(text)
    except BadSelector:
        return
    message = PLAIN._replace(priority=priority, attempts=attempts, handovers=attempts)
    if selector.fault is not None and " OR " not in text:
        assert selector.evaluate(message, properties) is not True
