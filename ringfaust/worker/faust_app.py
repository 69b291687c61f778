"""For Faust's own command line: `faust -A ringfaust.worker.faust_app worker`.

The environment variable RINGFAUST_CONFIG names the directory that contains queues.yaml and
worker.yaml.
"""

import asyncio
import os
from pathlib import Path

from ringfaust.config import load
from ringfaust.config.applied import configuration_in_use
from ringfaust.worker.app import create_app

_folder = os.environ.get("RINGFAUST_CONFIG")
_worker, _file = load(Path(_folder) if _folder else None)
_used = asyncio.run(configuration_in_use(_worker, _file))
app = create_app(_worker, _used.queues, first=_used.first)
