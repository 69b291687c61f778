"""Puts a mutant into a copy of the package, and lets the hunters at it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ringfaust.errors import RingfaustError
from tests.mutants.mutants import LIKELIEST, Mutant
from tests.mutants.trial import FIRST, HUNTERS

ROOT = Path(__file__).parents[2]
_COPIED = ("ringfaust", "tests")
_PATIENCE_S = 900


class NoTrial(RingfaustError):
    """The hunters could not be run at all."""


def hunt(
    mutant: Mutant | None, hunters: Sequence[str] = tuple(HUNTERS), *, first: bool = False
) -> dict[str, str]:
    """What each hunter found, by its name; empty where it found nothing.

    Args:
        mutant: None for the source as it is.
        hunters: which of `trial.HUNTERS`.
        first: stop at the first that finds something.

    Raises:
        Stale: the mutant's snippet is not in the source.
        NoTrial: the copy does not even run.
    """
    with tempfile.TemporaryDirectory(prefix="ringfaust-mutant-") as folder:
        for part in _COPIED:
            shutil.copytree(ROOT / part, Path(folder, part))
        if mutant is not None:
            mutant.apply(Path(folder, "ringfaust"))
        command = [sys.executable, "-m", "tests.mutants.trial", *hunters]
        if first:
            command.append(FIRST)
            if mutant is not None and mutant.name in LIKELIEST:
                command.append(f"tests/{LIKELIEST[mutant.name]}")
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": folder},
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
            )
            said, died = done.stdout, done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired as late:
            said, died = (late.stdout or b"").decode(), "does not end"
    found = dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
    if first and any(found.values()):
        return found
    missing = [name for name in hunters if name not in found]
    if missing and died != "does not end":
        raise NoTrial(f"the trial died: {died.strip()[-500:]}")
    return {**found, **dict.fromkeys(missing[:1], died), **dict.fromkeys(missing[1:], "")}
