"""LIKE takes linear time, and means what the naive definition says (R15, R116)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.core import limits
from ringfaust.core.selector.like import like
from ringfaust.core.selector.values import Untyped, truth
from tests.core.selecting import result_of

ANY, SOME = "any", "some"


def tokens_of(pattern: str, escape: str) -> list[str]:
    tokens, chars = [], iter(pattern)
    for char in chars:
        if char == escape:
            tokens.append(next(chars))
        else:
            tokens.append({"_": ANY, "%": SOME}.get(char, char))
    return tokens


def naive(tokens: Sequence[str], text: str) -> bool:
    """One row for each token: which beginnings of the text the tokens so far can match."""
    reached = [True] + [False] * len(text)
    for token in tokens:
        if token == SOME:
            first = reached.index(True) if True in reached else len(reached)
            reached = [i >= first for i in range(len(reached))]
        else:
            reached = [False] + [
                before and token in (ANY, char) for before, char in zip(reached, text, strict=False)
            ]
    return reached[-1]


CHARS = st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!", "😀", "\n"])
LONG = st.lists(st.sampled_from(["a", "a", "b", "_"]), min_size=33, max_size=45).map("".join)
PATTERNS = st.one_of(
    st.lists(CHARS, max_size=8).map("".join),
    st.lists(st.one_of(LONG, st.just("%"), st.just("b")), max_size=6).map("".join),
)
TEXTS = st.one_of(
    st.text("ab%_!😀\n", max_size=10),
    st.lists(st.sampled_from(["a" * 40, "ab" * 20, "b", "a"]), max_size=8).map("".join),
)


@given(PATTERNS, TEXTS)
@settings(max_examples=1_000, deadline=None)
def test_like_means_what_the_naive_definition_says(pattern: str, text: str) -> None:
    assert like(pattern, "!")(text) is naive(tokens_of(pattern, "!"), text)


@given(LONG.filter(lambda piece: "_" in piece), st.text("ab", max_size=30), st.text("ab"))
@settings(max_examples=300, deadline=None)
def test_a_long_piece_with_wildcards_is_found(piece: str, before: str, behind: str) -> None:
    text = before + piece.replace("_", "b") + behind
    assert like(f"%{piece}%")(text)
    assert like(f"%{piece}%")(text[: len(before) + len(piece) - 1]) is naive(
        tokens_of(f"%{piece}%", ""), text[: len(before) + len(piece) - 1]
    )


class CountedText(str):
    """Counts how often one of its characters is looked at."""

    looks = 0

    def __getitem__(self, index: object) -> str:
        self.looks += 1
        return super().__getitem__(index)  # type: ignore[index]


def test_a_long_piece_with_wildcards_looks_at_each_character_once() -> None:
    text = CountedText("a" * 100_000)
    assert not like("%" + "a_" * 2_000 + "b%")(text)
    assert text.looks == len(text)


@pytest.mark.parametrize(
    "pattern",
    ["%" + "a" * 4_000 + "b%", "%" + "a" * 2_000 + "b" + "a" * 2_000 + "%", "%" + "a_" * 15 + "b%"],
)
def test_like_on_a_header_of_850_kb_does_not_stall_the_worker(pattern: str) -> None:
    """Each took up to 7 s when every piece was tried again at each character."""
    assert not like(pattern)("a" * 850_000)


def test_long_text_is_no_truth_value() -> None:
    assert truth(Untyped("TRUE")) is True
    assert truth(Untyped("true" + " " * 10_000)) is None


@pytest.mark.parametrize("text", ["h LIKE '%a%'", "h NOT LIKE 'b%'"])
def test_a_text_that_is_too_long_is_unknown(text: str) -> None:
    """R122: only a header of Kafka can be that long."""
    longest = "a" * limits.LIKE_CHARS
    assert result_of(text, h=longest) is True
    assert result_of(text, h=longest + "a") is None
    assert result_of("h <> 'b'", h=longest + "a") is True
