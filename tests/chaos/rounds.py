"""One round: an application under load, disasters, and the verdict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.disasters import SESSION_MS, Disaster, Harness
from tests.chaos.harness import Application
from tests.chaos.load import LONGEST_MS, QUEUES, TOPIC, Load
from tests.chaos.verdict import (
    judge_stores,
    judge_topics,
    wait_until_alone,
    wait_until_clocks_agree,
    wait_until_read,
)

READ_S = 150.0
COPIED_PARTITIONS = 3
"""Of the topic that is repartitioned: not as many as the application has."""
Say = Callable[[str], None]


def new_application(
    folder: Path,
    servers: str,
    topic: str,
    partitions: int = 2,
    more: Sequence[Mapping[str, str]] = (),
) -> Application:
    """Create an application and its topics. `more`: routes beside that of the topic."""
    ring = QUEUES["queues"]["ring.*"]
    names = ["ring.*", "copied.*"] if more else ["ring.*"]
    queues = {
        "routes": [{"topic": topic, "queue": "ring.{key}"}, *more],
        "queues": {name: {**ring} for name in names},
    }
    app = Application(
        folder, servers, queues, partitions=partitions,
        session_timeout_ms=SESSION_MS, batch_records=500, cache_bytes=4 << 20,
    )  # fmt: skip
    app.create_topics()
    return app


async def run_round(
    folder: Path,
    cluster: Cluster,
    disasters: Sequence[Disaster],
    *,
    workers: int,
    seed: int,
    rate: int = 1_000,
    say: Say = print,
) -> list[str]:
    """Run a round. Returns the faults found at its end."""
    topic = f"{TOPIC}-{folder.name}"
    copied, late = f"{topic}-copied", f"{topic}-late"
    more = [
        {"topic": copied, "queue": "copied.{key}", "hop": "always"},
        {"topic": late, "queue": "ring.{key}"},  # the last one: `apply` removes it at times
    ]
    await cluster.create_topic(copied, COPIED_PARTITIONS)
    app = new_application(folder, cluster.bootstrap_servers, topic, 4, more)
    load = Load(app, topic, seed, rate, copied=copied, late=late)
    harness = Harness(app, cluster, load, random.Random(seed))
    for _ in range(workers):
        harness.add_worker()
    supervisor = asyncio.ensure_future(harness.supervise())
    try:
        await load.start()
        for disaster in disasters:
            await harness.moment()
            say(f"  {load.produced:7,} sent, {load.settled:6,} settled: {disaster.__doc__}")
            await disaster(harness)
        await harness.moment()
        if harness.has_removed_route:  # what was sent meanwhile is read now
            await harness.apply(removes_route=False)
        await load.stop()
        say(f"  {load.produced:7,} sent, {load.settled:6,} settled: waiting until all is read")
        await wait_until_read(app, READ_S)
        await wait_until_alone(app)
        await wait_until_clocks_agree(app)
        await asyncio.sleep(LONGEST_MS / 1000 + 0.5)  # every delay and time to live has passed
        faults = await judge_topics(app)
        supervisor.cancel()
        for worker in app.workers:
            faults += await app.stop(worker)
        return faults + await judge_stores(app, harness.damaged)
    finally:
        supervisor.cancel()
        for text in harness.ended:
            say(f"  {text}")
        for link in cluster.links:
            link.heal()
        app.end()
