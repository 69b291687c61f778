"""The program `ringfaust`; `python -m ringfaust` does the same."""

import os
import signal
import sys

_is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _is_default:  # otherwise Ctrl-C prints a traceback while the modules load
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if os.getpid() == 1:  # in a container, where the system ignores a signal without a handler
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

from ringfaust.cli.main import main  # noqa: E402

if _is_default:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    main(prog_name="ringfaust")
