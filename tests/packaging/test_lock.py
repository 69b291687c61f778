"""constraints.txt pins what pyproject.toml asks for. `make lock` writes it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def test_every_dependency_is_pinned_to_a_release_that_it_allows() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    pinned = {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    for wanted in map(Requirement, asked):
        name = canonicalize_name(wanted.name)
        if name != "ringfaust":
            assert name in pinned, f"{name} is not pinned: run `make lock`"
            assert wanted.specifier.contains(pinned[name]), f"{name}: run `make lock`"
