"""A share group of Kafka 4.2: a broker of its own, and the consumer of Kafka's performance tool.

The tool accepts each record implicitly with the next poll. A share group has no ring and evicts
nothing, so it only carries the cycle.
"""

from __future__ import annotations

import statistics
from types import TracebackType
from typing import Self

from bench.kafka import Kafka
from bench.model import WARM_UPS, Figures, Load
from bench.processes import Process
from ringfaust.java import KafkaVersion
from ringfaust.java.jars import Bundle, fetch, kafka
from ringfaust.java.runtime import find_java

BROKER = kafka(KafkaVersion.V4_2)
TOOLS = Bundle(
    "kafka-tools-4.2.1",
    "kafka-tools.lock",
    "the tools of Apache Kafka 4.2.1",
    "1 MB",
    "leave the share group out",
    package="bench",
)
TIMEOUT_MS = 60_000
"""The tool ends when no record has arrived for this long."""


class ShareGroup:
    """Its consumer and a producer run at once."""

    name = "share group"

    def __init__(self) -> None:
        self._kafka = Kafka(BROKER)
        self._is_warm = False

    def __enter__(self) -> Self:
        self._kafka.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_warm = False
        self._kafka.__exit__(kind, error, trace)

    def carries(self, load: Load) -> bool:
        """Messages that are only acked."""
        return load.workload == "cycle" and not load.ringfaust_only

    def run(self, load: Load) -> Figures:
        """Consume a new topic while it is filled. Before the first run the broker is warmed up."""
        if not self._is_warm:
            self._is_warm = True
            for warm_up in WARM_UPS:
                if warm_up.kind == "cycle":
                    self._consume(warm_up)
        return self._consume(load)

    def _consume(self, load: Load) -> Figures:
        name = self._kafka.new_name("share")
        self._kafka.create(name)
        earliest = ["--add-config", "share.auto.offset.reset=earliest"]
        entity = ["--alter", "--entity-type", "groups", "--entity-name", name]
        with self._tool("kafka.admin.ConfigCommand", name, *entity, *earliest) as command:
            command.wait()
        consume = ["--topic", name, "--group", name, "--num-records", str(load.messages)]
        consume += ["--timeout", str(TIMEOUT_MS), "--show-detailed-stats"]
        consume += ["--reporting-interval", "250"]
        tool = "org.apache.kafka.tools.ShareConsumerPerformance"
        with (
            self._tool(tool, name, *consume) as consumer,
            self._kafka.producer(load, name) as producer,
        ):
            producer.wait()
            consumer.wait()
        self._kafka.drop(name)
        return {"per_second": _per_second(consumer.tail())}

    def _tool(self, tool: str, log: str, *arguments: str) -> Process:
        classpath = f"{fetch(TOOLS)}/*:{fetch(BROKER)}/*"
        command = [find_java().path, "-Xmx512m", "-cp", classpath, tool]
        servers = ["--bootstrap-server", self._kafka.servers]
        return Process([*command, *servers, *arguments], self._kafka.folder / f"{log}.log")


def _per_second(log: str) -> float:
    """The median of the intervals that the tool has reported, without the first: it connects."""
    intervals = [line.split(", ") for line in log.splitlines() if "for share consumer" in line]
    return statistics.median(float(fields[4]) for fields in intervals[1:])
