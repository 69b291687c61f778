"""`python -m ringfaust.app shop:app` runs an app in this process, as `ringfaust run` does.

Environments with `ringfaust-client` alone have this program and not the other.
"""

from __future__ import annotations

import sys

from aiokafka.errors import KafkaError

from ringfaust.app.runner import SUPERVISED, run
from ringfaust.errors import RingfaustError
from ringfaust.visible import visible

_FAILED = 2


def main() -> None:
    """Run the app that the command line names."""
    targets = [each for each in sys.argv[1:] if each != SUPERVISED]
    if len(targets) != 1:
        sys.exit("usage: python -m ringfaust.app MODULE:ATTRIBUTE")
    try:
        run(targets[0], is_supervised=SUPERVISED in sys.argv)
    except (RingfaustError, KafkaError) as error:
        print(f"ringfaust: {visible(str(error), keeps_lines=True)}", file=sys.stderr)
        sys.exit(_FAILED)


if __name__ == "__main__":
    main()
