"""What `pip install` of a checkout or sdist installs, with a C compiler and without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ringfaust import __version__, compiled

ROOT = Path(__file__).parents[2]
ALONE = {**os.environ, "PIP_CONSTRAINT": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture
def checkout(sdist: Path, tmp_path: Path) -> Path:
    """A checkout where another state of the sources was compiled for this Python."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    (folder / ".gitignore").unlink()
    stale = folder / "ringfaust" / "_compiled"
    (stale / "core").mkdir(parents=True)
    (stale / "core" / f"engine{EXTENSION_SUFFIXES[0]}").touch()
    (stale / compiled.STAMP).write_text(f"other {compiled.OPTIMIZED}")
    return folder


def pip_install(source: Path, target: Path, *options: str, compiler: str = "") -> str:
    """Install without dependencies, built as pip does: in isolation. Returns what pip prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--no-deps", "--no-cache-dir",
         "--target", str(target), str(source)],
        env={**ALONE, "CC": compiler}, cwd=target.parent, check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def version(target: Path) -> list[str]:
    """What `ringfaust version` prints where this is installed."""
    return subprocess.run(
        [sys.executable, "-m", "ringfaust", "version"],
        env={**os.environ, "PYTHONPATH": str(target), "RINGFAUST_PURE": ""}, cwd=target,
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip


def files(folder: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in folder.rglob("*") if path.is_file()}


needs_compiler = pytest.mark.skipif(not compiled.build_kind(), reason="nothing is compiled")


@pytest.fixture
def quick_compiler(tmp_path: Path) -> str:
    """Python's C compiler, which does not optimize: that takes more than half of its time."""
    script = tmp_path / "cc"
    script.write_text(f'#!/bin/sh\nexec {sysconfig.get_config_var("CC")} "$@" -O0\n')
    script.chmod(0o755)
    return str(script)


@needs_compiler
def test_an_sdist_is_compiled_when_it_is_installed(
    sdist: Path, tmp_path: Path, quick_compiler: str
) -> None:
    target = tmp_path / "target"
    pip_install(sdist, target, compiler=quick_compiler)
    assert version(target) == [f"{__version__} (compiled)"]
    (installed,) = target.glob("*.dist-info/WHEEL")
    assert "Root-Is-Purelib: false" in installed.read_text("utf-8")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("package", [".", "packages/spark"])
def test_a_checkout_is_compiled_when_it_is_installed_and_stays_as_it_was(
    checkout: Path, tmp_path: Path, package: str
) -> None:
    before = files(checkout)
    pip_install(checkout / package, tmp_path / "target")
    assert files(checkout) == before
    code = "from ringfaust import compiled; print(compiled.KIND)"
    kind = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(tmp_path / "target")},
        cwd=tmp_path, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert kind == "compiled\n"


@pytest.mark.parametrize(
    "compiler", ["no-such-compiler", pytest.param(shutil.which("false"), marks=pytest.mark.slow)]
)
def test_without_a_c_compiler_it_is_installed_and_one_line_says_so(
    checkout: Path, tmp_path: Path, compiler: str
) -> None:
    before, target = files(checkout), tmp_path / "target"
    printed = pip_install(checkout, target, "--verbose", compiler=compiler)
    assert len(re.findall("ringfaust runs as pure Python, which is slower: .+", printed)) == 1
    assert files(checkout) == before
    assert not (target / "ringfaust" / "_compiled").exists()
    first, remedy = version(target)
    assert first == f"{__version__} (pure Python: slower)"
    assert "install a C compiler and Python's headers" in remedy
