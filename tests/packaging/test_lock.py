"""constraints.txt pins what pyproject.toml asks for. `make lock` writes it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hatch_build

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, str]:
    """The release that constraints.txt pins, by name."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in found
        if pin.marker is None or pin.marker.evaluate()
    }


def test_every_dependency_is_pinned_to_a_release_that_it_allows() -> None:
    pinned = pins()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    for wanted in map(Requirement, asked):
        name = canonicalize_name(wanted.name)
        if name != "ringfaust":
            assert name in pinned, f"{name} is not pinned: run `make lock`"
            assert wanted.specifier.contains(pinned[name]), f"{name}: run `make lock`"


def test_the_engine_is_compiled_by_what_is_pinned() -> None:
    asked = {each.name: str(each.specifier) for each in map(Requirement, hatch_build.NEEDED)}
    assert "mypy" in asked
    assert asked == {name: f"=={pins()[name]}" for name in asked}, "take those of constraints.txt"
