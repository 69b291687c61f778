"""Runs `ringfaust` commands as a user would type them; their log output goes to a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ringfaust.compiled import python
from ringfaust.demo.dashboard import Dashboard
from ringfaust.errors import RingfaustError
from ringfaust.java.runtime import without_second_collector
from ringfaust.testing.process import log_tail

_PLAIN_COLUMNS = 120
"""The width if the output is not a terminal; the audit's table is the widest."""
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options: these commands end before the optimizing compiler would pay off."""


class CommandFailed(RingfaustError):
    """A command of the demo failed. What to do: read the end of its log, below."""

    def __init__(self, command: str, status: int, log: Path) -> None:
        super().__init__(
            f"`{command}` failed with exit status {status}. The last lines of its log, {log}:\n"
            f"{log_tail(log)}"
        )


class CommandRunner:
    """Runs commands one after the other in one folder.

    Args:
        dashboard: shows the commands.
        folder: the folder in which they run, to which their paths are relative.
        log: file for their log output; overwritten.
    """

    def __init__(self, dashboard: Dashboard, folder: Path, log: Path) -> None:
        self.dashboard = dashboard
        self.folder = folder
        self.log = log
        log.write_bytes(b"")

    def show(self, *arguments: str) -> str:
        """Show a command without running it, and return it."""
        command = " ".join(("ringfaust", *arguments))
        self.dashboard.say(f"$ {command}")
        return command

    def run(self, *arguments: str, verdict: bool = False) -> subprocess.CompletedProcess[str]:
        """Show a command, run it, and wait for its end.

        Args:
            arguments: the command without the leading `ringfaust`.
            verdict: whether exit status 1 is a result rather than a failure.

        Raises:
            CommandFailed: it did not end well.
        """
        command = self.show(*arguments)
        console = self.dashboard.console
        java = " ".join(without_second_collector(_SHORT_LIVED))
        columns = console.width if console.is_terminal else _PLAIN_COLUMNS
        progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        with self.log.open("ab") as log, progress:
            progress.add_task(" ".join(arguments[:2]), total=None)
            log.write(f"$ {command}\n".encode())
            log.flush()
            done = subprocess.run(
                [*python(), "-m", "ringfaust", *arguments],
                cwd=self.folder,
                env={"JDK_JAVA_OPTIONS": java, **os.environ, "COLUMNS": str(columns)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                check=False,
            )
            log.write(done.stdout.encode())
        if done.returncode and not (verdict and done.returncode == 1):
            raise CommandFailed(command, done.returncode, self.log)
        return done
