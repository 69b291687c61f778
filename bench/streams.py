"""A Kafka Streams application under the same changes as ringfaust's workers.

It does what Kafka Streams can do of a ring: it keeps the last record of each key, in RocksDB and a
changelog, and passes all of them on, in transactions, with a standby.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.brokers import Brokers
from bench.processes import ROOT
from bench.workers import PARTITIONS, Send, Workers
from ringfaust.java.jars import KAFKA, Bundle, fetch
from ringfaust.java.runtime import find_java

STREAMS = Bundle(
    "kafka-streams-4.1.1",
    "kafka-streams.lock",
    "Kafka Streams 4.1.1",
    "73 MB",
    "leave Kafka Streams out",
    package="bench",
)
SOURCE = ROOT / "bench/programs/Streams.java"
_STANDBYS = re.compile(r"standbys: (.*)")


class StreamsWorkers(Workers):
    """See `bench/programs/Streams.java`. It is compiled once, so a JDK is needed."""

    def __init__(self, folder: Path, brokers: Brokers) -> None:
        super().__init__(folder, brokers)
        jars = f"{fetch(KAFKA)}/*:{fetch(STREAMS)}/*"
        java = Path(find_java().path)
        javac: list[str | Path] = [java.with_name("javac"), "-d", folder, "-cp", jars, SOURCE]
        subprocess.run(javac, check=True)
        self._java: list[str | Path] = [java, "-cp", f"{folder}:{jars}", SOURCE.stem]

    async def create_topics(self) -> None:
        copies = len(self.servers.split(","))
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        try:
            topics = [NewTopic(name, PARTITIONS, copies) for name in ("in", "out")]
            await admin.create_topics(topics)
        finally:
            await admin.close()

    def command(self, number: int) -> list[str | Path]:
        data = self.folder / f"data-{number}"
        return [*self._java, self.servers, "streams", data, "in", "out"]

    @asynccontextmanager
    async def standbys(self) -> AsyncIterator[Callable[[], set[int]]]:
        def followed() -> set[int]:
            found = [_STANDBYS.findall(self.log(number))[-1:] for number in self.running]
            names = [name for last in found for each in last for name in each.split("; ") if name]
            return {int(name.removeprefix("standby ")) for name in names}

        yield followed

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Send]:
        async with AIOKafkaProducer(bootstrap_servers=self.servers) as producer:
            yield lambda key: producer.send_and_wait("in", b"x", key.encode())

    async def received(self, number: int, key: str) -> AsyncIterator[object]:
        async with AIOKafkaConsumer(
            bootstrap_servers=self.servers, isolation_level="read_committed"
        ) as consumer:
            consumer.assign([TopicPartition("out", number)])
            async for record in consumer:
                yield record
