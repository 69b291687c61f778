"""Links resolve; every rule, section, decision, file and module that is cited anywhere exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, pages, tracked, without_code

CODE = sorted((ROOT / "ringfaust").rglob("*.py"))
CITING = [
    path
    for path in tracked("*.py", "*.c", "*.h", "*.md", "*.yaml", "*.yml", "*.toml", "Makefile")
    if path.name != "CHANGELOG.md"  # it names files as they were
]
ROOMS = {path.name for top in (ROOT, ROOT / "ringfaust") for path in top.iterdir() if path.is_dir()}
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


def cited(pattern: str) -> Iterator[tuple[Path, str]]:
    """(the file that cites, what it cites) of each match of the pattern's group."""
    for path in CITING:
        for found in re.findall(pattern, path.read_text("utf-8")):
            yield path, found


def test_files_that_are_cited_exist() -> None:
    named = cited(r"(?<![\w/.{-])((?:[\w-]+/)+[\w-]+\.(?:py|c|h|md|ya?ml|toml|qnt|svg|js|sh))\b")
    missing = {
        (path.relative_to(ROOT), name)
        for path, name in named
        if name.partition("/")[0] in ROOMS
        and not any(
            (top / name).exists() for top in (ROOT, ROOT / "ringfaust", ROOT / "tests", path.parent)
        )
    }
    assert not missing


def test_sections_of_pages_that_are_cited_exist() -> None:
    found = [*cited(r"(?<![\w/])((?:docs/[\w/-]+|CONTRIBUTING)\.md#[\w-]+)")]
    assert len(found) > 5
    for path, name in found:
        page, _, anchor = name.partition("#")
        assert anchor in anchors(ROOT / page), f"{path.name} cites {name}"


def test_sections_of_the_contract_that_are_cited_exist() -> None:
    text = (ROOT / "docs/semantics.md").read_text("utf-8")
    sections = set(re.findall(r"^## (\d+)\. ", text, re.MULTILINE))
    found = [
        each
        for each in cited(r"(?:§|\b[Ss]ection )(\d+)")
        if each[0].is_relative_to(ROOT / "ringfaust") or each[0].parent == ROOT / "docs"
    ]
    assert len(found) > 5
    assert not {(path.name, number) for path, number in found if number not in sections}


def test_no_page_but_the_contract_is_cited_by_number() -> None:
    names = "|".join(re.escape(page.stem) for page in (ROOT / "docs").glob("*.md"))
    assert not [*cited(rf"\(((?:{names}),? §?\d+)\)")]


def test_decisions_that_are_cited_exist() -> None:
    found = [*cited(r"\bADR (\d+)\b")]
    assert len(found) > 10
    for path, number in found:
        assert [*(ROOT / "docs/adr").glob(f"{int(number):04}-*.md")], f"{path.name}: ADR {number}"


def test_modules_that_are_run_exist() -> None:
    found = [*cited(r"python3? -m ((?:ringfaust|tests|bench)[\w.]*\w)")]
    assert len(found) > 5
    for path, module in found:
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), (path, module)


def test_each_rule_is_declared_once() -> None:
    text = (ROOT / "docs/semantics.md").read_text()
    rules = re.findall(r"^\*\*([RC]\d+)\.\*\* ", text, re.MULTILINE)
    assert len(rules) == len(set(rules))
    assert {"R1", "R103", "C11"} <= set(rules)


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_rules_cited_in_code_exist(path: Path) -> None:
    rules = set(re.findall(r"\bR\d{1,3}\b", path.read_text()))
    assert rules <= DECLARED, f"{path.name} cites {sorted(rules - DECLARED)}"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_rules_of_scenarios_exist(path: Path) -> None:
    line = re.search(r"^rules: \[(.*)\]", path.read_text(), re.MULTILINE)
    assert line is not None
    assert {rule.strip() for rule in line[1].split(",")} <= DECLARED


def test_rules_cited_in_docs_exist() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        rules = set(re.findall(r"\b[RC]\d{1,3}\b", page.read_text()))
        assert rules <= DECLARED, f"{page.name} cites {sorted(rules - DECLARED)}"
