"""`ringfaust queue move`: move the oldest ready messages of a queue to another one."""

from __future__ import annotations

import asyncio
from itertools import islice

from rich.console import Console
from rich.progress import track

from ringfaust.cli.operate import Target
from ringfaust.client import Admin, Refused

_AT_ONCE = 100


def run(target: Target, queue: str, to: str, most: int) -> int:
    """Move up to `most` ready messages; return how many were moved.

    A message that left the queue meanwhile is skipped.

    Raises:
        Refused: the queue does not exist, or `to` is not in its partition.
    """
    return asyncio.run(_move(target, queue, to, most))


async def _move(target: Target, queue: str, to: str, most: int) -> int:
    async with Admin(**target.options()) as admin:
        ids: list[str] = []
        async for message in admin.browse(queue, body_bytes=0):
            if len(ids) == most:
                break
            ids.append(message.id)
        moved = 0
        console = Console(stderr=True)
        with_progress = track(
            range(0, len(ids), _AT_ONCE), "moving", console=console, transient=True
        )
        for start in with_progress if console.is_terminal else range(0, len(ids), _AT_ONCE):
            batch = islice(ids, start, start + _AT_ONCE)
            results = await asyncio.gather(
                *(admin.move(queue, each, to) for each in batch), return_exceptions=True
            )
            for result in results:
                has_left = isinstance(result, Refused) and result.reason == "bad_command"
                if isinstance(result, BaseException) and not has_left:
                    raise result
                moved += result is None
        return moved
