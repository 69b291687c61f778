"""An application of ringfaust on the shared broker: configuration, topics, workers, consumers."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from bench.kafka import COLORS, Kafka
from bench.model import Load
from bench.processes import Process, program, read_result, until
from ringfaust.config import load as load_config
from ringfaust.config.topics import create_topics


class Application:
    """One load's queues. All settings that the load does not name have their defaults."""

    def __init__(self, kafka: Kafka, load: Load, source: str) -> None:
        """Write the configuration and create the topics."""
        self._kafka = kafka
        self.source = source
        self.name = kafka.new_name("ring")
        self.folder = kafka.folder / self.name
        self.folder.mkdir()
        self._result = self.folder / "result.json"
        self._consumers = 0
        queue, pattern = ("orders.{key}", "orders.*") if load.rings > 1 else ("orders", "orders")
        self._write(
            "queues.yaml",
            routes=[{"topic": source, "queue": queue}],
            queues={pattern: {"ring_size": load.ring}},
        )
        self._write(
            "worker.yaml",
            application=self.name,
            partitions=load.workers,
            bootstrap_servers=kafka.servers,
        )
        worker, queues = load_config(self.folder)
        self.session_timeout_s = worker.session_timeout_ms / 1_000
        asyncio.run(create_topics(worker, queues))

    def data_dir(self, number: int) -> Path:
        """The state of one worker."""
        return self.folder / f"state-{number}"

    def worker(self, number: int) -> Process:
        """Start a worker, with the state that this number had before."""
        return Process(
            [sys.executable, "-m", "ringfaust", "worker", "--config", self.folder,
             "--data-dir", self.data_dir(number)],
            self.folder / f"worker-{number}.log",
        )  # fmt: skip

    def consumer(self, load: Load, watched: Sequence[Process]) -> Process:
        """Start a consumer, and return when the worker has accepted it."""
        self._consumers += 1
        ready = self.folder / f"ready-{self._consumers}"
        consumer = program(
            "consumer",
            self.folder / f"consumer-{self._consumers}.log",
            servers=self._kafka.servers,
            application=self.name,
            messages=self.to_receive(load),
            credit=load.credit,
            ack_mode=load.ack_mode,
            selector=load.selector,
            work_ms=load.work_ms,
            ready=str(ready),
            result=str(self._result),
        )
        until(ready.exists, "the consumer is attached", [consumer, *watched])
        return consumer

    def to_receive(self, load: Load) -> int:
        """How many of the load's messages a consumer gets; one that works never gets all."""
        if load.selector:
            return load.messages // COLORS
        return sys.maxsize if load.work_ms else load.messages

    def result(self) -> dict[str, float]:
        """The figures of a consumer that has ended."""
        return read_result(self._result)

    def evicted(self) -> int:
        """The end offset of the evicted topic."""
        return self._kafka.end(f"{self.name}.evicted")

    def send_one_more(self, load: Load) -> None:
        """Send one message."""
        one = dataclasses.replace(load, messages=1)
        with self._kafka.producer(one, self.source) as producer:
            producer.wait()

    def _write(self, name: str, **content: object) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content))
