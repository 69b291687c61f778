"""Arrows point one way: see docs/architecture.md; import-linter checks the rest."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ringfaust

PACKAGE = Path(ringfaust.__file__).parent
PURE = {
    "__future__", "bisect", "collections.abc", "dataclasses", "enum", "functools", "math",
    "operator", "re", "typing", "zlib",
}  # fmt: skip
"""The standard library's tools for values; none of them knows a clock, a file or a network."""
ALLOWED = {"grammar.py": {"lark"}, "create.py": {"ringfaust.compiled"}}
"""The one library in core, which parses selectors; and a function with a twin in C."""
CORE = sorted((PACKAGE / "core").rglob("*.py"))
WITHOUT_IO = sorted(
    path for name in ("protocol", "processor") for path in (PACKAGE / name).rglob("*.py")
)
CLIENT = sorted((PACKAGE / "client").glob("*.py"))


def imported(path: Path) -> set[str]:
    """All modules a file names in imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it points"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_knows_values_only(path: Path) -> None:
    for name in imported(path):
        within = name == "ringfaust.errors" or (name + ".").startswith("ringfaust.core.")
        allowed = PURE | ALLOWED.get(path.name, set())
        assert within or name in allowed, f"core/{path.name} imports {name}"


@pytest.mark.parametrize("path", CLIENT, ids=lambda path: path.name)
def test_the_client_knows_protocol_and_aiokafka_only(path: Path) -> None:
    own = (
        "ringfaust.cancellation", "ringfaust.core.patterns", "ringfaust.errors",
        "ringfaust.protocol", "ringfaust.client",
        "ringfaust.spans", "ringfaust.times", "ringfaust.transactional", "aiokafka",
    )  # fmt: skip
    for name in imported(path):
        within = any(name == module or name.startswith(f"{module}.") for module in own)
        assert within or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name}: {name}"


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_asks_for_no_time_and_no_chance(path: Path) -> None:
    """Nor for `hash` and `id`, which differ from run to run (R102)."""
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"hash", "id", "open", "print", "input", "eval", "exec", "__import__"}


@pytest.mark.parametrize("path", WITHOUT_IO, ids=lambda path: path.name)
def test_protocol_and_processor_ask_for_no_time_and_no_chance(path: Path) -> None:
    used = {name.partition(".")[0] for name in imported(path)}
    assert not used & {"time", "datetime", "random", "secrets", "uuid", "os", "socket", "asyncio"}


def test_there_is_a_core_to_look_at() -> None:
    assert {"engine.py", "table.py", "model.py"} <= {path.name for path in CORE}


@pytest.mark.parametrize("module", ["ringfaust", "ringfaust.core.engine"])
def test_importing_it_brings_no_framework_along(module: str) -> None:
    heavy = ("faust", "pyspark", "aiokafka", "rocksdict", "pydantic", "yaml", "asyncio", "lark")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
