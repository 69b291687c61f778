"""Compile the engine, for a checkout (`make setup`) or a wheel (`pip install`).

mypyc turns the modules of `COMPILED` into C, and a C compiler makes libraries of it and of the
files in `ringfaust/native`, in `ringfaust/_compiled`. The Python files stay the source: see
`ringfaust/compiled.py`. A wheel is built beside the sources, not among them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
GROUP = "ringfaust"
COMPILED = (
    "core/address.py",
    "core/admission.py",
    "core/checks/[!_]*.py",
    "core/engine.py",
    "core/model.py",
    "core/new.py",
    "core/policy/artemis.py",
    "core/policy/default.py",
    "core/queue.py",
    "core/scan.py",
    "core/settlement_history.py",
    "core/state.py",
    "core/table.py",
    "core/transitions/[!_]*.py",
    "core/work.py",
    "processor/outbox.py",
    "processor/processor.py",
    "protocol/crowded_records.py",
    "protocol/events.py",
    "protocol/outputs.py",
    "protocol/record_batches.py",
    "protocol/routes.py",
    "protocol/stored_rows/deliveries.py",
    "protocol/stored_rows/keys.py",
    "protocol/stored_rows/messages.py",
    "protocol/stored_rows/queue_rows.py",
    "protocol/stored_rows/writes.py",
)
"""What runs for each record, and has more than named tuples: mypyc leaves those as they are, but
loses the types of their fields. A base class of a compiled class must be compiled, too."""

_ALWAYS = ("-fPIC", "-fvisibility=hidden")
_SHARED = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
_WRAPS = ("-fwrapv", "-fno-strict-overflow")
FLAGS = {
    "optimized": ("-O2", "-g0", "-DNDEBUG", *_WRAPS),
    "debug": ("-O0", "-g3", *_WRAPS),
    "sanitized": (
        "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
        "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-cast-function-type",
        "-Wno-missing-field-initializers",
    ),
}  # fmt: skip
"""How the C compiler is called, by the kind of build. `sanitized` is `_native` alone, for its
tests; a program that loads it must have loaded the library of AddressSanitizer before."""

NEEDED = ("mypy==2.4.1", "setuptools==84.2.1", "lark==1.3.1", "pydantic==2.14.3")
"""To compile, as constraints.txt pins them: what mypyc makes of the engine is what was tested. lark
and pydantic are there for their types."""
PURE = "ringfaust runs as pure Python, which is slower"
_MOST_COMPILERS = 8
"""At once. Each takes some hundred MB."""


class Uncompilable(Exception):
    """The C compiler or mypyc refuses; the message is theirs."""


class NoCompiler(Uncompilable):
    """There is no C compiler that works, no header of Python, or no mypyc."""


def sources() -> list[str]:
    """The modules to compile, as paths in the checkout."""
    package = ROOT / "ringfaust"
    found = [path for pattern in COMPILED for path in package.glob(pattern)]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def compiler() -> list[str]:
    """The C compiler: `CC`, or else the one that built Python, or else what is there.

    Raises:
        NoCompiler: none of them finds the header of Python and the C library's.
    """
    given = os.environ.get("CC", "").strip()
    known = (sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    refused = []
    for each in (given,) if given else dict.fromkeys(filter(None, known)):
        command = shlex.split(each)
        if (refusal := _refusal(command)) is None:
            return command
        refused.append(f"{each}: {refusal}")
    raise NoCompiler(f"no C compiler works ({'; '.join(refused)})")


def _refusal(command: list[str]) -> str | None:
    """Why a C compiler cannot compile for this Python; None: it can."""
    if shutil.which(command[0]) is None:
        return "not found"
    done = subprocess.run(
        [*command, f"-I{sysconfig.get_path('include')}", "-fsyntax-only", "-x", "c", "-"],
        input="#include <Python.h>\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    return None if done.returncode == 0 else _first_error(done.stderr) or "fails"


def _first_error(text: str) -> str:
    """The line that says most, of what a compiler prints."""
    lines = text.splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")


def build(kind: str, folder: Path) -> None:
    """Compile into a folder, in place of what is there.

    Args:
        kind: one of `FLAGS`.
        folder: it gets the compiled modules and the digest of their sources.

    Raises:
        Uncompilable: mypyc or the C compiler reports errors, or there is no C compiler.
    """
    from ringfaust.compiled import STAMP, digest  # noqa: PLC0415

    command = [*compiler(), *_ALWAYS, *FLAGS[kind]]
    before = digest()
    # Beside its place, so that it takes it as a whole: nobody sees, or keeps, a part of a build.
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as name:
        built = Path(name, "built")
        # First the module in C, which takes a second.
        _compile(command, [_native(Path(name))], Path(name, "o"), built)
        if kind != "sanitized":
            _compile(command, _translate(Path(name, "c")), Path(name, "o"), built)
        # Last, and of what was there when the build began.
        (built / STAMP).write_text(f"{before} {kind}")
        shutil.rmtree(folder, ignore_errors=True)
        built.rename(folder)


def _translate(folder: Path) -> list[tuple[str, list[str], list[str]]]:
    """Have mypyc write C files. Returns name, C files and compiler flags of each library."""
    try:
        from mypyc.build import mypycify  # noqa: PLC0415
    except ImportError as error:  # pip installs it, unless with --no-build-isolation
        raise NoCompiler(f"mypyc cannot be imported: {error}") from None
    output = io.StringIO()
    try:
        with (
            contextlib.chdir(ROOT),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            extensions = mypycify(
                [f"--cache-dir={os.devnull}", *sources()],
                opt_level="2",
                debug_level="0",
                multi_file=True,
                group_name=GROUP,
                target_dir=str(folder),
            )
    except SystemExit as error:
        raise Uncompilable(output.getvalue() or str(error)) from None
    if "warning" in output.getvalue():  # what it warns of, it compiles to something else
        raise Uncompilable(output.getvalue())
    return [
        (it.name, it.sources, [*it.extra_compile_args, *(f"-I{i}" for i in it.include_dirs)])
        for it in extensions
    ]


def _native(folder: Path) -> tuple[str, list[str], list[str]]:
    """Write `layouts.h` into a folder. Returns the same of the module that is written in C."""
    from ringfaust.native import layouts  # noqa: PLC0415

    (folder / "layouts.h").write_text(layouts.header())
    sources = sorted(map(str, (ROOT / "ringfaust" / "native").glob("*.c")))
    return "ringfaust._native", sources, [f"-I{folder}"]


def _compile(
    command: list[str],
    modules: list[tuple[str, list[str], list[str]]],
    objects: Path,
    built: Path,
) -> None:
    """Compile and link the libraries, on several cores."""
    objects.mkdir(exist_ok=True)
    include = f"-I{sysconfig.get_path('include')}"

    def run(arguments: list[str]) -> None:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Uncompilable(done.stderr or f"{arguments[0]} fails")

    def compile_one(source: str, folders: list[str]) -> str:
        target = str(objects / f"{source.replace(os.sep, '_')}.o")
        run([*command, include, *folders, "-c", source, "-o", target])
        return target

    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_COMPILERS)) as pool:
        for name, files, more in modules:
            parts = list(pool.map(lambda each, more=more: compile_one(each, more), files))
            library = built.joinpath(*name.removeprefix("ringfaust.").split("."))
            library.parent.mkdir(parents=True, exist_ok=True)
            run([*command, *_SHARED, *parts, "-o", f"{library}{SUFFIX}"])


class CompiledWheel(BuildHookInterface):  # type: ignore[misc]
    """Puts the compiled modules into the wheel, which is for one platform then."""

    def dependencies(self) -> list[str]:
        """Called by hatch before it builds a wheel: what pip installs for the build."""
        try:
            compiler()
        except NoCompiler:
            return []
        return [*NEEDED]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatch before it builds a wheel."""
        self._built = tempfile.TemporaryDirectory(prefix="ringfaust-wheel-")
        if version == "editable":  # `make setup` compiles into the checkout
            return
        os.environ["RINGFAUST_PURE"] = "1"
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(ROOT))
        from ringfaust.compiled import FOLDER, OPTIMIZED, build_kind  # noqa: PLC0415

        folder = FOLDER
        if build_kind() != OPTIMIZED:
            folder = Path(self._built.name, "_compiled")
            try:
                build(OPTIMIZED, folder)
            except Uncompilable as error:
                self.app.display_warning(f"{PURE}: {_first_error(str(error))}")
                return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(folder)] = "ringfaust/_compiled"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatch after it has built a wheel."""
        self._built.cleanup()


def main() -> None:
    """Compile the checkout if there is a C compiler and the sources have changed."""
    os.environ["RINGFAUST_PURE"] = "1"  # what is to be replaced may not even load
    from ringfaust import compiled  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kind", nargs="?", choices=FLAGS, default="optimized")
    kind = parser.parse_args().kind
    if compiled.build_kind() == kind:
        return
    try:
        build(kind, compiled.FOLDER)
    except NoCompiler as error:
        print(f"{PURE}: {error}")
    except Uncompilable as error:
        sys.exit(f"ringfaust cannot be compiled:\n{error}")


if __name__ == "__main__":
    main()
