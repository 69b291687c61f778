"""The list of mutants stays true to the source, and some are hunted; `make mutants` hunts all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mutants.hunt import ROOT, hunt
from tests.mutants.mutants import MUTANTS, Mutant, Stale

by_name = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_snippet_stands_once_in_the_source(mutant: Mutant, tmp_path: Path) -> None:
    copy = tmp_path / mutant.file
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / "ringfaust" / mutant.file, copy)
    before = copy.read_text()
    mutant.apply(tmp_path)
    compile(copy.read_text(), mutant.file, "exec")
    assert copy.read_text() != before


def test_a_missing_snippet_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ring.py").write_text("a = 1\na = 1\n")
    for snippet in ("b = 1", "a = 1"):
        with pytest.raises(
            Stale, match=r"none: its snippet stands [02] times in ring\.py, not once"
        ):
            Mutant("none", "nothing", "ring.py", snippet, "").apply(tmp_path)


def test_names_differ() -> None:
    assert len(by_name) == len(MUTANTS)


@pytest.mark.parametrize("rule", [f"R{number}" for number in range(110, 130)])
def test_each_rule_about_the_surroundings_of_a_queue_has_a_mutant(rule: str) -> None:
    assert any(rule in mutant.breaks for mutant in MUTANTS)


@pytest.mark.parametrize(
    ("name", "hunter"),
    [
        ("evict two", "scenarios"),
        ("refund no credit", "scenarios"),
        ("store before the commit", "simulator"),
        ("repeats take effect", "simulator"),
        ("one protocol for all settings", "units"),
        ("a scan ends silently", "units"),
        ("a repeat is handed out", "units"),
    ],
)
def test_the_mutant_is_found(name: str, hunter: str) -> None:
    assert hunt(by_name[name], [hunter], first=True)[hunter]
