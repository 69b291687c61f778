"""For Faust's own command line: `faust -A ringfaust.worker.faust_app worker`.

The environment variable RINGFAUST_CONFIG names the directory that contains queues.yaml and
worker.yaml. What was applied takes the place of that queues.yaml (R128).
"""

import asyncio
import os
from functools import cache
from pathlib import Path

from aiokafka.errors import KafkaError

from ringfaust.config import load
from ringfaust.config.applied import configuration_in_use
from ringfaust.errors import RingfaustError
from ringfaust.worker.app import create_app
from ringfaust.worker.faust.transport import BatchApp


def __getattr__(name: str) -> BatchApp:
    """Make `app` when Faust asks for it: that reads files and topics, which an import does not."""
    if name != "app":
        raise AttributeError(name)
    return _app()


@cache
def _app() -> BatchApp:
    folder = os.environ.get("RINGFAUST_CONFIG")
    try:
        worker, queues = load(Path(folder) if folder else None)
        return create_app(worker, asyncio.run(configuration_in_use(worker, queues)))
    except (RingfaustError, KafkaError, OSError) as error:
        raise SystemExit(f"ringfaust: {error}") from None
