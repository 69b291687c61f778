"""A queue as one would write it in Faust: a table with the list of messages, an agent, a topic."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterable
from typing import Any

import faust


def queue_app(options: dict[str, Any]) -> faust.App:
    """An app that keeps the newest messages of a topic and sends on those that it drops."""
    app = faust.App(
        options["application"],
        broker=f"kafka://{options['servers']}",
        store="memory://",
        datadir=options["data_dir"],
        topic_partitions=1,
        web_enabled=False,
    )
    source = app.topic(options["topic"], value_serializer="raw")
    evicted = app.topic(options["target"], value_serializer="raw")
    queues = app.Table("queues", default=list, partitions=1)

    @app.agent(source)
    async def keep_newest(bodies: AsyncIterable[bytes]) -> None:
        async for body in bodies:
            ring = queues["orders"]
            # Tables store JSON.
            ring.append(base64.b64encode(body).decode())
            if len(ring) > options["ring"]:
                await evicted.send(value=base64.b64decode(ring.pop(0)))
            queues["orders"] = ring

    return app


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    worker = faust.Worker(queue_app(arguments), loglevel="WARN")
    worker.execute_from_commandline()
