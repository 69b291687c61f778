"""The compiled engine runs if it is that of the sources, and the sources run otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringfaust import compiled

ROOT = Path(__file__).parents[2]
CODE = """
from ringfaust import compiled
from ringfaust.core import engine
print(compiled.KIND)
print(engine.__file__)
"""
needs_compiled = pytest.mark.skipif(not compiled.build_kind(), reason="nothing is compiled")


def run(folder: Path, pure: str = "") -> tuple[str, str]:
    """How the engine of this checkout runs, and from which file."""
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "PYTHONPATH": str(folder), "RINGFAUST_PURE": pure},
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    kind, file = result.stdout.splitlines()
    return kind, Path(file).relative_to(folder).as_posix()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "ringfaust", tmp_path / "ringfaust")
    return tmp_path


@needs_compiled
def test_the_compiled_engine_is_used(checkout: Path) -> None:
    kind, file = run(checkout)
    assert kind == "compiled"
    assert file.startswith("ringfaust/_compiled/core/engine.")


@needs_compiled
def test_an_edited_source_is_used_even_if_its_time_is_old(checkout: Path) -> None:
    source = checkout / "ringfaust" / "core" / "limits.py"
    source.write_text(source.read_text() + "# edited\n")
    os.utime(source, (0, 0))
    kind, file = run(checkout)
    assert kind == "pure Python: slower, because the sources have changed since they were compiled"
    assert file == "ringfaust/core/engine.py"


@pytest.mark.parametrize(("pure", "is_pure"), [("1", True), ("0", not compiled.build_kind())])
def test_an_environment_variable_asks_for_the_sources(
    checkout: Path, pure: str, is_pure: bool
) -> None:
    _, file = run(checkout, pure)
    assert (file == "ringfaust/core/engine.py") is is_pure


def test_without_compiled_modules_the_sources_run(checkout: Path) -> None:
    shutil.rmtree(checkout / "ringfaust" / "_compiled", ignore_errors=True)
    assert run(checkout) == ("pure Python: slower", "ringfaust/core/engine.py")


def test_modules_for_another_python_are_not_used(checkout: Path) -> None:
    folder = checkout / "ringfaust" / "_compiled"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "core").mkdir(parents=True)
    (folder / "core" / "engine.cpython-399-other.so").touch()
    (folder / compiled.STAMP).write_text(f"{compiled.digest()} {compiled.OPTIMIZED}")
    assert run(checkout) == ("pure Python: slower", "ringfaust/core/engine.py")


@pytest.mark.parametrize(
    ("missing", "text"),
    [("compiler", "no C compiler"), ("mypyc", "mypyc cannot be imported: ")],
)
def test_without_a_compiler_one_line_says_so(checkout: Path, missing: str, text: str) -> None:
    """mypyc may be missing if pip builds without isolation."""
    shutil.rmtree(checkout / "ringfaust" / "_compiled", ignore_errors=True)
    shutil.copy(ROOT / "hatch_build.py", checkout)
    hide = f"import sys; sys.modules[{missing!r}] = None; import hatch_build; hatch_build.main()"
    result = subprocess.run(
        [sys.executable, "-c", hide],
        env={
            **os.environ,
            "PYTHONPATH": str(checkout),
            # The C compiler does nothing: what is looked at is how the translation begins.
            "CC": "no-such-compiler" if missing == "compiler" else "true",
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=checkout,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    assert "ringfaust runs as pure Python" in result.stdout
    assert text in result.stdout
