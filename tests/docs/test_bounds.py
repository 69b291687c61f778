"""The table of all bounds in docs/operations.md has those of the code."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from ringfaust.core import limits
from tests.docs.pages import ROOT

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "bytes": 1, "characters": 1, "ms": 1, "": 1}


def bounds() -> dict[str, str]:
    """By constant: what the table says."""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.partition("\n### All bounds\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .* \| (.*) \| `(.*)` \|$", section, re.MULTILINE)
    return {constant: bound for bound, constant in rows}


@pytest.mark.parametrize("constant", bounds())
def test_a_bound_is_that_of_the_code(constant: str) -> None:
    module, _, name = constant.rpartition(".")
    number, _, unit = bounds()[constant].partition(" ")
    assert int(number.replace(",", "")) * UNITS[unit] == getattr(
        import_module(f"ringfaust.{module}"), name
    )


def test_each_limit_of_the_core_is_in_the_table() -> None:
    ours = {f"core.limits.{name}" for name in vars(limits) if name.isupper()}
    assert ours <= bounds().keys()
