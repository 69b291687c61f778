"""The last release before this version, built from its commit."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

from ringfaust import __version__
from tests.chaos.harness import ROOT


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def last_release(folder: Path) -> tuple[str, Path]:
    """Build its wheel. Returns its version, and a Python in the folder that has it."""
    # By its subject: not every copy of the repository has the tags.
    found = git("log", "--format=%H %s", "-E", "--grep", r"^Release [0-9.]+$").decode()
    releases = [line.split(" Release ") for line in found.splitlines()]
    earlier = [each for each in releases if each[1] != __version__]
    assert earlier, "no commit is called `Release X.Y.Z`: fetch the history"
    commit, version = earlier[0]
    with tarfile.open(fileobj=BytesIO(git("archive", commit))) as archive:
        archive.extractall(folder / "source", filter="data")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    pure = {**os.environ, "CC": "no-such-compiler"}
    subprocess.run(build, cwd=folder / "source", check=True, capture_output=True, env=pure)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    # As pip installs it. What it depends on is here; its own ringfaust comes first.
    (site,) = folder.glob("venv/lib/*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    said = subprocess.run(
        [python, "-m", "ringfaust", "version"], cwd=folder, check=True, capture_output=True,
        text=True, env={name: each for name, each in os.environ.items() if name != "PYTHONPATH"},
    ).stdout  # fmt: skip
    assert said.startswith(version)
    return version, python
