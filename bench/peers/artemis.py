"""Apache ActiveMQ Artemis 2.44, persistent, measured by its own `artemis perf`."""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.model import WARM_UPS, Figures, Load
from bench.peers.artemis_home import artemis_home, lift_disk_limit
from bench.processes import Process, until
from ringfaust.testing.broker import free_port

MEMORY = "1G"
MAX_PENDING = 1_000
"""Sends that wait for the broker's answer at a time."""
WARM_S = 5
TIMED_PER_S = 30_000
"""A run is timed for as long as this rate would need for the load's messages."""
_ENVELOPE_BYTES = 100
"""About what Artemis adds to a body in memory: address, id and properties."""
NO_RING = 100_000_000
RECEIVE_TIMEOUT_MS = 60_000
"""How long a slow consumer waits for the producer to start."""
_RINGS = ("evict", "hold")
"""Loads whose rate is that of the producer: a ring takes all that it sends."""


class Artemis:
    """A broker of its own. Without fsync it answers before data reach the disk, as Kafka does."""

    def __init__(self, *, fsync: bool) -> None:
        self.name = "Artemis, fsync" if fsync else "Artemis"
        self._journal = ["--nio"] if fsync else ["--mapped", "--no-fsync"]
        self._stack = ExitStack()
        self._made = 0
        self._is_warm = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="ringfaust-bench-artemis-"))
            stack.callback(shutil.rmtree, folder)
            self._folder, self._home = folder, artemis_home()
            self._port = free_port()
            self._create(folder / "broker")
            broker = Process([folder / "broker/bin/artemis", "run"], folder / "broker.log")
            self._broker = stack.enter_context(broker)
            until(self._answers, "Artemis accepts connections", [broker])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_warm = False
        self._stack.close()

    def carries(self, load: Load) -> bool:
        """What `artemis perf` and `artemis consumer` can do: one queue, equal messages."""
        return (
            load.kind in ("evict", "cycle", "latency", "hold")
            and load.rings == 1
            and load.priorities == 1
            and not load.selector
            and not load.ringfaust_only
        )

    def run(self, load: Load) -> Figures:
        """Run `artemis perf` against a new queue. Before the first run the broker is warmed up."""
        if not self._is_warm:
            self._is_warm = True
            for warm_up in WARM_UPS:
                self._perf(warm_up)
        return self._perf(load)

    def _perf(self, load: Load) -> Figures:
        self._made += 1
        report = self._folder / f"report-{self._made}.json"
        options = [
            "--protocol", "CORE", "--persistent", "--silent",
            "--url", f"tcp://127.0.0.1:{self._port}?confirmationWindowSize=1000000{_window(load)}",
            "--message-size", load.body_bytes, "--max-pending", MAX_PENDING,
            "--warmup", WARM_S, "--duration", WARM_S + _timed_s(load), "--json", report,
        ]  # fmt: skip
        if load.rate:
            options += ["--rate", load.rate]
        what = "producer" if load.kind in _RINGS else "client"
        queue = f"queue://{'ring' if load.kind in _RINGS else 'keep'}.{self._made}"
        with ExitStack() as stack:
            slow = self._slow_consumers(load, queue) if load.kind == "hold" else None
            if slow:
                stack.enter_context(slow)
            before_s = self._broker.cpu_s()
            perf = stack.enter_context(self._tool("perf", what, *options, queue))
            perf.wait()
            if slow:
                slow.check()
            used_s = self._broker.cpu_s() - before_s
        return _figures(load, json.loads(report.read_text()), used_s)

    def _slow_consumers(self, load: Load, queue: str) -> Process:
        """Consumers that work on each message. They connect while the producer warms up."""
        return self._tool(
            "consumer", "--protocol", "CORE", "--silent", "--destination", queue,
            "--url", f"tcp://127.0.0.1:{self._port}", "--threads", load.consumers,
            "--sleep", int(load.work_ms), "--message-count", NO_RING,
            "--receive-timeout", RECEIVE_TIMEOUT_MS,
        )  # fmt: skip

    def _tool(self, *command: object) -> Process:
        words = [str(word) for word in (self._home / "bin/artemis", *command)]
        return Process(words, self._folder / f"{command[0]}.log")

    def _create(self, instance: Path) -> None:
        create = [
            self._home / "bin/artemis", "create", instance, "--silent", "--allow-anonymous",
            "--user", "bench", "--password", "bench", "--host", "127.0.0.1",
            "--default-port", self._port, "--java-memory", MEMORY, "--no-web",
            "--no-amqp-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor",
            "--no-hornetq-acceptor", "--no-autotune", *self._journal,
        ]  # fmt: skip
        with Process([str(word) for word in create], self._folder / "create.log") as process:
            process.wait()
        path = instance / "etc/broker.xml"
        text = path.read_text()
        rings = _ring_setting("ring.#", 1_000) + _ring_setting("keep.#", NO_RING)
        assert "<address-settings>" in text
        path.write_text(text.replace("<address-settings>", "<address-settings>" + rings))
        lift_disk_limit(instance)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True


def _ring_setting(match: str, size: int) -> str:
    return (
        f'\n<address-setting match="{match}"><default-ring-size>{size}</default-ring-size>'
        "<auto-create-queues>true</auto-create-queues></address-setting>"
    )


def _window(load: Load) -> str:
    """The part of the URL for a small credit. Artemis counts bytes; 0 is one message at a time."""
    if load.workload != "window":
        return ""
    size = load.credit * (load.body_bytes + _ENVELOPE_BYTES) if load.credit > 1 else 0
    return f"&consumerWindowSize={size}"


def _timed_s(load: Load) -> int:
    rate = load.rate or TIMED_PER_S
    return max(2, min(15, load.messages // rate))


def _figures(load: Load, samples: list[dict[str, Any]], cpu_s: float) -> Figures:
    """The rate is that of the seconds after the warm-up in which the producer was still busy."""
    is_ring = load.kind in _RINGS
    counted = "completed" if is_ring else "received"
    timed = [
        sample[counted]
        for sample in samples
        if sample["sampleType"] == "interval" and not sample["warmup"] and sample["completed"]
    ]
    summary = samples[-1]
    total = summary["totalCompleted" if is_ring else "totalReceived"]
    figures = {"per_second": statistics.mean(timed), "worker_us": cpu_s / total * 1e6}
    if "totalTransferTime" in summary:
        transfer_us = summary["totalTransferTime"]
        figures |= {"p50_ms": transfer_us["50"] / 1e3, "p99_ms": transfer_us["99"] / 1e3}
    return figures
