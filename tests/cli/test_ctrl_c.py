"""Ctrl-C before a command has begun."""

import signal
import subprocess
import sys

EARLY = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "ringfaust.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
import ringfaust.__main__
"""


def test_ctrl_c_while_the_modules_load_prints_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


FIRST = """
import os, signal
os.getpid = lambda: 1
import ringfaust.__main__
signal.raise_signal(signal.SIGTERM)
"""


def test_the_first_process_of_a_container_obeys_sigterm_before_a_command_handles_it() -> None:
    """The system ignores it there, unless there is a handler."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")
