"""`ringfaust queue watch`: queues with their rates, again and again."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ringfaust.cli.operate import Target, with_admin
from ringfaust.client import Admin
from ringfaust.client.inspected import QueueSummary
from ringfaust.core.model import HELD_STATES
from ringfaust.terminal import Terminal

_SHOWN_QUEUES = 40
_RATES = ("added", "acked", "evicted")

Look = dict[tuple[str, int], QueueSummary]
"""By queue and partition: while several partitions have a queue, each has a row (R113)."""


def run(target: Target, pattern: str, every_s: float, times: int) -> None:
    """Show the queues every `every_s` seconds: `times` times, or until Ctrl-C if it is 0."""
    with suppress(KeyboardInterrupt):
        with_admin(target, lambda admin: _watch(admin, pattern, every_s, times))


async def _watch(admin: Admin, pattern: str, every_s: float, times: int) -> None:
    before: Look = {}
    before_s = time.monotonic()
    looks = 0
    with Live(console=Terminal(highlight=False), auto_refresh=False) as live:
        while True:
            now_s = time.monotonic()
            found = {(each.queue, each.partition): each for each in await admin.queues(pattern)}
            live.update(_table(found, before, now_s - before_s), refresh=True)
            before, before_s = found, now_s
            looks += 1
            if looks == times:
                return
            await asyncio.sleep(every_s)


def _table(found: Look, before: Look, passed_s: float) -> Table:
    titles = ("queue", *HELD_STATES, *(f"{name}/s" for name in _RATES))
    table = Table(*titles, box=None, caption=_caption(found), caption_justify="left")
    busiest = sorted(found.values(), key=lambda each: (-each.counts["messages"], each.queue))[
        :_SHOWN_QUEUES
    ]
    for each in busiest:
        known = before.get((each.queue, each.partition))
        rates = (
            f"{(each.counts[name] - known.counts[name]) / passed_s:,.0f}" if known else "-"
            for name in _RATES
        )
        held = (f"{each.counts[name]:,}" for name in HELD_STATES)
        table.add_row(escape(each.queue), *held, *rates)
    return table


def _caption(found: Look) -> str:
    hidden = len(found) - _SHOWN_QUEUES
    return f"… and {hidden:,} more with fewer messages" if hidden > 0 else ""
