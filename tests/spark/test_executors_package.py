"""A cluster whose executors have the package uses theirs, which may be compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.harness import environment

ASK = """
import sys
from pathlib import Path
from ringfaust.spark.session import executors_have_package, open_session
older = Path(sys.argv[1]) / "ringfaust"
no_daemon = {"spark.python.use.daemon": "false"}  # each task starts a Python
with open_session("executors", "local-cluster[1,1,1024]", no_daemon) as spark:
    where = lambda _: __import__("ringfaust.compiled").__file__
    ask = lambda: spark.sparkContext.parallelize([0], 1).map(where).first()
    print(executors_have_package(spark), ask())
    older.mkdir()
    (older / "__init__.py").write_text("")
    print(executors_have_package(spark))
"""
EXECUTORS_PYTHON = """#!/bin/sh
# The Python of the executors. It finds another ringfaust in {older} once there is one.
PYTHONPATH={older}:$PYTHONPATH exec {python} "$@"
"""


@pytest.mark.java
@pytest.mark.timeout(300)
def test_the_package_is_sent_unless_executors_have_it(tmp_path: Path) -> None:
    older, python = tmp_path / "older", tmp_path / "python"
    older.mkdir()
    python.write_text(EXECUTORS_PYTHON.format(older=older, python=sys.executable))
    python.chmod(0o755)
    env = environment() | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", ASK, older], env=env, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    same, other = done.stdout.splitlines()
    assert same.split()[0] == "True" and ".zip" not in same
    assert other == "False"
