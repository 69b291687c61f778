"""Memory and the longest block of the event loop of a real worker with large queues (R114, R116).

One worker process with one partition on an embedded broker, under a limit on its data segment.
Prints for each step its duration, resident memory now and at most, and the longest block: its time,
and how much of that was on the CPU. docs/operations.md (limits) has the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from rocksdict import Cache

from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.core import commands as c
from ringfaust.core.catalog import Catalog
from ringfaust.core.engine import Engine
from ringfaust.core.state import State
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import Payload
from ringfaust.protocol.stored_rows import encode_writes
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.store.rocks import RocksStore

TOPIC, APP = "in", "large"
DEADLINE_S = 7_200
Record = tuple[bytes, list[tuple[str, bytes]]]
"""A value and headers."""

MIB = 1 << 20


class Case(NamedTuple):
    """What a worker holds, what is asked of it, and how much memory it may have."""

    queues: int
    messages: int
    size_bytes: int
    limit_mib: int
    commands: tuple[tuple[str, dict[str, Any]], ...]
    sent: int = 0
    """Messages that are sent to it, round the queues."""
    is_grouped: bool = False
    """Whether each message has a group of its own."""


Q = "q000000"
SETTINGS = {"ring_size": -1, "consumer_timeout": 0}
ATTACH: dict[str, Any] = {"queue": Q, "consumer": "c", "credit": 100_000}
SELECT = ATTACH | {"credit": 9, "selector": "a = 1"}
LEAVE = {"queue": Q, "consumer": "c"}
UNKNOWN = {"queue": Q, "message": "nothing"}
SEARCHES = (
    ("remove", UNKNOWN),
    ("move", UNKNOWN | {"to": "other"}),
    ("deliver_now", UNKNOWN),
    ("attach", SELECT),
    ("detach", LEAVE),
)
HOLD = (("attach", ATTACH), ("recover", LEAVE), ("detach", LEAVE))
PURGE = (("purge", {"queue": Q}),)
CASES = {
    "ring": Case(1, 1_000_000, 100, 400, (*SEARCHES, *HOLD, *PURGE), 20_000),
    "rings": Case(100_000, 10_000_000, 100, 1_024, (*SEARCHES, *PURGE), 100_000),
    "commands": Case(1, 500_000, 100, 400, (*SEARCHES, *PURGE)),
    "bytes": Case(1, 100_000, 12_000, 1_024, HOLD),
    "groups": Case(1, 60_000, 100, 400, (("attach", ATTACH), ("detach", LEAVE)), 0, True),
}


def status_mib(pid: int, field: str) -> int:
    """A field of /proc/PID/status: VmRSS now, or VmHWM at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


class Worker:
    """A worker under a memory limit, with a log of what blocks its event loop."""

    def __init__(self, config: Path, limit_mib: int) -> None:
        self._blocks = config / "blocks"
        self._blocks.touch()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.watched_worker",
                self._blocks,
                "worker",
                "--config",
                config,
            ],
        )
        resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (limit_mib * MIB,) * 2)

    def since(self, began_s: float) -> str:
        """Memory, and the longest block since a moment, in seconds since 1970."""
        blocks = [tuple(map(float, line.split())) for line in self._blocks.open()]
        took, cpu = max(((took, cpu) for end, took, cpu in blocks if end > began_s), default=(0, 0))
        pid = self.process.pid
        return (
            f"{status_mib(pid, 'VmRSS')} MiB, at most {status_mib(pid, 'VmHWM')} MiB; "
            f"longest block {took:.2f} s ({cpu:.2f} s of the CPU)"
        )


