"""The tests of this folder run once more on a build that notices what C must not do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build
from ringfaust import compiled

ROOT = Path(__file__).parents[2]


def library(name: str) -> str:
    """The path of a library of the C compiler; its plain name if there is none."""
    command = [*hatch_build.compiler(), f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(compiled.NATIVE is None, reason=f"nothing is compiled: {compiled.KIND}")
@pytest.mark.skipif("sanitized" in compiled.KIND, reason="this is that run")
def test_no_test_reads_or_writes_beyond_its_memory_or_overflows(tmp_path: Path) -> None:
    libraries = [library("libasan.so"), library("libubsan.so")]
    if not all(map(os.path.isabs, libraries)):
        pytest.skip("the C compiler has no sanitizers")
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    without = shutil.ignore_patterns("_compiled", "__pycache__")
    shutil.copytree(ROOT / "ringfaust", tmp_path / "ringfaust", ignore=without)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "RINGFAUST_PURE": "0"}
    build = [sys.executable, "hatch_build.py", "sanitized"]
    subprocess.run(build, cwd=tmp_path, env=environment, check=True)
    environment |= {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps much of its own
        "PYTHONMALLOC": "malloc",
    }
    tests = [sys.executable, "-P", "-m", "pytest", "-n0", "-k", "not python", "tests/native"]
    done = subprocess.run(
        tests, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
