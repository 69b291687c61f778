"""The scenario files that `make test` plays on Spark; `make test-all` plays all of them."""

from __future__ import annotations

from pathlib import Path

FILES = {path.stem: path for path in Path(__file__).parents[1].glob("scenarios/*.yaml")}
CHOSEN = """
    ack-modes active-and-backup anycast-address compat-past-due dead-reasons dedup-window displace
    durable-subscription groups limits-block-bytes local-transaction managed-window operator
    prepared-transaction retroactive ring-rollback ring-shrink-eager scheduled-admin selectors
    settled-by-name unheard-time
""".split()
"""Short files, with at most one crash each, that use every kind of step and meet every
reason. Each step takes one micro-batch for all files that are played side by side, so the longest
file decides how long they take."""
