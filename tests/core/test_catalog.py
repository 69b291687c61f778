"""Settings by pattern (R72)."""

from __future__ import annotations

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.errors import BadSetting

MOST_SPECIFIC_FIRST = [
    "ring.a.b",
    "ring.a.*",
    "ring.a",
    "ring.a.#",
    "ring.*.b",
    "ring.#",
    "*.a.b",
    "#",
]


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#", "anything.at.all", True),
        ("#.c", "a.b.c", True),
        ("#.c", "c", True),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("a.#.c", "a.b", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a*", "ab", False),
    ],
)
def test_patterns_match_word_by_word(pattern: str, name: str, matches: bool) -> None:
    assert Catalog({pattern: {}}, {}).declares(name) is matches


@pytest.mark.parametrize("given_first", [1, -1], ids=["as listed", "reversed"])
def test_the_most_specific_pattern_wins_in_any_order(given_first: int) -> None:
    """Each pattern has a rank; of those that match, the first of the list must win."""
    rank = {pattern: i + 1 for i, pattern in enumerate(MOST_SPECIFIC_FIRST)}
    patterns = MOST_SPECIFIC_FIRST[::given_first]
    catalog = Catalog({}, {pattern: {"ring_size": rank[pattern]} for pattern in patterns})
    winners = {
        "ring.a.b": "ring.a.b",
        "ring.a.c": "ring.a.*",
        "ring.a": "ring.a",
        "ring.a.c.d": "ring.a.#",
        "ring.c.b": "ring.*.b",
        "ring.c": "ring.#",
        "ring": "ring.#",
        "other.a.b": "*.a.b",
        "other": "#",
    }
    assert {name: catalog.spec(name, {}).ring_size for name in winners} == {
        name: rank[pattern] for name, pattern in winners.items()
    }


def test_fields_are_decided_one_by_one() -> None:
    catalog = Catalog(
        {"ring.a": {"batch": 7}},
        {"#": {"ring_size": 1, "evict": "head", "batch": 2}, "ring.*": {"ring_size": 5}},
    )
    spec = catalog.spec("ring.a", {})
    assert (spec.ring_size, spec.evict, spec.batch) == (5, "head", 7)


def test_a_queues_own_fields_win_over_all_patterns() -> None:
    catalog = Catalog({"a": {"ring_size": 3}}, {"a": {"ring_size": 4}})
    assert catalog.spec("a", {}).ring_size == 3
    assert catalog.spec("a", {"ring_size": 9}).ring_size == 9


def test_fields_that_are_not_set_have_their_defaults() -> None:
    assert Catalog({"a": {}}, {}).spec("a", {}).ring_size == -1


@pytest.mark.parametrize(
    "fields",
    [{"ring_size": 0}, {"ring_size": True}, {"rung_size": 1}, {"consumer_timeout": 1 << 60}],
)
def test_invalid_fields_are_refused_wherever_they_are(fields: dict[str, object]) -> None:
    for queues, patterns in (({"a": fields}, {}), ({}, {"a": fields})):
        with pytest.raises(BadSetting) as caught:
            Catalog(queues, patterns)
        assert caught.value.field in fields
    with pytest.raises(BadSetting):
        Catalog({"a": {}}, {}).spec("a", fields)


def test_a_pattern_of_addresses_does_not_match_their_queues() -> None:
    catalog = Catalog({}, {}, {"prices.#": {"subscriptions": {"ann": {"ring_size": 2}}}})
    assert catalog.address("prices.eur", {}) is not None
    assert catalog.address("prices.eur::ann", {}) is None
    assert catalog.declares("prices.eur::ann")
    assert catalog.spec("prices.eur::ann", {}).ring_size == 2
