"""Compile the engine, for a checkout (`make setup`) or a wheel.

mypyc turns the modules of `COMPILED` into C, and a C compiler makes libraries of it and of `IN_C`,
in `ringfaust/_compiled`. The Python files stay the source: see `ringfaust/compiled.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
GROUP = "ringfaust"
COMPILED = (
    "core/address.py",
    "core/engine.py",
    "core/handlers/consumers.py",
    "core/model.py",
    "core/new.py",
    "core/policy/artemis.py",
    "core/policy/default.py",
    "core/queue.py",
    "core/settlement_history.py",
    "core/state.py",
    "core/table.py",
    "core/transitions/[!_]*.py",
    "processor/eviction_counts.py",
    "processor/outbox.py",
    "processor/processor.py",
    "protocol/events.py",
    "protocol/outputs.py",
    "protocol/record_batches.py",
    "protocol/routes.py",
    "protocol/stored_rows/deliveries.py",
    "protocol/stored_rows/keys.py",
    "protocol/stored_rows/messages.py",
    "protocol/stored_rows/queue_rows.py",
    "protocol/stored_rows/writes.py",
    "protocol/undecodable.py",
)
"""What runs for each record, and has more than named tuples: mypyc leaves those as they are, but
loses the types of their fields. A base class of a compiled class must be compiled, too."""

IN_C = (
    "core/create.c",
    "protocol/decoder.c",
    "protocol/encoder.c",
    "protocol/stored_rows/row_encoder.c",
)
"""Modules with a twin in C. mypyc does not compile these."""


class Uncompilable(Exception):
    """The C compiler or mypyc refuses; the message is theirs."""


def sources() -> list[str]:
    """The modules to compile, as paths in the checkout."""
    package = ROOT / "ringfaust"
    found = [path for pattern in COMPILED for path in package.glob(pattern)]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def compiler() -> list[str] | None:
    """The C compiler that Python itself was built with, or `CC`; None if there is none."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return command if shutil.which(command[0]) and headers.exists() else None


def build() -> Path:
    """Compile everything into `ringfaust/_compiled`, and return that folder.

    Raises:
        Uncompilable: mypyc or the C compiler reports errors.
    """
    from ringfaust.compiled import FOLDER, STAMP, digest  # noqa: PLC0415

    before = digest()
    with tempfile.TemporaryDirectory(prefix="ringfaust-build-") as name:
        built = Path(name, "built")
        modules = [*_translate(Path(name, "c")), *_written_in_c()]
        _compile(modules, Path(name, "o"), built)
        (built / STAMP).write_text(before)  # last, and of what was there when the build began
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(built, FOLDER)
    return FOLDER


def _translate(folder: Path) -> list[tuple[str, list[str], list[str]]]:
    """Have mypyc write C files. Returns name, C files and compiler flags of each library."""
    from mypyc.build import mypycify  # noqa: PLC0415

    output = io.StringIO()
    try:
        with (
            contextlib.chdir(ROOT),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            extensions = mypycify(
                sources(),
                opt_level="2",
                debug_level="0",
                multi_file=True,
                group_name=GROUP,
                target_dir=str(folder),
            )
    except SystemExit:
        raise Uncompilable(output.getvalue()) from None
    if "warning" in output.getvalue():  # what it warns of, it compiles to something else
        raise Uncompilable(output.getvalue())
    return [
        (it.name, it.sources, [*it.extra_compile_args, *(f"-I{i}" for i in it.include_dirs)])
        for it in extensions
    ]


def _written_in_c() -> list[tuple[str, list[str], list[str]]]:
    """The same of the modules that are written in C."""
    package = ROOT / "ringfaust"
    return [
        (f"ringfaust.{path.removesuffix('.c').replace('/', '.')}", [str(package / path)], [])
        for path in IN_C
    ]


def _compile(modules: list[tuple[str, list[str], list[str]]], objects: Path, built: Path) -> None:
    """Compile and link the libraries, on all processors."""
    command = compiler()
    assert command is not None
    objects.mkdir()
    common = [*command, "-O2", "-g0", "-fPIC", "-fwrapv", "-DNDEBUG", "-fno-strict-overflow"]
    common.append(f"-I{sysconfig.get_path('include')}")

    def run(arguments: list[str]) -> None:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Uncompilable(done.stderr)

    def compile_one(source: str, flags: list[str]) -> str:
        target = str(objects / f"{source.replace(os.sep, '_')}.o")
        run([*common, *flags, "-c", source, "-o", target])
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, files, flags in modules:
            parts = list(pool.map(lambda each, flags=flags: compile_one(each, flags), files))
            library = built.joinpath(*name.removeprefix("ringfaust.").split("."))
            library.parent.mkdir(parents=True, exist_ok=True)
            run([*command, "-shared", *parts, "-o", f"{library}{SUFFIX}"])


class CompiledWheel(BuildHookInterface):  # type: ignore[misc]
    """Puts the compiled modules into the wheel, which is for one platform then."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatch before it builds a wheel."""
        sys.path.insert(0, str(ROOT))
        if version == "editable":  # `make setup` compiles into the checkout
            return
        build()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append("/ringfaust/_compiled/**")


def main() -> None:
    """Compile the checkout if there is a C compiler and the sources have changed."""
    from ringfaust import compiled  # noqa: PLC0415

    if compiled.is_current():
        return
    if compiler() is None:
        print("no C compiler or no Python.h: ringfaust runs as pure Python, which is slower")
        return
    try:
        build()
    except Uncompilable as error:
        sys.exit(f"mypyc cannot compile ringfaust:\n{error}")


if __name__ == "__main__":
    main()
