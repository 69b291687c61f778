"""For Faust's own command line: `faust -A ringfaust.worker.faust_app worker`.

The environment variable RINGFAUST_CONFIG names the directory that contains queues.yaml and
worker.yaml. What was applied takes the place of that queues.yaml (R128).
"""

import asyncio
import os
from pathlib import Path

from aiokafka.errors import KafkaError

from ringfaust.config import load
from ringfaust.config.applied import configuration_in_use
from ringfaust.errors import RingfaustError
from ringfaust.worker.app import create_app

_folder = os.environ.get("RINGFAUST_CONFIG")
try:
    worker, queues = load(Path(_folder) if _folder else None)
    app = create_app(worker, asyncio.run(configuration_in_use(worker, queues)))
except (RingfaustError, KafkaError, OSError) as error:
    raise SystemExit(f"ringfaust: {error}") from None
