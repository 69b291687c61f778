"""docs/architecture.md shows the packages that exist, and the layers that import-linter checks."""

from __future__ import annotations

import re
import tomllib

from ringfaust.core.model import HELD_STATES
from ringfaust.core.table import Kind
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
PACKAGES = {path.parent.name for path in (ROOT / "ringfaust").glob("*/__init__.py")}


def test_the_table_has_each_package() -> None:
    (section,) = re.findall(r"^## Packages\n(.*?)(?=^```)", PAGE, re.DOTALL | re.MULTILINE)
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\.\./ringfaust/\1\) \|", section, re.M)) == sorted(
        PACKAGES
    )


def test_the_layers_are_those_of_the_linter() -> None:
    (contract,) = (each for each in LINTER["contracts"] if each.get("containers") == ["ringfaust"])
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown.splitlines() == contract["layers"]
    named = {name for layer in contract["layers"] for name in layer.split(" | ")}
    assert named >= PACKAGES - {*contract["exhaustive_ignores"]}


def test_the_modules_for_private_apis_are_named() -> None:
    found = {f"../{path.relative_to(ROOT)}" for path in (ROOT / "ringfaust").rglob("vendor.py")}
    assert set(re.findall(r"\]\(([\w./]+/vendor\.py)\)", PAGE)) == found


def test_the_list_of_tables_has_each() -> None:
    (tables,) = re.findall(r"The tables are\n(.*?)\n\n\[core/table", PAGE, re.DOTALL)
    assert set(re.findall(r"`([A-Z_]+)`", tables)) == {kind.name for kind in Kind}


def test_the_drawing_of_the_states_has_each() -> None:
    drawing = (ROOT / "docs" / "images" / "concept-states.svg").read_text("utf-8")
    shown = set(re.findall(r"<text[^>]*>([^<]*)", drawing))
    assert {*HELD_STATES} <= shown
