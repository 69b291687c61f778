"""`ringfaust` whose worker publishes no status and counts nothing, for `bench.observed`.

There is no setting for this: a worker that cannot be seen helps nobody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringfaust.cli.main import main
from ringfaust.worker import app
from ringfaust.worker.observe.health import Health


async def _beside(*arguments: Any, **_: Any) -> None:
    """Log the worker's health, and run nothing else."""
    (health,) = (each for each in arguments if isinstance(each, Health))
    await health.watch()


def blind() -> None:
    """Replace what runs beside the partitions, and their meters."""
    context_of = app._context

    def context(*arguments: Any, **more: Any) -> Any:
        return replace(context_of(*arguments, **more), is_metered=False)

    app._context = context
    app._beside = _beside


if __name__ == "__main__":
    blind()
    main()
