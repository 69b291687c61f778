"""`make bench-quick`: the rate of a full ring, compared with a pass-through in alternating rounds.

One worker, one partition, a full ring of 1,000, no consumer, exactly-once, records of 200 bytes.
Each message is added and evicts another, and is written to the events, evicted and changelog
topics. The pass-through only copies: with aiokafka's defaults (plain; the goal is a share of its
rate), and with fetches and batches as large as the worker's (tuned). All read the same topic. The
rate is measured at the end of the topic that they write.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from rich.console import Console
from rich.table import Table

from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.testing.broker import EmbeddedBroker

COUNT = 300_000
RING = 1_000
VALUE = b"x" * 200
ROUNDS = 3
GOAL = 0.3
WARM = 0.1
"""The share of records that is not timed: the process starts, connects and fills the ring."""
DEADLINE_S = 120

QUEUES = """
routes: [{{topic: {topic}, queue: orders}}]
queues: {{orders: {{ring_size: 1000}}}}
"""
WORKER = """
{{application: {name}, partitions: 1, bootstrap_servers: '{servers}', data_dir: '{dir}/state'}}
"""


async def _fill(servers: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5, max_batch_size=200_000)
    await producer.start()
    for _ in range(COUNT):
        await producer.send("orders", VALUE, partition=0)
    await producer.stop()


async def _rate(servers: str, topic: str, count: int, process: subprocess.Popen[bytes]) -> float:
    """Return the rate, in records per second, at which the topic grows after the warm-up."""
    tp = TopicPartition(topic, 0)
    watcher = AIOKafkaConsumer(bootstrap_servers=servers)
    await watcher.start()
    start = None
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline and process.poll() in (None, 0):
            end = (await watcher.end_offsets([tp]))[tp]
            now = time.monotonic()
            if start is None and end >= count * WARM:
                start = (now, end)
            elif start is not None and end >= count:
                return float((end - start[1]) / (now - start[0]))
            await asyncio.sleep(0.05)
    finally:
        await watcher.stop()
    raise SystemExit(f"{topic} did not get its {count} records within {DEADLINE_S} s")


async def _copy(kind: str, servers: str, round_: int) -> float:
    target = f"{kind}-{round_}"
    folder = Path(tempfile.mkdtemp(prefix="ringfaust-bench-"))
    (folder / "queues.yaml").write_text(QUEUES.format(topic=target))
    (folder / "worker.yaml").write_text(WORKER.format(name=target, servers=servers, dir=folder))
    await create_topics(*load(folder))
    names = [kind, servers, "orders", target, str(COUNT)]
    command = [sys.executable, "-m", "bench.passthrough", *names]
    with subprocess.Popen(command) as process:
        return await _rate(servers, target, COUNT, process)


async def _ring(servers: str, round_: int) -> float:
    name = f"ring-{round_}"
    with tempfile.TemporaryDirectory(prefix="ringfaust-bench-") as folder:
        Path(folder, "queues.yaml").write_text(QUEUES.format(topic="orders"))
        worker = WORKER.format(name=name, servers=servers, dir=folder)
        Path(folder, "worker.yaml").write_text(worker)
        await create_topics(*load(Path(folder)))
        command = [sys.executable, "-m", "ringfaust", "worker", "--config", folder]
        with subprocess.Popen(command) as process:
            try:
                return await _rate(servers, f"{name}.evicted", COUNT - RING, process)
            finally:
                process.terminate()


async def _measure(servers: str, out: Console) -> None:
    with tempfile.TemporaryDirectory(prefix="ringfaust-bench-") as folder:
        Path(folder, "queues.yaml").write_text(QUEUES.format(topic="orders"))
        worker = WORKER.format(name="fill", servers=servers, dir=folder)
        Path(folder, "worker.yaml").write_text(worker)
        await create_topics(*load(Path(folder)))
    await _fill(servers)
    table = Table("round", "plain copy/s", "tuned copy/s", "ring/s", "of plain", "of tuned")
    of_plain, of_tuned = [], []
    for round_ in range(ROUNDS):
        plain = await _copy("plain", servers, round_)
        tuned = await _copy("tuned", servers, round_)
        ring = await _ring(servers, round_)
        of_plain.append(ring / plain)
        of_tuned.append(ring / tuned)
        figures = [f"{figure:,.0f}" for figure in (plain, tuned, ring)]
        table.add_row(str(round_ + 1), *figures, f"{of_plain[-1]:.2f}", f"{of_tuned[-1]:.2f}")
    out.print(table)
    ratio = statistics.median(of_plain)
    out.print(
        f"median: {ratio:.2f} of a plain pass-through (goal {GOAL}), "
        f"{statistics.median(of_tuned):.2f} of a tuned one"
    )
    if ratio < GOAL:
        raise SystemExit(1)


def main() -> None:
    """Run the benchmark on a broker of its own."""
    out = Console()
    with EmbeddedBroker() as broker:
        asyncio.run(_measure(broker.bootstrap_servers, out))


if __name__ == "__main__":
    main()