class Client:
    """Sends records in large batches, and commands one by one."""

    def __init__(self, producer: AIOKafkaProducer, replies: AIOKafkaConsumer) -> None:
        self._producer = producer
        self._replies = replies
        self._asked = 0

    async def fill(self, records: Iterable[Record]) -> None:
        """Send records, in batches of up to 1 MB."""
        batch, sent = self._producer.create_batch(), []
        for value, headers in records:
            if batch.append(timestamp=None, key=None, value=value, headers=headers) is None:
                sent.append(await self._producer.send_batch(batch, TOPIC, partition=0))
                batch = self._producer.create_batch()
                batch.append(timestamp=None, key=None, value=value, headers=headers)
        await self._producer.send_batch(batch, TOPIC, partition=0)
        await self._producer.flush()

    async def say(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Send a command. Returns its reply."""
        self._asked += 1
        key = f"{time.time_ns()}-{self._asked}"
        value = json.dumps({"type": kind, "reply": key, **fields}).encode()
        await self._producer.send_and_wait(f"{APP}.control", value, partition=0)
        async with asyncio.timeout(DEADLINE_S):
            async for record in self._replies:
                if record.key == key.encode():
                    return dict(json.loads(record.value))
        raise AssertionError

    async def added(self, queue: str) -> int:
        """How many messages a queue has ever had."""
        return int((await self.say("list", queue=queue, limit=1))["answer"]["counts"]["added"])


@asynccontextmanager
async def client_of(servers: str) -> AsyncIterator[Client]:
    """A client of the worker."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1_000_000)
    replies = AIOKafkaConsumer(
        f"{APP}.replies", bootstrap_servers=servers, isolation_level="read_committed"
    )
    async with producer, replies:
        await replies.seek_to_end()
        yield Client(producer, replies)


def seed(path: Path, case: Case) -> None:
    """Write the state of a partition: the engine fills one queue, the others are copies of it.

    To send so many messages through Kafka would take an hour. The worker takes the folder for that
    of an empty changelog, so it starts with these rows.
    """
    data = MemoryKeyValue() if case.queues > 1 else RocksStore(path, Cache(32 * MIB))
    state = State(ByteStore(data), Catalog({"#": SETTINGS}, {}))
    engine = Engine(state)
    for number in range(case.messages // case.queues):
        payload = Payload(None, b"x" * case.size_bytes, (), f"{TOPIC}/0/{number}")
        group = f"g{number}" if case.is_grouped else ""
        send = c.Send(Q, f"m{number}", 1, group=group, size_bytes=case.size_bytes, payload=payload)
        engine.step(send, 1)
        if number % 2_000 == 0 and isinstance(data, RocksStore):
            data.apply(encode_writes(state.writes()), 0, 0)
            state.committed(32 * MIB)
    rows = encode_writes(state.writes())
    store = data if isinstance(data, RocksStore) else RocksStore(path, Cache(32 * MIB))
    store.apply(rows, 0, 0)
    for number in range(1, case.queues):
        copy = [(key.replace(Q.encode(), queue(number).encode()), row) for key, row in rows]
        store.apply(copy, 0, 0)
    store.close()


def queue(number: int) -> str:
    """The name of a queue; all are as long as `Q`."""
    return f"q{number:06}"


def round_(case: Case) -> Iterator[Record]:
    """Messages that go round the rings."""
    for number in range(case.sent):
        headers = [
            ("to", queue(number * 7 % case.queues).encode()),
            ("ringfaust-id", b"n%d" % number),
        ]
        yield b"x" * case.size_bytes, headers


async def measure(servers: str, case: Case, config: Path) -> None:
    """Send messages to a worker that holds the queues, and give it the commands."""
    await create_topics(*load(config))
    worker = Worker(config, case.limit_mib)
    try:
        async with client_of(servers) as client:
            began = time.time()
            await client.say("list", queue=Q, limit=1)
            print(f"start: {time.time() - began:.1f} s; {worker.since(began)}", flush=True)
            if case.sent:
                began = time.time()
                await client.fill(round_(case))
                last = queue((case.sent - 1) * 7 % case.queues)
                want = case.messages // case.queues + case.sent // case.queues
                while await client.added(last) < want:
                    await asyncio.sleep(2)
                print(
                    f"add {case.sent:,}: {time.time() - began:.1f} s; {worker.since(began)}",
                    flush=True,
                )
            for kind, fields in case.commands:
                began = time.time()
                reply = await client.say(kind, **fields)
                about = f"{kind} {reply.get('reason', 'ok')}"
                print(f"{about}: {time.time() - began:.1f} s; {worker.since(began)}", flush=True)
    finally:
        worker.process.terminate()
        worker.process.wait()


def write_config(folder: Path, servers: str) -> None:
    """The configuration: one partition, and the queue in a header."""
    route = {"topic": TOPIC, "queue": "{header:to}", "hop": "never"}
    worker = {
        "application": APP, "partitions": 1, "bootstrap_servers": servers,
        "data_dir": str(folder / "state"), "cache_bytes": 128 * MIB,
    }  # fmt: skip
    queues = {"routes": [route], "queues": {"#": SETTINGS}}
    (folder / "queues.yaml").write_text(yaml.safe_dump(queues))
    (folder / "worker.yaml").write_text(yaml.safe_dump(worker))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large_worker", description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--messages", type=int, default=0, help="another number of messages")
    parser.add_argument("--folder", help="of the state; used as it is if it exists")
    parser.add_argument("--only-seed", action="store_true", help="write the state, and end")
    asked = parser.parse_args()
    case = CASES[asked.case]
    if asked.messages:
        case = case._replace(messages=asked.messages)
    folder = Path(asked.folder or tempfile.mkdtemp(prefix="ringfaust-bench-"))
    if not (folder / "state").exists():
        began = time.time()
        seed(folder / "state" / "partition-0", case)
        print(f"{case.messages:,} messages in {case.queues:,} queues: {time.time() - began:.0f} s")
    if asked.only_seed:
        return
    with EmbeddedBroker() as broker:
        write_config(folder, broker.bootstrap_servers)
        asyncio.run(measure(broker.bootstrap_servers, case, folder))


if __name__ == "__main__":
    main()
