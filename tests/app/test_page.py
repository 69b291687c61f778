"""docs/handlers.md: it shows the example, whose tests pass, and all of its code runs."""

from __future__ import annotations

import ast
import inspect
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.client.test_documents import ROOT, blocks

PAGE = (ROOT / "docs" / "handlers.md").read_text()
EXAMPLE = ROOT / "docs" / "examples" / "shop"
NAMES = ["config/worker.yaml", "config/queues.yaml", "shop.py", "test_shop.py"]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_files_of_the_example(name: str) -> None:
    language = "yaml" if name.endswith(".yaml") else "python"
    shown = [each for each in blocks(PAGE, language) if each.startswith(f"# {name}\n")]
    assert shown == [f"# {name}\n{(EXAMPLE / name).read_text()}"]


def test_the_example_passes_its_tests_without_kafka(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "shop")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path / "shop",
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


async def test_the_other_code_of_the_page_runs_as_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(EXAMPLE)
    module = types.ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    exec((EXAMPLE / "shop.py").read_text(), vars(module))
    ran = 0
    for block in blocks(PAGE, "python"):
        if not block.startswith("# "):
            code = compile(block, "handlers.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, vars(module))
            if inspect.isawaitable(result):
                await result
            ran += 1
    assert ran == 3
    assert module.app.queues == ("orders", "invoices")


def test_the_plugin_costs_other_projects_nothing() -> None:
    """pytest imports it wherever ringfaust is installed."""
    program = (
        "import sys, ringfaust.testing.pytest_plugin\n"
        "print({'aiokafka', 'pydantic', 'yaml'} & sys.modules.keys())"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
