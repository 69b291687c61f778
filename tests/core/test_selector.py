"""Message selectors (R15): the tables and examples of JMS 2.0, chapter 3.8."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core.selector import Untyped, compile_selector
from tests.core.selecting import PLAIN, Payload, result_of

T, F, U = True, False, None


# --- three-valued logic ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (T, T, T, T), (T, F, F, T), (T, U, U, T),
        (F, T, F, T), (F, F, F, F), (F, U, F, U),
        (U, T, U, T), (U, F, F, U), (U, U, U, U),
    ],
)  # fmt: skip
def test_and_or(left: bool | None, right: bool | None, both: bool | None, either: bool) -> None:
    assert result_of("p AND q", p=left, q=right) is both
    assert result_of("p OR q", p=left, q=right) is either


@pytest.mark.parametrize(("value", "result"), [(T, F), (F, T), (U, U)])
def test_not(value: bool | None, result: bool | None) -> None:
    assert result_of("NOT p", p=value) is result
    assert result_of("NOT (p)", p=value) is result


@pytest.mark.parametrize(
    "text",
    [
        "n = 1", "n <> 1", "n < 1", "n <= 1", "n > 1", "n >= 1", "n = 'x'", "n = TRUE", "n = n",
        "n <> n", "n LIKE '%'", "n NOT LIKE '%'", "n IN ('a')", "n NOT IN ('a')",
        "n BETWEEN 1 AND 2", "n NOT BETWEEN 1 AND 2", "1 BETWEEN n AND 2", "1 BETWEEN 0 AND n",
        "-n = 0", "+n = 0", "n + 1 = 1", "1 - n = 1", "n * 0 = 0", "n / 1 = 0", "n", "NOT n",
        "n AND TRUE", "n OR FALSE",
    ],
)  # fmt: skip
def test_null_makes_unknown(text: str) -> None:
    assert result_of(text) is U
    assert result_of(text, n=None) is U
    assert result_of(f"NOT ({text})") is U


def test_null_in_between_may_be_decided_all_the_same() -> None:
    assert result_of("5 BETWEEN n AND 4") is F
    assert result_of("5 NOT BETWEEN n AND 4") is T
    assert result_of("5 BETWEEN 6 AND n") is F


def test_is_null() -> None:
    assert result_of("n IS NULL") is T
    assert result_of("n IS NOT NULL") is F
    assert result_of("n IS NULL", n="") is F
    assert result_of("n IS NOT NULL", n=False) is T


# --- the examples of the specification ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "properties", "result"),
    [
        ("type = 'car' AND color = 'blue' AND weight > 2500",
         {"type": "car", "color": "blue", "weight": 3000}, T),
        ("type = 'car' AND color = 'blue' AND weight > 2500",
         {"type": "car", "color": "blue", "weight": 2500}, F),
        ("age BETWEEN 15 AND 19", {"age": 15}, T),
        ("age BETWEEN 15 AND 19", {"age": 19}, T),
        ("age BETWEEN 15 AND 19", {"age": 20}, F),
        ("age >= 15 AND age <= 19", {"age": 17}, T),
        ("age NOT BETWEEN 15 AND 19", {"age": 14}, T),
        ("age < 15 OR age > 19", {"age": 14}, T),
        ("Country IN ('UK', 'US', 'France')", {"Country": "UK"}, T),
        ("Country IN ('UK', 'US', 'France')", {"Country": "Peru"}, F),
        ("Country NOT IN ('UK', 'US', 'France')", {"Country": "UK"}, F),
        ("Country NOT IN ('UK', 'US', 'France')", {"Country": "Peru"}, T),
        ("phone LIKE '12%3'", {"phone": "123"}, T),
        ("phone LIKE '12%3'", {"phone": "12993"}, T),
        ("phone LIKE '12%3'", {"phone": "1234"}, F),
        ("word LIKE 'l_se'", {"word": "lose"}, T),
        ("word LIKE 'l_se'", {"word": "loose"}, F),
        (r"underscored LIKE '\_%' ESCAPE '\'", {"underscored": "_foo"}, T),
        (r"underscored LIKE '\_%' ESCAPE '\'", {"underscored": "bar"}, F),
        ("phone NOT LIKE '12%3'", {"phone": "123"}, F),
        ("phone NOT LIKE '12%3'", {"phone": "1234"}, T),
        ("prop_name IS NULL", {}, T),
        ("prop_name IS NOT NULL", {"prop_name": 1}, T),
        ("name = 'literal''s'", {"name": "literal's"}, T),
    ],
)  # fmt: skip
def test_examples_of_jms(text: str, properties: dict[str, Any], result: bool) -> None:
    assert result_of(text, **properties) is result


# --- what binds how -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a OR b AND c", "a OR (b AND c)"),
        ("NOT a AND b", "(NOT a) AND b"),
        ("NOT a OR b", "(NOT a) OR b"),
        ("NOT x = 1", "NOT (x = 1)"),
        ("NOT x BETWEEN 1 AND 2 AND a", "(NOT (x BETWEEN 1 AND 2)) AND a"),
        ("NOT NOT a", "a"),
        ("x + 2 * 3 = 7", "x + (2 * 3) = 7"),
        ("x - 2 - 3 = -4", "(x - 2) - 3 = -4"),
        ("x * 8 / 4 / 2 = 1", "((x * 8) / 4) / 2 = 1"),
        ("-x * 2 = -2", "(-x) * 2 = -2"),
        ("x - -x = 2", "x - (-x) = 2"),
        ("x BETWEEN 0 + 1 AND 1 * 2", "x BETWEEN (0 + 1) AND (1 * 2)"),
        ("a and not b or c", "(a AND (NOT b)) OR c"),
        ("x=1AND a", "(x = 1) AND a"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    seen = set()
    for mask in range(16):
        flags = {name: bool(mask >> bit & 1) for bit, name in enumerate("abc")}
        result = result_of(text, x=mask >> 3, **flags)
        assert result is result_of(same, x=mask >> 3, **flags)
        seen.add(result)
    assert seen == {T, F}


# --- literals and identifiers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("57", 57), ("-957", -957), ("+62", 62), ("57L", 57), ("0", 0), ("0x1F", 31),
        ("0XffL", 255), ("017", 15), ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)), ("7E3", 7000.0), ("-57.9E2", -5790.0), ("7.", 7.0),
        ("-95.7", -95.7), ("+6.2", 6.2), (".5", 0.5), ("1.e1", 10.0), ("5e-1", 0.5), ("2d", 2.0),
        ("1.5F", 1.5), ("'it''s'", "it's"), ("''", ""), ("'ä\n'", "ä\n"), ("'-- /*'", "-- /*"),
        ("TRUE", True), ("false", False), ("True", True),
    ],
)  # fmt: skip
def test_literals(literal: str, value: object) -> None:
    assert result_of(f"x = {literal}", x=value) is T
    assert result_of(f"{literal} <> x", x=value) is F


@pytest.mark.parametrize("name", ["$", "_", "a$b_1", "größe", "名前", "NOTHING", "in_", "nullable"])
def test_identifiers(name: str) -> None:
    assert result_of(f"{name} = 1", **{name: 1}) is T


def test_names_differ_by_case_and_keywords_do_not() -> None:
    assert result_of("Color = 1", color=1) is U
    assert result_of("a = 1 aNd b bEtWeEn 1 AnD 2 oR c iS nUlL", a=1, b=2) is T
    assert result_of("\n a\t=\r\n1\f", a=1) is T


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "x", "result"),
    [
        ("x = 1", 1.0, T), ("x = 1.0", 1, T), ("x < 1.5", 1, T), ("x >= 2", 2.5, T),
        ("x = '1'", 1, F), ("x <> '1'", 1, F), ("x = 1", "1", F), ("x <> 1", "1", F),
        ("x > 0", "1", F), ("x = TRUE", 1, F), ("x = 1", True, F), ("x = TRUE", "true", F),
        ("x > 0", True, F), ("x < x", "a", F), ("x BETWEEN 1 AND 2", "1", F),
        ("x = x", "a", T), ("x = x", True, T), ("x <> x", 1.5, F), ("x", 1, U), ("x", "true", U),
        ("x LIKE '1'", 1, F), ("x NOT LIKE '1'", 1, T), ("x IN ('1')", 1, F),
        ("x NOT IN ('1')", True, T), ("x + 1 = 2", "1", U), ("x + 1 = 2", True, U),
        ("-x = 1", "1", U), ("x = x", [1], F), ("x IS NULL", [1], F), ("x = 1", [1], F),
        ("(x = 1) = TRUE", 1, T), ("(x = 1) <> (x = 2)", 1, T),
    ],
)  # fmt: skip
def test_only_like_types_compare(text: str, x: object, result: bool | None) -> None:
    assert result_of(text, x=x) is result


@pytest.mark.parametrize(
    ("text", "x", "result"),
    [
        ("x = '7'", "7", T), ("x = '7'", "7.0", F), ("x = 7", "7.0", T), ("x <> 7", "8", T),
        ("x > 6.5", "7", T), ("7 >= x", "-.5e1", T), ("x = 7E3", "7000", T), ("x = 7", "+7", T),
        ("x = 7", "007", T), ("x = 7", "seven", F), ("x <> 7", "", F), ("x = 7", " 7", F),
        ("x = 7", "7\n", F), ("x = 7", "7e", F), ("x = 7", "٧", F), ("x = 7", "1_0", F),
        ("x > 0", "1e999", F), ("x > 0", "inf", F), ("x = x", "nan", T), ("x > 0", "9" * 64, T),
        ("x > 0", "9" * 65, F), ("x + 1 = 8", "7", T), ("-x = -7", "7", T),
        ("x BETWEEN 1 AND 9", "7", T), ("x = TRUE", "TRUE", T), ("x = FALSE", "true", F),
        ("x <> TRUE", "no", F), ("x", "True", T), ("NOT x", "false", T), ("x AND TRUE", "1", U),
        ("x LIKE '7_'", "70", T), ("x IN ('70')", "70", T), ("x NOT IN ('70')", "70", F),
        ("x = y", "7", T), ("y = x", "7", T), ("x = z", "7", T), ("x < w", "7", T),
        ("x = w", "07.5", F), ("x IS NULL", "", F),
    ],
)  # fmt: skip
def test_text_of_plain_headers(text: str, x: str, result: bool | None) -> None:
    others = {"y": "7", "z": 7, "w": Untyped("7.5")}
    assert result_of(text, x=Untyped(x), **others) is result


# --- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("x / 2 = 3.5", T), ("x / 0 = 1", U), ("x / 0.0 = 1", U), ("NOT x / 0 = 1", U),
        ("1 / 3 * 3 = 1", T), ("big + 1 > 0", U), ("least - 1 < 0", U), ("-least > 0", U),
        ("big * big > 0", U), ("big + 0 = big", T), ("1E308 * 10 > 0", U), ("huge > 0", T),
        ("huge * 2 > 0", U), ("huge * 1.5 > 0", U), ("huge / huge = 1", T), ("inf > 1E308", T),
        ("inf - inf = 0", U), ("nan = nan", F), ("nan <> nan", F), ("nan IS NULL", F),
        ("huge = inf", F), ("huge < inf", T), ("+huge > 0", U), ("-0.0 = 0", T),
    ],
)  # fmt: skip
def test_arithmetic_never_raises(text: str, result: bool | None) -> None:
    odd = {"huge": 10**400, "inf": float("inf"), "nan": float("nan")}
    assert result_of(text, x=7, big=2**63 - 1, least=-(2**63), **odd) is result


# --- LIKE -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "result"),
    [
        ("", "", T), ("", "a", F), ("%", "", T), ("%%", "a", T), ("_", "", F), ("_%_", "a", F),
        ("a%", "ba", F), ("%a", "a\n", F), ("a_c", "a\nc", T), ("%", "a\nb", T), ("A", "a", F),
        ("a.c", "abc", F), ("a.c", "a.c", T), ("[ab]*\\", "[ab]*\\", T), ("%ab%ab", "ab", F),
        ("%ab%ab", "xabab", T), ("a%a", "a", F), ("%a_%c", "aaxbc", T), ("😀_", "😀😀", T),
        ("^a$", "a", F), ("%ana%", "banana", T), ("%ana%ana", "banana", F), ("''", "'", T),
    ],
)  # fmt: skip
def test_like(pattern: str, text: str, result: bool) -> None:
    assert result_of(f"x LIKE '{pattern}'", x=text) is result
    assert result_of(f"x NOT LIKE '{pattern}'", x=text) is not result


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "result"),
    [
        ("!%", "!", "%", T), ("!%", "!", "a", F), ("!!", "!", "!", T), ("!a", "!", "a", T),
        ("%%", "%", "%", T), ("%%", "%", "a", F), ("__", "_", "_", T), ("a''%", "''", "a%", T),
        ("\\_x\\%", "\\", "_x%", T),
    ],
)  # fmt: skip
def test_like_with_escape(pattern: str, escape: str, text: str, result: bool) -> None:
    assert result_of(f"x LIKE '{pattern}' ESCAPE '{escape}'", x=text) is result


def test_like_does_not_try_all_ways() -> None:
    """Each `%` that could be tried anew would multiply the time by the length of the text."""
    assert result_of(f"x LIKE '{'%a' * 500}%b'", x="a" * 10_000) is F
    assert result_of(f"x LIKE '{'%a_' * 500}%b_'", x="ab" * 5_000) is F


# --- fields of the message ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields", "result"),
    [
        ("JMSPriority = 4", {}, T),
        ("JMSPriority > 4", {"priority": 9}, T),
        ("JMSTimestamp BETWEEN 1000 AND 1000", {}, T),
        ("JMSMessageID = 'm-1'", {}, T),
        ("JMSMessageID = 7", {"id": "7"}, F),
        ("JMSXGroupID IS NULL", {}, T),
        ("JMSXGroupID = 'g'", {"group": "g"}, T),
        ("JMSXDeliveryCount = 1", {}, T),
        ("JMSXDeliveryCount = 3", {"attempts": 2}, T),
        ("JMSExpiration = 0", {}, T),
        ("JMSExpiration = 5", {"expires_at_ms": 5}, T),
        ("JMSRedelivered", {}, F),
        ("JMSRedelivered = TRUE", {"handovers": 1}, T),
        ("JMSDeliveryMode = 'PERSISTENT'", {}, T),
        ("JMSDeliveryMode = 'NON_PERSISTENT'", {"persistent": False}, T),
        ("JMSType = 't'", {}, T),
        ("JMSCorrelationID = 'c'", {}, T),
        ("JMS_vendor = 1", {}, T),
        ("JMSXUserID IS NULL", {}, T),
        ("jmsPriority = 4", {}, U),
    ],
)
def test_fields_of_jms(text: str, fields: dict[str, Any], result: bool | None) -> None:
    """Other names are properties, also those that begin with JMS (A2)."""
    properties = {"JMSType": "t", "JMSCorrelationID": "c", "JMS_vendor": 1, "JMSPriority": 0}
    message = PLAIN._replace(payload=Payload(**properties), **fields)
    assert compile_selector(text).evaluate(message, properties) is result
    assert compile_selector(text).matches(message) is (result is True)


@pytest.mark.parametrize(
    ("text", "times"),
    [("a = 1 AND a = 2 OR b + c = a", 1), ("JMSPriority = 4 AND (b IS NULL)", 1), ("a", 1),
     ("JMSPriority = 4 AND JMSRedelivered = FALSE", 0), ("1 = 1", 0)],
)  # fmt: skip
def test_properties_are_asked_for_once_or_not_at_all(text: str, times: int) -> None:
    payload = Payload(a=1)
    compile_selector(text).matches(PLAIN._replace(payload=payload))
    assert payload.asked == times


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("\"content-type\" = 'json'", T), ("\"trace.id\" IN ('t1')", T), ('"and" = 1', T),
        ('"say ""hi""" IS NOT NULL', T), ('"JMSPriority" = 0', T), ('"no-such" IS NULL', T),
        ("JMSPriority = 4 AND \"content-type\" LIKE 'j%'", T),
    ],
)  # fmt: skip
def test_any_property_can_be_named_in_double_quotes(text: str, result: bool | None) -> None:
    """A3. As in SQL-92."""
    properties = {
        "content-type": "json", "trace.id": "t1", "and": 1, 'say "hi"': True, "JMSPriority": 0,
    }  # fmt: skip
    message = PLAIN._replace(payload=Payload(**properties))
    assert compile_selector(text).evaluate(message, properties) is result


def test_equal_by_text() -> None:
    text = "a = 1"
    assert compile_selector(text) is compile_selector("a = " + "1")
    one = compile_selector(text)
    assert one.text == text
    compile_selector.cache_clear()
    assert compile_selector(text) == one
    assert compile_selector("a  = 1") != one


def test_few_compiled_selectors_are_kept() -> None:
    """A long one takes 0.7 MB: with 1,000, the cache kept 0.7 GB for ever."""
    for number in range(150):
        compile_selector(f"kept = {number}")
    assert compile_selector.cache_info().currsize == 100
