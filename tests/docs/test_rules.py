"""Every rule of the contract is cited in code and in a scenario; docs/rules.md lists both."""

from __future__ import annotations

import pytest

from tests.docs.rules import PAGE, beginning, page, read_rules

RULES = read_rules()


def test_every_rule_of_the_contract_is_read() -> None:
    assert len(RULES) >= 53
    assert {"R1", "R10", "R61", "R103", "C1", "C11"} <= RULES.keys()
    assert RULES["R1"].section == "2-the-ring"
    assert beginning(RULES["R4"].text) == "A delivering message is never a victim."


@pytest.mark.parametrize("number", RULES)
def test_every_rule_is_cited_in_code_and_in_a_scenario(number: str) -> None:
    rule = RULES[number]
    assert any(rule.places.values()), "no docstring or comment in the code cites it"
    assert rule.scenarios, "no file in tests/scenarios lists it"


def test_citations_are_attributed_to_definitions() -> None:
    assert "Transitions.enter" in RULES["R2"].places["core/transitions.py"], "a method's docstring"
    assert "QueueSpec.ring_size" in RULES["R1"].places["core/settings.py"], "a field's docstring"
    assert "Transitions.requeue" in RULES["R21"].places["core/transitions.py"], "within a range"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(RULES.values()), "run `make rules`"
