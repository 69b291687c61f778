"""Import the compiled modules in place of their Python sources, if there are any (ADR 30).

`hatch_build.py` compiles the modules of three packages into `ringfaust/_compiled`, with a digest of
the sources. They are imported only if the sources are still those, so an edit is never ignored: the
pure sources run until `make setup` has compiled them again. `RINGFAUST_PURE=1` asks for these, too.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

PACKAGES = ("core", "processor", "protocol")
"""What is compiled, apart from a few modules."""
FOLDER = Path(__file__).with_name("_compiled")
STAMP = "SOURCES"
"""The file with the digest of the sources."""

_SUFFIX = EXTENSION_SUFFIXES[0]


def digest() -> str:
    """A digest of the sources of the packages."""
    found = hashlib.blake2b(digest_size=16)
    for package in PACKAGES:
        for path in sorted(Path(__file__).with_name(package).rglob("*.*")):
            if path.suffix in (".py", ".c", ".h"):
                found.update(path.read_bytes())
    return found.hexdigest()


def is_current() -> bool:
    """Whether there are modules for this Python, compiled from the sources as they are."""
    stamp = FOLDER / STAMP
    return bool(_modules()) and stamp.exists() and stamp.read_text() == digest()


def _modules() -> dict[str, Path]:
    """The compiled modules for this Python, by name."""
    found = {}
    for path in FOLDER.rglob(f"*{_SUFFIX}"):
        name = path.relative_to(FOLDER).as_posix().removesuffix(_SUFFIX).replace("/", ".")
        # mypyc's library, which the others load, belongs to no package.
        found[f"ringfaust.{name}" if "." in name else name] = path
    return found


class _Finder:
    """Finds compiled modules by name, before Python looks for their sources."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        file = self._modules.get(name)
        return spec_from_file_location(name, file) if file else None


def _install() -> str:
    if os.environ.get("RINGFAUST_PURE", "") not in ("", "0"):
        return "pure Python, because RINGFAUST_PURE is set"
    modules = _modules()
    if not modules:
        return "pure Python"
    if not is_current():
        return "pure Python, because the sources have changed since they were compiled"
    sys.meta_path.insert(0, _Finder(modules))
    return "compiled"


KIND = _install()
"""How the engine runs: compiled, or pure Python and why."""
