"""`make lint-deploy`: check the deployment files with the linters that are installed."""

from __future__ import annotations

import sys

from tests.deploy.linters import LINTERS, Missing


def main() -> int:
    """Run all linters. Returns 1 if one has found something."""
    failed = False
    for name, lint in LINTERS.items():
        try:
            problems = lint()
        except Missing as missing:
            print(f"skipped  {name}: {missing}")
            continue
        failed |= bool(problems)
        print(f"{'failed ' if problems else 'ok     '}  {name}")
        if problems:
            print(problems, file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
