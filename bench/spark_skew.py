"""`make bench-spark-skew`: how one hot ring affects a Spark job, and where its limit is.

64 full rings of 1,000 in 8 partitions, 200-byte records. One ring gets a share of all records, from
an even share to all of them. A hot ring is one partition and one task, so with cores to spare the
rate is limited to that of one task. The state does not grow, because a ring holds no more than its
size. The picture is docs/spark-skew.svg.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from aiokafka import AIOKafkaProducer
from rich.console import Console
from rich.table import Table

from bench import spark_ring as bench
from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.spark.ring import job
from ringfaust.spark.session import open_session
from ringfaust.testing.broker import EmbeddedBroker

SHARES = (1 / bench.RINGS, 0.25, 0.5, 0.75, 1.0)
COUNT = 400_000
BATCH = 100_000
PICTURE = Path(__file__).parent.parent / "docs" / "spark-skew.svg"


async def _prepare(folder: Path, servers: str, share: float) -> None:
    """Create the topics, and write records of which ring 0 gets the given share."""
    folder.mkdir()
    (folder / "queues.yaml").write_text(bench.QUEUES.replace("orders", f"{folder.name}.orders"))
    (folder / "worker.yaml").write_text(
        f"{{application: {folder.name}, partitions: {bench.PARTITIONS}, "
        f"bootstrap_servers: '{servers}'}}"
    )
    await create_topics(*load(folder))
    draw = random.Random(7)
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, linger_ms=5, max_batch_size=200_000, enable_idempotence=True
    )
    async with producer:
        for _ in range(COUNT):
            ring = 0 if draw.random() < share else draw.randrange(bench.RINGS)
            await producer.send(
                f"{folder.name}.orders", b"x" * 200, key=b"%d" % ring,
                partition=ring % bench.PARTITIONS,
            )  # fmt: skip


def _bytes(folder: Path) -> int:
    """Size of the state store's files: snapshots and changes of each partition."""
    return sum(path.stat().st_size for path in (folder / "state").rglob("*") if path.is_file())


def main() -> None:
    """Run the benchmark on a broker of its own, and draw the result."""
    out = Console()
    bench.COUNT, bench.BATCH = COUNT, BATCH
    table = Table("hot ring's share", "records/s", "of even", "checkpoint")
    rates: list[float] = []
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="ringfaust-") as name:
        spark = open_session("bench", None, job.SESSION_SETTINGS)
        for number, share in enumerate((SHARES[0], *SHARES)):  # the first warms up
            folder = Path(name) / f"skew-{number}"
            asyncio.run(_prepare(folder, broker.bootstrap_servers, share))
            rate = bench.run(spark, folder, "ring", 0)
            if number:
                rates.append(rate)
                size = f"{_bytes(folder / 'ring-0') / 1e6:.0f} MB"
                table.add_row(f"{share:.0%}", f"{rate:,.0f}", f"{rate / rates[0]:.2f}", size)
        spark.stop()
    out.print(table)
    _draw(rates)


def _draw(rates: list[float]) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axes.plot([100 * share for share in SHARES], [rate / rates[0] for rate in rates], marker="o")
    axes.axhline(0.5, color="grey", linestyle=":", label="half")
    axes.set(xlabel="share of one ring, %", ylabel="rate, relative to an even load", ylim=(0, 1.5))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
