"""Pages lead somewhere: links in them resolve, and rules that are cited exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = sorted((ROOT / "ringfaust").rglob("*.py"))
SCENARIOS = sorted((ROOT / "tests" / "scenarios").glob("*.yaml"))
DECLARED = {
    rule
    for rule in re.findall(r"^\*\*([RC]\d+)\.\*\* ", (ROOT / "docs/semantics.md").read_text(), re.M)
}


def pages() -> list[Path]:
    """All pages of the project, committed or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):  # not a checkout
        return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    return [ROOT / line for line in told.splitlines() if (ROOT / line).exists()]


def anchors(page: Path) -> set[str]:
    """The names that a page's headings can be linked by."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{link} leads nowhere"
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
