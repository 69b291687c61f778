"""`make lint-deploy`: check the deployment files with the linters that are installed.

It installs helm itself, where Go is. Go's kubeconform would need the network for the schemas of
Kubernetes at each run; kubernetes-validate brings them.
"""

from __future__ import annotations

import sys

from tests.deploy.linters import LINTERS, Missing, install_helm


def main() -> int:
    """Run all linters. Returns 1 if one has found something."""
    failed = False
    try:
        install_helm()
    except Missing as missing:
        print(missing, file=sys.stderr)
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
