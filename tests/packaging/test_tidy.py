"""Files stay short, each module has a user, and each topic says who writes and reads it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "ringfaust").rglob("*.py"))
LINES = 400
LONGER = {
    "cli/main.py": 445,
    "client/admin.py": 552,
    "client/consumer.py": 452,
    "core/queue.py": 539,
    "core/table.py": 572,
    "processor/processor.py": 619,
    "protocol/lifecycle.py": 455,
    "testing/accounts/reconciler.py": 440,
    "worker/app.py": 455,
    "worker/assignment.py": 411,
    "worker/faust/fetcher.py": 439,
    "worker/faust/vendor.py": 467,
    "worker/interfaces.py": 491,
    "worker/partition/task.py": 638,
}
"""Files that are longer, and how long they may be. These numbers only fall."""
FOR_USERS = {
    "ringfaust.spark.lake.with_duckdb",
    "ringfaust.spark.rewind.with_duckdb",
    "ringfaust.worker.faust_app",
}
"""Modules that the docs name, and nothing of ours imports."""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported() -> set[str]:
    """The modules that some module imports, or names in a text: an entry point, for instance."""
    importing = [*SOURCES, ROOT / "hatch_build.py", *(ROOT / "generate").glob("*.py")]
    texts = [path.read_text("utf-8") for path in (*importing, ROOT / "pyproject.toml")]
    found = set(re.findall(r"\bringfaust(?:\.\w+)+", "\n".join(texts)))
    for path, text in zip(importing, texts, strict=False):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                of = node.module or name_of(path.parent)
                found |= {of, *(f"{of}.{each.name}" for each in node.names)}
    return found


def test_files_are_short() -> None:
    lines = {
        path.relative_to(ROOT / "ringfaust").as_posix(): len(path.read_text("utf-8").splitlines())
        for path in SOURCES
    }
    longer = {name: count for name, count in lines.items() if count > LINES}
    assert {name: max(count, LONGER.get(name, 0)) for name, count in longer.items()} == LONGER


def test_each_module_has_a_user() -> None:
    used = imported() | FOR_USERS
    unused = {name_of(path) for path in SOURCES if not path.name.startswith("__")} - used
    assert not unused


@pytest.mark.parametrize("path", sorted((ROOT / "topics").glob("*.yaml")), ids=lambda p: p.stem)
def test_each_topic_says_who_writes_and_reads_it(path: Path) -> None:
    topic = yaml.safe_load(path.read_text("utf-8"))
    assert topic["written_by"] and topic["read_by"] and topic["why"]
