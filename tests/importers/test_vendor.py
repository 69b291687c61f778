"""A search for a pattern of RabbitMQ's definitions ends, whatever the pattern."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ringfaust.importers.rabbitmq_policies import compiled
from ringfaust.importers.vendor import most_steps
from tests.importers.definitions import imported, policy, queue


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("", 6),
        ("^", 1),
        ("^orders$", 1),
        ("orders", 6),
        ("^a?b", 2),
        ("^(ab|cd|e)f", 3),
        ("^(?!amq\\.|x).", 2),
        ("^(?:a|bc){2}", 4),
        ("^a{3}", 1),
        ("^a{9}", 1),
        ("^a*", 6),
        ("^a+?", 6),
        ("^a{2,}", 6),
        ("a*", 21),
        ("^(a.*)(b.*)", 21),
        ("^(?=.*a).*", 21),
        ("^(?>a*)b*+", 21),
        ("^(a)?(?(1)bc|d*)", 4 * 6),
        ("^(a*)*", float("inf")),
        ("^(a|bc)+$", float("inf")),
        ("^(?:a*b){20}", float("inf")),
    ],
)
def test_what_a_search_may_try_in_five_bytes(pattern: str, steps: float) -> None:
    assert most_steps(re.compile(pattern.encode()), 5) == steps


@pytest.mark.parametrize(
    "pattern",
    [
        ".*", "^(?!amq\\.).*", "^ha\\.", "^(amq\\.gen.*|amq\\.default|app)$", ".*-dlq-.*-x.*",
        "^[a-z]+\\.(eu|us)\\.[0-9]{1,3}\\..*$", "(?i)^orders.(new|old)?$", "^" + "x|" * 100,
    ],
)  # fmt: skip
def test_patterns_of_real_policies_are_read(pattern: str) -> None:
    assert compiled(pattern) is not None


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*$", "(a?){200}b", "^(.*a){20}$", ".*" * 6 + "b"]
)
def test_a_policy_whose_search_might_not_end_is_left_out(pattern: str, tmp_path: Path) -> None:
    found = imported(
        tmp_path, queues=[queue("a" * 60 + "!")], policies=[policy("p", pattern, max_length=3)]
    )
    (line,) = [each for each in found.findings if "policy p" in each.setting]
    assert "its pattern is not read here" in line.text
