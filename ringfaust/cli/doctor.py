"""`ringfaust doctor`: is everything as it should be? Prints what it finds."""

from __future__ import annotations

import asyncio

from ringfaust.cli.finding import Finding
from ringfaust.cli.findings import examine
from ringfaust.cli.operate import Target, print_json


def run(target: Target, *, as_json: bool) -> int:
    """Print what every check finds. Returns 1 if one has failed.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    worker, queues = target.load()

    async def collect() -> list[Finding]:
        found = []
        async for finding in examine(worker, queues):
            found.append(finding)
            if not as_json:
                _print(finding)
        return found

    found = asyncio.run(collect())
    if as_json:
        print_json(found)
    else:
        fails, warns = (sum(each.level == level for each in found) for level in ("fail", "warn"))
        print(f"{len(found)} checks: {fails} failed, {warns} to look at")
    return 1 if any(each.level == "fail" for each in found) else 0


def _print(finding: Finding) -> None:
    print(f"{finding.level.ljust(4)}  {finding.check.ljust(12)}  {finding.text}", flush=True)
    if finding.remedy and finding.level != "ok":
        print(f"      {'':12}  -> {finding.remedy}", flush=True)
