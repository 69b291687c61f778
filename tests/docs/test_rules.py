"""Each rule of the contract has a place in the code and a scenario; docs/rules.md says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from generate.rules_page import beginning, read_rules

RULES = read_rules()
ROOT = Path(__file__).parents[2]

#: Rules about the surroundings of a queue that no scenario file can express, with their tests.
TESTED_ELSEWHERE = {
    "R111": "tests/broker/test_identity.py",
    "R112": "tests/broker/test_gaps.py",
    "R113": "tests/broker/test_route_changes.py",
    "R115": "tests/broker/test_clock.py",
    "R117": "tests/broker/test_late_end.py",
    "R120": "tests/fuzz/test_bytes.py",
    "R121": "tests/fuzz/test_bytes.py",
    "R122": "tests/worker/observe/test_metrics.py",
    "R123": "tests/broker/test_stopped.py",
    "R124": "tests/worker/test_assignment.py",
    "R125": "tests/broker/test_membership.py",
    "R126": "tests/broker/test_membership.py",
    "R127": "tests/broker/test_standby.py",
    "R129": "tests/broker/test_versions.py",
}


def test_the_contract_is_read_whole() -> None:
    assert len(RULES) >= 53
    assert {"R1", "R10", "R61", "R103", "C1", "C11"} <= RULES.keys()
    assert RULES["R1"].section == "2-the-ring"
    assert beginning(RULES["R4"].text) == "A delivering message is never a victim."


@pytest.mark.parametrize("number", RULES)
def test_a_rule_has_its_place_and_its_scenario(number: str) -> None:
    rule = RULES[number]
    assert any(rule.places.values()), "no function's docstring or comment cites it"
    if number in TESTED_ELSEWHERE:
        assert number in (ROOT / TESTED_ELSEWHERE[number]).read_text(), "its test does not cite it"
        return
    assert rule.scenarios, "no file of tests/scenarios has it among its rules"


def test_the_page_on_verification_counts_them() -> None:
    text = (ROOT / "docs/verification.md").read_text()
    assert f"has {len(RULES)} numbered rules, twelve of them" in text
    assert len([number for number in RULES if number.startswith("C")]) == 12


def test_places_are_named() -> None:
    sends = RULES["R2"].places["core/transitions/entering.py"]
    assert "enter" in sends, "a function's docstring"
    assert "QueueSpec.ring_size" in RULES["R1"].places["core/settings.py"], "a field's docstring"
    returns = RULES["R21"].places["core/transitions/returning.py"]
    assert "requeue" in returns, "within a range"
