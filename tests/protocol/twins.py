"""Modules in Python and their twins in C, and whether a function in C keeps objects alive."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ringfaust import compiled

REFUSALS = (TypeError, ValueError, OverflowError)
"""What functions in C raise if their arguments make no sense."""


def twins(module: str) -> tuple[ModuleType, ModuleType] | None:
    """The module in Python and the one in C; None: nothing is compiled.

    Args:
        module: its path in the package, without a suffix.
    """
    found = next(compiled.FOLDER.glob(f"{module}.*"), None) if compiled.is_current() else None
    source = Path(compiled.__file__).parent / f"{module}.py"
    return None if found is None else (_load(module, source), _load(module, found))


def _load(module: str, path: Path) -> ModuleType:
    spec = spec_from_file_location(f"ringfaust.{module.replace('/', '.')}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def assert_keeps_nothing(calls: Sequence[Callable[[], Any]], values: Sequence[Any]) -> None:
    """Assert that calls, which may be refused, keep neither the values nor anything else alive."""

    def run() -> None:
        for call in calls:
            try:
                call()
            except REFUSALS:
                continue

    run()
    gc.collect()
    before, blocks = [sys.getrefcount(value) for value in values], sys.getallocatedblocks()
    for _ in range(200):
        run()
    gc.collect()
    assert [sys.getrefcount(value) for value in values] == before
    assert sys.getallocatedblocks() - blocks < 100
