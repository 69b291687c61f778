"""`ringfaust queue move`: move the oldest ready messages of a queue to another one."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.progress import Progress

from ringfaust.cli.operate import Target
from ringfaust.client import Admin


def run(target: Target, queue: str, to: str, most: int) -> int:
    """Move up to `most` ready messages; return how many were moved.

    A message that left the queue meanwhile is skipped.

    Raises:
        Refused: the queue does not exist, or `to` is not in its partition.
    """
    return asyncio.run(_move(target, queue, to, most))


async def _move(target: Target, queue: str, to: str, most: int) -> int:
    moved = 0
    with Progress(console=Console(stderr=True), transient=True) as progress:
        moving = progress.add_task("moving", total=most)
        async with Admin(**target.options()) as admin:
            async for moved in admin.move_oldest(queue, to, most):
                progress.update(moving, completed=moved)
    return moved
