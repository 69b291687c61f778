"""The scenario files that `make test` runs on Spark; `make test-all` runs all of them."""

from __future__ import annotations

from pathlib import Path

FILES = {path.stem: path for path in Path(__file__).parents[1].glob("scenarios/*.yaml")}
CHOSEN = """
    ack-modes active-and-backup anycast-address apply compat-past-due consumer-priorities
    dead-reasons dedup-window displace
    durable-subscription groups limits-block-bytes local-transaction managed-window operator
    prepared-transaction raise-level retroactive ring-rollback ring-shrink-eager scheduled-admin
    selectors settled-by-name unheard-time
""".split()
"""Short files, with at most one crash each, that use every kind of step and meet every reason. A
worker plays them, and a job then processes the same topics."""
PLAYED = "active-and-backup durable-subscription local-transaction prepared-transaction".split()
"""Files that are played on a job. Each step takes a micro-batch for all files that are played side
by side, so the longest file decides how long they take. One has a crash."""
