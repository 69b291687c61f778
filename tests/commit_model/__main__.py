"""Run the model of the commit: as it is, and with the fault of KAFKA-17754 (R117).

Quint comes from npm, in the versions of docs/model/package-lock.json, and is kept in the cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ringfaust.errors import RingfaustError
from ringfaust.java.jars import cache_root

HERE = Path(__file__).parents[2] / "docs" / "model"
INVARIANTS = ("noOutputTwice", "noneLost", "noneTooEarly", "storeNotAhead")
WITNESS = "everything"
SEED = "7"
"""With this one the fault is found within 30 s."""
RUNS = {"fixed": 400, "faulty": 2_000}
STEPS = 35
_INSTALL_S, _RUN_S = 110, 100


class NoQuint(RingfaustError):
    """Quint cannot be installed or does not run. The text says why."""


def main() -> int:
    """Exit status 0 if the model holds, and fails with the fault."""
    try:
        quint = install()
        return 0 if all([check_fixed(quint), check_faulty(quint)]) else 1
    except NoQuint as error:
        print(error, file=sys.stderr)
        return 2


def install() -> Path:
    """Install Quint into the cache, once. Returns its program.

    Raises:
        NoQuint: npm is missing, or failed.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NoQuint("make model needs npm and Node.js 18 or later (Debian: apt-get install npm)")
    lock = (HERE / "package-lock.json").read_bytes()
    folder = cache_root() / f"quint-{hashlib.sha256(lock).hexdigest()[:8]}"
    quint = folder / "node_modules" / ".bin" / "quint"
    done = folder / ".installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        print("installing Quint (once)", flush=True)
        _run(command, folder, _INSTALL_S)
        done.touch()
    return quint


def check_fixed(quint: Path) -> bool:
    """Whether nothing goes wrong, and the runs get far enough to mean something."""
    said = simulate(quint, "fixed")
    reached = int((re.search(rf"{WITNESS} was witnessed in (\d+)", said) or ["", "0"])[1])
    holds = "No violation found" in said and reached > 0
    runs = RUNS["fixed"]
    print(f"as it is: {runs:,} random runs of up to {STEPS} steps; {reached:,} read all inputs")
    print(f"  {'; '.join(INVARIANTS)}: {'hold' if holds else 'BROKEN'}")
    if not holds:
        print(said)
    return holds


def check_faulty(quint: Path) -> bool:
    """Whether the fault is found."""
    said = simulate(quint, "faulty")
    broken = re.findall(r"❌ (\w+)", said)
    if not broken:
        print(f"with the fault: NOT FOUND in {RUNS['faulty']:,} random runs\n{said}")
        return False
    print("with the fault (a commit is sent again with the same epoch): found")
    print(f"  broken: {'; '.join(broken)}. One such run ends like this:")
    states = said.split("[State ")[1:]
    for state in states[-3:]:
        print("  [State " + state.split("[violation]")[0].strip().replace("\n", "\n  "))
    return True


def simulate(quint: Path, module: str) -> str:
    """What Quint prints about a module of the model."""
    verbosity = "2" if module == "faulty" else "1"
    command = [
        str(quint), "run", str(HERE / "commit.qnt"), "--backend=typescript", f"--main={module}",
        f"--seed={SEED}", f"--max-samples={RUNS[module]}", f"--max-steps={STEPS}",
        f"--verbosity={verbosity}", "--invariants", *INVARIANTS, "--witnesses", WITNESS,
    ]  # fmt: skip
    return _run(command, HERE, _RUN_S, may_fail=True)


def _run(command: list[str], folder: Path, seconds: float, *, may_fail: bool = False) -> str:
    environment = {**os.environ, "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoQuint(f"{Path(command[0]).name} does not end or does not run: {error}") from error
    if done.returncode and not may_fail:
        raise NoQuint(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
