"""What an installation takes: packages, disk and time of each distribution and extra.

    python -m bench.install

Each goes into an empty environment, with the pins of constraints.txt and without pip's cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("client", "client[otel]", "spark", "", "[otel]", "[top]", "[console]", "[spark]")
"""The small distributions, the client with an extra, ringfaust, and ringfaust with each extra."""


def built(folder: Path, project: Path) -> Path:
    """Build the wheel of a project and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def measure(wheel: Path, extra: str, folder: Path) -> tuple[int, float, float]:
    """Install a wheel. Returns packages, MB on disk and seconds, without pip itself."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    before = _bytes(folder)
    start = time.monotonic()
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile",
         "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), f"{wheel}{extra}"],
        check=True,
    )  # fmt: skip
    seconds = time.monotonic() - start
    (site,) = folder.glob("lib/python3*/site-packages")
    packages = [
        each
        for each in site.glob("*.dist-info")
        if not each.name.startswith(("pip-", "setuptools-"))
    ]
    return len(packages), (_bytes(folder) - before) / 1e6, seconds


def _bytes(folder: Path) -> int:
    return sum(each.lstat().st_size for each in folder.rglob("*") if not each.is_symlink())


def main() -> None:
    """Measure all of them, and print a table."""
    print("| install | packages | disk | time |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        wheels = {
            "client": built(Path(name, "client"), ROOT / "packages" / "client"),
            "spark": built(Path(name, "spark"), ROOT / "packages" / "spark"),
            "": built(Path(name, "worker"), ROOT),
        }
        for number, kind in enumerate(KINDS):
            small, _, extra = kind.partition("[")
            wheel = wheels[small]
            extra = f"[{extra}" if extra else ""
            packages, size, seconds = measure(wheel, extra, Path(name, f"venv-{number}"))
            named = f"ringfaust-{small}{extra}" if small else f"ringfaust{extra}"
            print(f"| `{named}` | {packages} | {size:,.0f} MB | {seconds:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
