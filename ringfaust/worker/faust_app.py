"""For Faust's own command line: `faust -A ringfaust.worker.faust_app worker`.

The environment variable RINGFAUST_CONFIG names the directory that contains queues.yaml and
worker.yaml. It uses these files, also if another configuration was applied (R128).
"""

import os
from pathlib import Path

from ringfaust.config import load
from ringfaust.config.applied import InUse
from ringfaust.worker.app import create_app

_folder = os.environ.get("RINGFAUST_CONFIG")
worker, queues = load(Path(_folder) if _folder else None)
app = create_app(worker, InUse(queues, queues))
