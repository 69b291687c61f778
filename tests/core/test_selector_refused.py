"""Selectors that are refused, and how; and the longest and deepest that are not (R15, R103)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from lark import Lark

from ringfaust.core import limits
from ringfaust.core.selector import check_selector, compile_selector
from ringfaust.core.selector.grammar import GRAMMAR
from ringfaust.errors import BadSelector, RingfaustError
from tests.core.selecting import result_of


@pytest.mark.parametrize(
    ("text", "position", "advice"),
    [
        ("", 1, "blank"),
        (" \n", 1, "blank"),
        ("a =", 4, "ends too early"),
        ("a = 1 AND", 10, "ends too early"),
        ("(a = 1", 7, "ends too early; expected: )"),
        ("a = 1)", 6, ") is not allowed here"),
        ("a != 1", 3, "<>"),
        ("a == 1", 4, "= is not allowed here"),
        ("a = 1 AMD b = 2", 7, "AMD is not allowed here; expected: * or /, + or -, AND, OR"),
        ("a = b = c", 7, "= is not allowed here"),
        ("=a", 1, "= is not allowed here"),
        ("a b", 3, "b is not allowed here"),
        ("AND = 1", 1, "AND is not allowed here"),
        ("a.b = 1", 2, "only within quotes"),
        ("a-b = 'x' c", 11, "c is not allowed here"),
        ("\n\na # 1", 5, "only within quotes"),
        ("1a = 1", 2, "a is not allowed here"),
        ("a\u00a0= 1", 1, "identifier consists of letters"),
        ('a = "x"', 5, "single quotes, and the name x needs none"),
        ('a = "x', 5, "no closing quote"),
        ('"" = 1', 1, "or is empty"),
        ("a = 'x", 5, "no closing quote"),
        ("a % 2 = 0", 3, "+ - * /"),
        ("a = NULL", 5, "IS NULL"),
        ("a IS TRUE", 6, "expected: NOT, NULL"),
        ("a IN ()", 7, ") is not allowed here; expected: text"),
        ("a IN (1)", 7, "1 is not allowed here"),
        ("'a' IN ('a')", 1, "identifier before it"),
        ("a + 1 LIKE 'x'", 1, "identifier before it"),
        ("a LIKE b", 8, "b is not allowed here"),
        ("1 IS NULL", 1, "identifier before it"),
        ("a LIKE 'x' ESCAPE 'xy'", 19, "exactly one"),
        ("a LIKE 'x' ESCAPE ''", 19, "exactly one"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "ends with its escape character !"),
        ("a BETWEEN 1 OR 2", 13, "OR is not allowed here; expected: AND"),
        ("a BETWEEN 'x' AND 'y'", 11, "needs numbers, but this is text"),
        ("a < 'x'", 5, "< needs numbers, but this is text"),
        ("TRUE >= a", 1, ">= needs numbers, but this is a condition"),
        ("a + 'x' = 1", 5, "+ needs numbers"),
        ("'x' * 2 = a", 1, "* needs numbers"),
        ("-TRUE = a", 2, "- needs numbers"),
        ("3 + 5", 1, "is not a condition"),
        ("'x'", 1, "is not a condition"),
        ("a AND 3 + 5", 7, "is not a condition"),
        ("NOT 5", 5, "is not a condition"),
        ("a OR (b + 1)", 7, "is not a condition"),
        ("a = 08", 5, "octal"),
        ("a = 9223372036854775809", 5, "at most 9223372036854775807"),
        ("a = 1E309", 5, "1.7E308"),
        ("a = 0x", 6, "x is not allowed here"),
    ],
)
def test_errors_say_where_and_what(text: str, position: int, advice: str) -> None:
    with pytest.raises(BadSelector) as caught:
        compile_selector(text)
    error = caught.value
    assert isinstance(error, RingfaustError)
    assert error.text == text
    assert error.position == position
    assert advice in error.advice
    assert f"character {position}" in str(error)
    assert error.advice in str(error)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("content-type = 'json'", 1), ("a = 1 OR 'x' <> b + 1", 10), ("NOT (a * 2 = 'x')", 6),
        ("(a = 1) = 'x'", 2), ("1 = TRUE", 1), ("a = 1 AND (b OR (c - d = 'e'))", 18),
    ],
)  # fmt: skip
def test_what_is_never_true_is_refused_unless_it_is_stored(text: str, position: int) -> None:
    """A3. An earlier version has accepted it, and its rows stay readable."""
    with pytest.raises(BadSelector, match="never true") as caught:
        check_selector(text)
    assert caught.value.position == position
    assert compile_selector(text).fault is not None


@pytest.mark.parametrize(
    ("text", "position", "advice"),
    [
        ("1 = 2", 1, "= is never true of 1 and 2"), ("FALSE", 1, "this is never true"),
        ("'x' = 'y'", 1, "= is never true of 'x' and 'y'"),
        ("'it''s' <> 'it''s'", 1, "<> is never true of 'it''s' and 'it''s'"),
        ("JMSPriority > 9", 1, "> is never true of a number from 0 to 9 and 9"),
        ("a = 1 AND JMSPriority < 0", 11, "< is never true of a number from 0 to 9 and 0"),
        ("a = 1 OR 9 < JMSPriority", 10, "< is never true of 9 and a number from 0 to 9"),
        ("JMSPriority + 1 > 5 * 2", 1, "> is never true of a number from 1 to 10 and 10"),
        ("NOT JMSPriority <= 9", 1, "this is never true"), ("NOT TRUE", 1, "this is never true"),
        ("NOT (NOT (1 > 2))", 1, "this is never true"), ("a = 1 AND FALSE", 1, "this is never"),
        ("a BETWEEN 9 AND 1", 1, "BETWEEN 9 AND 1 is never true of a number; the lower bound"),
        ("JMSPriority BETWEEN 10 AND 12", 1, "BETWEEN 10 AND 12 is never true of a number from 0"),
        ("JMSPriority NOT BETWEEN 0 AND 9", 1, "NOT BETWEEN 0 AND 9 is never true of a number"),
        ("JMSDeliveryMode = 'DURABLE'", 1, "of 'NON_PERSISTENT' or 'PERSISTENT' and 'DURABLE'"),
        ("JMSDeliveryMode IN ('a', 'b')", 1, "IN is never true of 'NON_PERSISTENT' or"),
        ("JMSDeliveryMode NOT LIKE '%PER%'", 1, "NOT LIKE is never true"),
        ("JMSPriority = 'high'", 1, "= is never true of a number from 0 to 9 and 'high'"),
        ("JMSPriority IS NULL", 1, "IS NULL is never true of a number from 0 to 9"),
        ("JMSRedelivered = 1", 1, "= is never true of a condition and 1"),
        ("JMSXDeliveryCount < 1", 1, "< is never true of a number from 1 and 1"),
        ("1 / 0 = a", 1, "is never true"), ("TRUE = FALSE", 1, "= is never true of TRUE and FALSE"),
        ("JMSPriority", 1, "this is never true"), ("JMSMessageID > 5", 1, "of text and 5"),
    ],
)  # fmt: skip
def test_a_condition_that_can_never_be_true_is_refused(
    text: str, position: int, advice: str
) -> None:
    """Issue 38. An earlier version has accepted it, and its rows stay readable."""
    with pytest.raises(BadSelector, match="never") as caught:
        check_selector(text)
    assert (caught.value.position, advice in caught.value.advice) == (position, True), caught.value
    assert compile_selector(text).fault is not None


@pytest.mark.parametrize("text", [
    "a = 'x'", "(a = 1) = (b = 2)", "a = b", "a - b = 2", "1 = 1", "TRUE", "NOT FALSE",
    "NOT (1 = 2)", "a = 1 OR FALSE", "JMSPriority <= 9", "JMSPriority >= 9", "a BETWEEN 1 AND 1",
    "a NOT BETWEEN 9 AND 1", "JMSExpiration = 0", "JMSXGroupID IS NULL", "a = FALSE",
    "JMSRedelivered = FALSE", "JMSRedelivered", "NOT JMSRedelivered", "1 / a = 0",
    "JMSPriority * -1 = -9", "JMSPriority / 2 = 4.5", "JMSPriority - a > 100", "a IS NULL",
    "9223372036854775807 + JMSPriority = 9223372036854775807", "1.5 > 1", "JMSMessageID = ''",
])  # fmt: skip
def test_what_may_be_true_is_not_refused(text: str) -> None:
    assert check_selector(text) is compile_selector(text)


HOSTILE = {
    "10,000 parentheses": "(" * 10_000 + "a" + ")" * 10_000,
    "2,000 parentheses": "(" * 2_000 + "a" + ")" * 2_000,
    "open parentheses": "(" * 4_000,
    "closed parentheses": ")" * 4_000,
    "NOT": "NOT " * 1_000 + "a",
    "minus": "-" * 4_000 + "1 = a",
    "nested AND": "(a AND " * 500 + "a" + ")" * 500,
    "nested sums": "(1 + " * 600 + "1" + ")" * 600 + " = a",
    "one over the depth": "NOT " * limits.SELECTOR_DEPTH + "a",
    "long": "a = '" + "x" * limits.SELECTOR_CHARS + "'",
    "megabytes": "a" * 10_000_000,
    "quotes without end": "'" * 4_095,
    "digits": "a = " + "9" * 4_000,
    "hex digits": "a = 0x" + "F" * 4_000,
    "exponent": "a = 1E" + "9" * 4_000,
    "null characters": "\x00" * 100,
    "lone surrogate": "a = 1 \ud800",
    "comment": "a = 1 /* x */",
    "statement": "a = 1; DROP TABLE messages",
    "long word": "a " + "b" * 4_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(BadSelector) as caught:
        compile_selector(text)
    assert len(str(caught.value)) < 500
    assert 1 <= caught.value.position <= len(text) + 1


def test_the_longest_and_the_deepest_are_taken() -> None:
    assert result_of("NOT " * (limits.SELECTOR_DEPTH - 1) + "a", a=True) is False
    deep = limits.SELECTOR_DEPTH - 1
    assert result_of("(" * deep + "a" + ")" * deep, a=True) is True
    longest = "1" + "+1" * 2_000 + " = x"
    assert result_of(longest.ljust(limits.SELECTOR_CHARS), x=2_001) is True
    assert result_of("a AND " * 600 + "a", a=True) is True
    assert result_of("a OR " * 600 + "b", a=False) is None


def test_the_grammar_is_read_in_one_way_only() -> None:
    """In strict mode lark refuses a conflict, and terminals that overlap without priority."""
    assert Lark(GRAMMAR, parser="lalr", lexer="basic", strict=True).rules


def test_the_same_on_every_host() -> None:
    """Neither the order of hashes nor the locale shows (R102)."""
    code = (
        "from ringfaust.core.selector import *\n"
        "for text in ('a', 'a =', 'a IN (', '1 1', 'a LIKE 1', 'a = 08', 'ä = 1 ('):\n"
        "    try: print(compile_selector(text).text)\n"
        "    except ValueError as error: print(ascii(str(error)))\n"
    )
    result = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": locale},
        ).stdout
        for seed, locale in (("1", "C"), ("2", "C.UTF-8"), ("3", "tr_TR.UTF-8"))
    }  # fmt: skip
    assert len(result) == 1
    assert "".join(result).count("selector, character") == 6
