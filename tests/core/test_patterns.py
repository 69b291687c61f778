"""Patterns of names (R72), compared with a naive matcher."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringfaust.core.patterns import Pattern, is_pattern

WORDS = st.lists(st.sampled_from(["a", "b", ""]), max_size=6)
PATTERN = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), min_size=1, max_size=6)


def naive(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Try every number of words for each `#`."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(naive(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


@given(PATTERN, WORDS)
@example(["#", "a", "#"], ["b", "a"])
@example(["a", "#", "b", "*"], ["a", "b", "b", "b"])
def test_it_matches_what_a_naive_matcher_does(pattern: list[str], words: list[str]) -> None:
    assert Pattern(".".join(pattern)).matches(words) is naive(pattern, words)


@given(PATTERN, WORDS, st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=3))
def test_it_may_go_on_if_some_longer_name_matches(
    pattern: list[str], words: list[str], more: list[str]
) -> None:
    if naive(pattern, words + more):
        assert Pattern(".".join(pattern)).may_go_on(words)


@pytest.mark.parametrize(
    ("pattern", "words", "expected"),
    [
        ("a.b", ["a"], True),
        ("a.b", ["a", "b"], False),
        ("a.#", ["a", "b"], True),
        ("a.*", ["b"], False),
        ("#.x", ["a"], True),
        ("*", [], True),
    ],
)
def test_it_may_not_go_on_without_a_longer_name(
    pattern: str, words: list[str], expected: bool
) -> None:
    assert Pattern(pattern).may_go_on(words) is expected


@pytest.mark.parametrize("wildcards", ["#", "#.a", "#.*"])
def test_each_word_is_looked_at_once_however_many_wildcards_there_are(wildcards: str) -> None:
    pattern = Pattern(".".join([wildcards] * 100 + ["b"]))
    assert not pattern.matches(iter(["a"] * 300))
    assert pattern.matches(iter([*["a"] * 300, "b"]))


def test_a_pattern_has_a_word_that_is_a_wildcard() -> None:
    assert is_pattern("a.*")
    assert is_pattern("#")
    assert not is_pattern("a*.b#")
