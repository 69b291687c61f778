"""Import the compiled modules in place of their Python sources, if there are any (ADR 30).

`hatch_build.py` compiles the modules of three packages, and the C of `native`, into
`ringfaust/_compiled`, with a digest of the sources. They are imported only if the sources are still
those, so an edit is never ignored: the pure sources run until `hatch_build.py` has compiled again.
`RINGFAUST_PURE=1` asks for these, too. An installation has the folder if there was a C compiler.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

PACKAGES = ("core", "native", "processor", "protocol")
"""What is compiled, apart from a few modules."""
FOLDER = Path(__file__).with_name("_compiled")
_ROOT = FOLDER.parents[1]
STAMP = "SOURCES"
"""The file with the digest of the sources and the kind of build."""
OPTIMIZED = "optimized"
"""The build that people use; `hatch_build.py` has others for developers."""

PURE = "pure Python: slower"
"""How the kind begins if nothing is compiled."""
_COMPILER = "install a C compiler and Python's headers, then "
_INSTALLED = (
    "install ringfaust again with `pip install --force-reinstall --no-deps --no-cache-dir` and the "
    "same argument as before"
)
_MADE = "run `.venv/bin/python hatch_build.py`"
"""In an environment of `make setup` or `make demo`, which has mypyc."""
_EDITABLE = "run `pip install -e '.[compile]'` and `python hatch_build.py` in the checkout"
_SUFFIX = EXTENSION_SUFFIXES[0]
_SHARED = "ringfaust__mypyc"
"""mypyc's library, which the others load, belongs to no package."""


def digest() -> str:
    """A digest of the sources of the packages."""
    found = hashlib.blake2b(digest_size=16)
    for package in PACKAGES:
        for path in sorted(Path(__file__).with_name(package).rglob("*.*")):
            if path.suffix in (".py", ".c", ".h"):
                found.update(path.read_bytes())
    return found.hexdigest()


def build_kind() -> str:
    """The kind of build of the sources as they are, for this Python; empty: there is none."""
    stamp = FOLDER / STAMP
    if not _modules() or not stamp.exists():
        return ""
    sources, _, kind = stamp.read_text().partition(" ")
    return kind if sources == digest() else ""


def _modules() -> dict[str, Path]:
    """The compiled modules for this Python, by name."""
    found = {}
    for path in FOLDER.rglob(f"*{_SUFFIX}"):
        name = path.relative_to(FOLDER).as_posix().removesuffix(_SUFFIX).replace("/", ".")
        found[name if name == _SHARED else f"ringfaust.{name}"] = path
    return found


def _again() -> str:
    """How to install what is imported, so that it is compiled."""
    if not _ROOT.joinpath("hatch_build.py").exists():
        return _INSTALLED
    return _MADE if Path(sys.prefix) == _ROOT / ".venv" else _EDITABLE


class _Finder:
    """Finds compiled modules by name, before Python looks for their sources."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        file = self._modules.get(name)
        return spec_from_file_location(name, file) if file else None


def _install() -> tuple[str, str, Any]:
    """How the engine runs, what would make it faster, and the module in C or None."""
    if os.environ.get("RINGFAUST_PURE", "") not in ("", "0"):
        return f"{PURE}, because RINGFAUST_PURE is set", "unset RINGFAUST_PURE", None
    modules = _modules()
    remedy = _again() if modules else f"{_COMPILER}{_again()}"
    kind = build_kind()
    if not kind:
        why = ", because the sources have changed since they were compiled" if modules else ""
        return f"{PURE}{why}", remedy, None
    finder = _Finder(modules)
    sys.meta_path.insert(0, finder)
    try:
        from ringfaust import _native  # type: ignore[attr-defined]  # noqa: PLC0415
    except ImportError as error:  # they were compiled on a newer system, for instance
        sys.meta_path.remove(finder)
        why = f", because the compiled modules cannot be loaded: {error}"
        return f"{PURE}{why}", f"delete {FOLDER}, then {remedy}", None

    return "compiled" if kind == OPTIMIZED else f"compiled, {kind}", "", _native


KIND, REMEDY, NATIVE = _install()
"""How the engine runs: compiled, or pure Python and why. What to do about the latter, or nothing.
And `ringfaust._native`, or None."""


def python() -> list[str]:
    """This Python, with what makes it find the code of this process."""
    return [sys.executable] if is_in_present_folder() else [sys.executable, "-P"]


def is_in_present_folder() -> bool:
    """Whether the code of this process is in the present folder, such as a checkout.

    If not, processes of ours must not look there, as `python -m` does: in a checkout after
    `pip install .`, they would find sources that are not compiled.
    """
    return _ROOT.samefile(".")


IN_PYTHON: dict[str, Callable[..., Any]] = {}
"""The functions that have a twin in C, by name, in Python."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def in_c(function: _Function) -> _Function:
    """Use the function of the same name in `_native`, if it is compiled.

    Where it is not, the decorated function runs; both do the same.
    """
    IN_PYTHON[function.__name__] = function
    return function if NATIVE is None else getattr(NATIVE, function.__name__)
