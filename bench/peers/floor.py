"""The floor: what Kafka itself takes for a message's way through a transaction, and for an ack's.

It decides nothing and keeps nothing. Each figure is ringfaust's if nothing but Kafka took time: the
latency is that of one transaction, from its begin to a consumer. A window of `credit` messages
passes once in each round trip of an ack and the transaction that answers it.
"""

from __future__ import annotations

from pathlib import Path

from bench.model import Figures, Load
from bench.peers.on_kafka import OnKafka
from bench.processes import ROOT, Process, read_result
from ringfaust.java.jars import KAFKA, fetch
from ringfaust.java.runtime import find_java

ROUND_TRIPS = 2_000
PAUSE_MS = {"latency": 10, "window": 0}
"""By workload: how long it waits between two."""


class Floor(OnKafka):
    """See `bench/programs/Floor.java`. Java compiles it, so it needs a JDK."""

    name = "floor"

    def carries(self, load: Load) -> bool:
        """Messages that come one by one, and small windows."""
        return load.workload in PAUSE_MS

    def run(self, load: Load) -> Figures:
        """Time round trips on new topics."""
        kafka = self._kafka
        name = kafka.new_name("floor")
        topics = [f"{name}-{number}" for number in range(4)]
        for topic in topics:
            kafka.create(topic)
        result = kafka.folder / f"{name}.json"
        count = min(ROUND_TRIPS, load.messages)
        command: list[str | Path] = [
            find_java().path, "-cp", f"{fetch(KAFKA)}/*", ROOT / "bench/programs/Floor.java",
            kafka.servers, topics[0], ",".join(topics[1:]), f"{count}",
            f"{PAUSE_MS[load.workload]}", f"{load.body_bytes}", result,
        ]  # fmt: skip
        with Process(command, kafka.folder / f"{name}.log") as process:
            process.wait()
        kafka.drop(name)
        found = read_result(result)
        if load.workload == "window":
            return {"per_second": load.credit * 1_000 / found["trip_ms"]}
        return {"p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"]}
