"""Compare the type stubs of Faust with the installed package."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "stubs"


def modules() -> list[str]:
    """The modules that have a stub."""
    paths = [path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.pyi")]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)


def differences(module: str) -> Iterator[str]:
    """What the stub declares and the installed module lacks: classes, functions, parameters."""
    path = FOLDER / module.replace(".", "/")
    stub = path.with_suffix(".pyi") if path.with_suffix(".pyi").exists() else path / "__init__.pyi"
    installed = importlib.import_module(module)
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            real = getattr(installed, node.name, None)
            if real is None:
                yield f"{module}.{node.name} does not exist"
                continue
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _function_differences(f"{module}.{node.name}", real, member)
        elif isinstance(node, ast.FunctionDef):
            yield from _function_differences(module, installed, node)


def _function_differences(
    owner: str, holder: Any, node: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[str]:
    name = f"{owner}.{node.name}"
    real = inspect.getattr_static(holder, node.name, None)
    if real is None:
        yield f"{name} does not exist"
        return
    if not inspect.isfunction(real):
        return  # a property, or an attribute of a class that is a protocol here
    real = inspect.unwrap(real)
    if isinstance(node, ast.AsyncFunctionDef) != inspect.iscoroutinefunction(real):
        yield f"{name} is async in one of stub and package only"
    parameters = inspect.signature(real).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    takes_any = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL} & kinds
    for argument in (*node.args.args, *node.args.kwonlyargs):
        if argument.arg not in parameters and not takes_any:
            yield f"{name} has no parameter {argument.arg}"
