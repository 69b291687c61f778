"""What all workers of an application must agree on, as a short fingerprint (R113)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ringfaust.config.queues import QueuesConfig
from ringfaust.config.worker import WorkerConfig

_DIGITS = 12


def fingerprint(worker: WorkerConfig, queues: QueuesConfig) -> str:
    """Return a short text that is equal if two workers treat every record in the same way (R113).

    It covers `partitions`, `clock`, `cloud_events`, and everything in `queues.yaml`. The order of
    entries and how a route's need of the hop is written do not matter.
    """
    routes = [
        [route.topic, route.queue, route.needs_hop(worker.partitions)] for route in queues.routes
    ]
    agreed: dict[str, Any] = {
        **queues.document(),
        "partitions": worker.partitions,
        "clock": worker.clock,
        "routes": sorted(routes),
    }
    if worker.cloud_events:
        agreed["cloud_events"] = True
    text = json.dumps(agreed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
