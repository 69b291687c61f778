"""The compiled engine runs if it is that of the sources, and the sources run otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NoReturn

import pytest

import hatch_build
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


@pytest.mark.parametrize(
    ("modules", "remedy"),
    [
        ({}, "install a C compiler and Python's headers, then install ringfaust again with `pip"),
        ({"ringfaust.core.engine": Path("engine.so")}, "install ringfaust again with `pip"),
    ],
    ids=["nothing is compiled", "other sources were compiled"],
)
def test_an_installation_says_how_to_compile_it(
    modules: dict[str, Path], remedy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A checkout, which has `hatch_build.py`, has remedies of its own."""
    monkeypatch.setattr(compiled, "_modules", lambda: modules)
    monkeypatch.setattr(compiled, "build_kind", lambda: "")
    monkeypatch.setattr(compiled, "_ROOT", tmp_path)
    monkeypatch.delenv("RINGFAUST_PURE", raising=False)
    kind, said, native = compiled._install()
    assert kind.startswith("pure Python: slower")
    assert said.startswith(remedy)
    assert native is None


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


def test_modules_that_cannot_be_loaded_leave_the_sources(checkout: Path) -> None:
    """Those of a newer system, for instance."""
    folder = checkout / "ringfaust" / "_compiled"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / f"_native{EXTENSION_SUFFIXES[0]}").write_text("no library")
    (folder / compiled.STAMP).write_text(f"{compiled.digest()} {compiled.OPTIMIZED}")
    kind, file = run(checkout)
    assert kind.startswith("pure Python: slower, because the compiled modules cannot be loaded: ")
    assert file == "ringfaust/core/engine.py"


@needs_compiled
def test_a_build_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> NoReturn:
        raise hatch_build.Uncompilable("refused")

    monkeypatch.setattr(hatch_build, "_translate", refuse)
    folder = tmp_path / "_compiled"
    folder.mkdir()
    (folder / "of before").touch()
    with pytest.raises(hatch_build.Uncompilable, match="refused"):
        hatch_build.build("debug", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["_compiled"]
    assert [path.name for path in folder.iterdir()] == ["of before"]


def test_pip_fetches_nothing_to_compile_with_where_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = hatch_build.CompiledWheel(str(ROOT), {}, None, None, "", "wheel")
    monkeypatch.setenv("CC", "true")
    assert tuple(hook.dependencies()) == hatch_build.NEEDED
    monkeypatch.setenv("CC", "false")
    assert hook.dependencies() == []


def test_a_compiler_is_looked_for_under_several_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(hatch_build.sysconfig, "get_config_var", lambda name: "no-such-cc -pthread")
    monkeypatch.setattr(hatch_build, "_refusal", lambda tried: "?" if tried != ["gcc"] else None)
    assert hatch_build.compiler() == ["gcc"]


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("compiler", "no C compiler works (no-such-compiler: not found)"),
        ("headers", "fatal error: stdio.h: No such file or directory"),
        ("mypyc", "mypyc cannot be imported: "),
    ],
)
def test_without_a_compiler_one_line_says_so(checkout: Path, missing: str, text: str) -> None:
    """mypyc may be missing if pip builds without isolation."""
    without_headers = checkout / "cc"
    without_headers.write_text(
        "#!/bin/sh\necho 'In file included from Python.h:' >&2\n"
        "echo 'Python.h:12:10: fatal error: stdio.h: No such file or directory' >&2\nexit 1\n"
    )
    without_headers.chmod(0o755)
    shutil.rmtree(checkout / "ringfaust" / "_compiled", ignore_errors=True)
    shutil.copy(ROOT / "hatch_build.py", checkout)
    hide = f"import sys; sys.modules[{missing!r}] = None; import hatch_build; hatch_build.main()"
    result = subprocess.run(
        [sys.executable, "-c", hide],
        env={
            **os.environ,
            "PYTHONPATH": str(checkout),
            # `true` does nothing: what is looked at is how the translation begins.
            "CC": {"compiler": "no-such-compiler", "headers": str(without_headers)}.get(
                missing, "true"
            ),
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
