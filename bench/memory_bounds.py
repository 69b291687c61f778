"""What one record, backlog or moment may cost a worker in memory (R114, R116, R121).

A worker process with one partition on an embedded broker, under a limit of 1 GiB on its data
segment. Each case once took gigabytes. Prints the resident memory before it, and the most of it.
docs/operations.md (limits) has the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import yaml
from aiokafka import AIOKafkaProducer

from bench.large_worker import APP, MIB, TOPIC, Client, Record, Worker, client_of, status_mib
from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.core.address import queue_name
from ringfaust.kafka.packed_batch import PackedBatch
from ringfaust.protocol.encoder import sized, varint
from ringfaust.protocol.record_batches import RecordBatch
from ringfaust.testing.broker import EmbeddedBroker

LIMIT_MIB = 1_024
QUEUE, ADDRESS = "q", "prices"
DEADLINE_S = 900
_POLL_S = 0.5


async def send_compressed(servers: str, records: list[bytes]) -> None:
    """Send one compressed batch, made of encoded records without their numbers."""
    batch = RecordBatch()
    for number, record in enumerate(records):
        batch.data += sized(b"\0\0" + varint(number) + record)
        batch.count += 1
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="bench") as producer:
        async with producer.transaction():
            await producer.send_batch(PackedBatch(batch, compress=True), TOPIC, partition=0)


async def until_added(client: Client, queue: str, messages: int) -> None:
    """Wait until a queue has had so many messages."""
    while await client.added(queue) < messages:
        await asyncio.sleep(_POLL_S)


def message(size: int, **headers: str) -> Record:
    """A message for the queue."""
    named = {"to": QUEUE, **{f"ringfaust-{name}": text for name, text in headers.items()}}
    return b"x" * size, [(name, text.encode()) for name, text in named.items()]


async def headers(servers: str, client: Client) -> None:
    """One record with 15,000,000 headers, which compress to a few kB."""
    many = 15_000_000
    await send_compressed(servers, [sized(None) + sized(None) + varint(many) + b"\0\1" * many])
    await client.fill([message(1)])
    await until_added(client, QUEUE, 1)


async def expanded(servers: str, client: Client) -> None:
    """A batch of 200,000 records that expands to more than the limit."""
    record = sized(None) + sized(bytes(200)) + varint(0)
    await send_compressed(servers, [record] * 200_000)
    await client.fill([message(1)])
    await until_added(client, QUEUE, 1)


async def backlog(servers: str, client: Client) -> None:
    """698 MB of headers that wait to be read."""
    await until_added(client, QUEUE, BACKLOG)


BACKLOG = 1_000


async def write_backlog(servers: str, client: Client) -> None:
    """Write what `backlog` reads, before the worker starts."""
    large = [(f"name {number}", bytes(6_900)) for number in range(100)]
    await client.fill((b"", [("to", QUEUE.encode()), *large]) for _ in range(BACKLOG))


async def expiring(servers: str, client: Client) -> None:
    """1,000 messages of 300 kB that expire together."""
    at_ms = str(int((time.time() + 60) * 1_000))
    await client.fill(message(300_000, **{"expires-at-ms": at_ms}) for _ in range(1_000))
    while True:
        counts = (await client.say("list", queue=QUEUE, limit=1))["answer"]["counts"]
        if counts.get("expired", 0) == 1_000:  # noqa: PLR2004 - as many as were sent
            return
        await asyncio.sleep(_POLL_S)


async def fan_out(servers: str, client: Client) -> None:
    """A message of 400 kB to an address with 1,000 subscriptions."""
    for number in range(1_000):
        who = {"subscription": f"s{number}", "consumer": f"c{number}"}
        await client.say("subscribe", address=ADDRESS, credit=1, **who)
    await client.fill([(b"x" * 400_000, [("to", ADDRESS.encode())])])
    await until_added(client, queue_name(ADDRESS, "s999"), 1)


Case = Callable[[str, Client], Coroutine[None, None, None]]
CASES: dict[str, Case] = {
    each.__name__: each for each in (headers, expanded, backlog, expiring, fan_out)
}


async def run_or_end(case: Coroutine[None, None, None], worker: Worker) -> None:
    """Run a case.

    Raises:
        ChildProcessError: the worker has ended.
    """
    running = asyncio.ensure_future(case)
    while not running.done():
        if worker.process.poll() is not None:
            running.cancel()
            raise ChildProcessError("the worker has ended")
        await asyncio.wait({running}, timeout=_POLL_S)
    await running


async def measure(servers: str, name: str, config: Path) -> None:
    """Run one case on a worker of its own."""
    await create_topics(*load(config))
    async with client_of(servers) as client:
        if name == "backlog":
            await write_backlog(servers, client)
        worker = Worker(config, LIMIT_MIB)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await client.say("list", queue=QUEUE, limit=1)
                pid = worker.process.pid
                before = status_mib(pid, "VmRSS")
                began = time.time()
                await run_or_end(CASES[name](servers, client), worker)
            most = status_mib(pid, "VmHWM")
            text = f"{before} MiB before, at most {most} MiB, {time.time() - began:.0f} s"
        except (TimeoutError, OSError) as error:
            text = f"failed: {error!r}"
        finally:
            worker.process.terminate()
            worker.process.wait()
    print(f"{name}: {text}", flush=True)


def write_config(folder: Path, servers: str) -> None:
    """The configuration: one partition, a queue and an address without a limit."""
    worker = {
        "application": APP, "partitions": 1, "bootstrap_servers": servers,
        "data_dir": str(folder / "state"), "cache_bytes": 64 * MIB, "memory_bytes": 768 * MIB,
    }  # fmt: skip
    queues = {
        "routes": [{"topic": TOPIC, "queue": "{header:to}", "hop": "never"}],
        "queues": {QUEUE: {"ring_size": -1}},
        "addresses": {ADDRESS: {}},
    }
    (folder / "queues.yaml").write_text(yaml.safe_dump(queues))
    (folder / "worker.yaml").write_text(yaml.safe_dump(worker))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory_bounds", description=__doc__)
    parser.add_argument("cases", nargs="*", default=[*CASES], help=f"of {', '.join(CASES)}; all")
    names = parser.parse_args().cases
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no case {unknown[0]}; there are {', '.join(CASES)}")
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix="ringfaust-bench-"))
        with EmbeddedBroker() as broker:
            write_config(folder, broker.bootstrap_servers)
            asyncio.run(measure(broker.bootstrap_servers, name, folder))


if __name__ == "__main__":
    main()
