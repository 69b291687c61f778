"""Links in the pages resolve, and every rule that is cited anywhere exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, pages, without_code

CODE = sorted((ROOT / "ringfaust").rglob("*.py"))
SCENARIOS = sorted((ROOT / "tests" / "scenarios").glob("*.yaml"))
DECLARED = {
    rule
    for rule in re.findall(r"^\*\*([RC]\d+)\.\*\* ", (ROOT / "docs/semantics.md").read_text(), re.M)
}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{link} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_each_rule_is_declared_once() -> None:
    text = (ROOT / "docs/semantics.md").read_text()
    rules = re.findall(r"^\*\*([RC]\d+)\.\*\* ", text, re.MULTILINE)
    assert len(rules) == len(set(rules))
    assert {"R1", "R103", "C11"} <= set(rules)


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_rules_cited_in_code_exist(path: Path) -> None:
    cited = set(re.findall(r"\bR\d{1,3}\b", path.read_text()))
    assert cited <= DECLARED, f"{path.name} cites {sorted(cited - DECLARED)}"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_rules_of_scenarios_exist(path: Path) -> None:
    line = re.search(r"^rules: \[(.*)\]", path.read_text(), re.MULTILINE)
    assert line is not None
    assert {rule.strip() for rule in line[1].split(",")} <= DECLARED


def test_rules_cited_in_docs_exist() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        cited = set(re.findall(r"\b[RC]\d{1,3}\b", page.read_text()))
        assert cited <= DECLARED, f"{page.name} cites {sorted(cited - DECLARED)}"
