"""The wheel works without a checkout, because it contains the defaults."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.parametrize("kind", ["topics", "config"])
def test_the_defaults_are_the_checkouts_own_files(wheel: zipfile.ZipFile, kind: str) -> None:
    own = {path.name: path.read_bytes() for path in (ROOT / kind).iterdir()}
    inside = f"ringfaust/defaults/{kind}/"
    packed = {
        name.removeprefix(inside): wheel.read(name)
        for name in wheel.namelist()
        if name.startswith(inside)
    }
    assert packed == own


def test_the_wheel_contains_lock_file_types_and_licence(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "ringfaust/java/kafka-broker.lock" in names
    assert "ringfaust/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_is_for_every_platform(wheel: zipfile.ZipFile) -> None:
    assert str(wheel.filename).endswith("-py3-none-any.whl")
    assert not [name for name in wheel.namelist() if name.endswith(".so")]


def test_the_wheel_contains_one_package(wheel: zipfile.ZipFile) -> None:
    roots = {name.split("/")[0] for name in wheel.namelist()}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"ringfaust"}
