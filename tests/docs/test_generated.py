"""What is generated from the code is up to date."""

from __future__ import annotations

import re
import subprocess

import pytest

from generate import versions
from generate.files import FILES, ROOT
from generate.versions import VERSIONED
from ringfaust import __version__

_NAMED = re.compile(r"\bringfaust(?:[-_]\w+|\[\w+\])?(?:[:-]|==)(\d+\.\d+\.\d+)")
"""An image, a wheel, an sdist or a requirement of a version."""


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == FILES[name](), "run `make generate`"


def test_no_file_is_left_of_what_was_generated() -> None:
    folders = [ROOT / "docs/schemas", ROOT / "docs/contracts"]
    found = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.iterdir()}
    assert found <= {*FILES}


def test_no_file_names_another_version_or_is_forgotten() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.yaml", "*.yml", "*.toml", "*.txt", "*Dockerfile*"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    names = {*listed.stdout.split()} - {"CHANGELOG.md"}
    found = {name: set(_NAMED.findall((ROOT / name).read_text("utf-8"))) for name in names}
    named = {name: versions for name, versions in found.items() if versions}
    assert named.keys() <= {*VERSIONED}
    assert set().union(*named.values()) == {__version__}


def test_a_release_changes_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "__version__", "9.9.9")
    named = {version for name in VERSIONED for version in _NAMED.findall(versions.versioned(name))}
    assert named == {"9.9.9"}
