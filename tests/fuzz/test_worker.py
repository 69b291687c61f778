"""Hostile records on a real worker: it keeps running, and its queues do not change."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol import headers as h
from ringfaust.testing.broker import EmbeddedBroker
from tests.fuzz.harness import ADDRESSES, BEGINNING, MOST_BYTES, QUEUES, SETTINGS
from tests.fuzz.hostile import HEADERS, NO_COMMANDS, REFUSED

pytestmark = pytest.mark.kafka

DEADLINE_S = 60
FAR_MS = b"3600000"


class Bench:
    """An application of one partition: its worker, what goes in, and what has come out."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.name = f"fuzz-{uuid.uuid4().hex[:8]}"
        worker = {
            "application": self.name, "bootstrap_servers": servers, "partitions": 1,
            "data_dir": str(folder / "state"), "max_record_bytes": MOST_BYTES,
        }  # fmt: skip
        routes = [{"topic": f"{self.name}.in", "queue": "{header:to}", "hop": "never"}]
        queues = {"routes": routes, "queues": QUEUES, "settings": SETTINGS, "addresses": ADDRESSES}
        (folder / "worker.yaml").write_text(json.dumps(worker))
        (folder / "queues.yaml").write_text(json.dumps(queues))
        self.folder = folder
        self.producer = AIOKafkaProducer(bootstrap_servers=servers)
        outputs = [f"{self.name}.{role}" for role in ("replies", "dead")]
        self._reader = AIOKafkaConsumer(
            *outputs, bootstrap_servers=servers, isolation_level="read_committed",
            auto_offset_reset="earliest",
        )  # fmt: skip
        self.replies: list[ConsumerRecord] = []
        self.dead: list[ConsumerRecord] = []

    async def start(self) -> None:
        await create_topics(*load(self.folder))
        await self.producer.start()
        await self._reader.start()
        words = [sys.executable, "-m", "ringfaust", "worker", "--config", str(self.folder)]
        self.worker = subprocess.Popen(words)

    async def stop(self) -> None:
        self.worker.kill()
        self.worker.wait()
        await self._reader.stop()
        await self.producer.stop()

    async def control(self, values: Iterable[bytes | None]) -> None:
        for value in values:  # by batches: `send` itself does not take what has no value
            batch = self.producer.create_batch()
            batch.append(timestamp=None, key=None, value=value)
            await self.producer.send_batch(batch, f"{self.name}.control", partition=0)
        await self.producer.flush()

    async def produce(self, records: Iterable[list[tuple[str, Any]]]) -> None:
        for headers in records:
            await self.producer.send(f"{self.name}.in", b"body", headers=headers)
        await self.producer.flush()

    async def until(self, replies: int, dead: int) -> None:
        """Read on until so many have come."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.replies) < replies or len(self.dead) < dead:
                for tp, records in (await self._reader.getmany(timeout_ms=100)).items():
                    (self.dead if tp.topic.endswith(".dead") else self.replies).extend(records)

    async def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """The reply to one command, as all before it are answered."""
        await self.control([json.dumps({**command, "reply": "ask"}).encode()])
        await self.until(len(self.replies) + 1, len(self.dead))
        return dict(json.loads(self.replies[-1].value))

    async def state(self) -> list[dict[str, Any]]:
        queues = ["orders", "strict", "prices::ann"]
        found = [await self.ask({"type": "list", "queue": queue}) for queue in queues]
        for answer in found:
            for consumer in answer["answer"]["consumers"]:
                del consumer["silent_ms"]  # it grows while nothing happens
        return found


@pytest.fixture
async def bench(broker: EmbeddedBroker, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(broker.bootstrap_servers, tmp_path)
    await bench.start()
    yield bench
    await bench.stop()


async def begin(bench: Bench) -> None:
    """The state that the tables are about; see `harness`."""
    await bench.produce([[("to", b"orders"), (h.ID, name)] for name in (b"A", b"B", b"C")])
    while (await bench.ask({"type": "list", "queue": "orders"}))["answer"]["ready"] != [*"ABC"]:
        await asyncio.sleep(0.1)
    for kind, fields in BEGINNING:
        queue = {} if kind in ("begin", "prepare") else {"queue": "orders"}
        assert (await bench.ask({"type": kind, **queue, **fields}))["ok"]
    await bench.produce([[("to", b"orders"), (h.ID, name)] for name in (b"D", b"E", b"F")])
    await bench.produce([[("to", b"strict"), (h.ID, b"S"), (h.DELAY_MS, FAR_MS)]])
    await bench.produce([[("to", b"prices"), (h.ID, b"P"), (h.TTL_MS, FAR_MS)]])
    while (await bench.ask({"type": "list", "queue": "prices::ann"}))["answer"]["ready"] != ["P"]:
        await asyncio.sleep(0.1)


def reason_of(record: ConsumerRecord) -> str:
    return dict(record.headers)[h.TEXT].decode()


async def test_it_lives_and_answers_and_is_unmoved(bench: Bench) -> None:
    await begin(bench)
    before = await bench.state()
    replies = len(bench.replies)

    await bench.control(value for value, _ in NO_COMMANDS.values())
    await bench.control(value for value, _, _ in REFUSED.values())
    await bench.produce(headers for headers, _ in HEADERS.values())
    await bench.until(replies + len(REFUSED), len(NO_COMMANDS) + len(HEADERS))

    assert await bench.state() == before
    assert bench.worker.poll() is None
    by_source: dict[str, list[str]] = {"control": [], "in": []}
    for record in bench.dead:
        topic = dict(record.headers)[h.SOURCE].decode().split("/")[0]
        by_source[topic.removeprefix(f"{bench.name}.")].append(reason_of(record))
    for texts, table in ((by_source["control"], NO_COMMANDS), (by_source["in"], HEADERS)):
        assert len(texts) == len(table)
        for text, (name, (_, words)) in zip(texts, table.items(), strict=True):
            assert all((w.decode() if isinstance(w, bytes) else w) in text for w in words), name
    answers = [json.loads(record.value) for record in bench.replies[replies:-3]]
    assert not any(answer["ok"] for answer in answers)
    assert [answer["reason"] for answer in answers[-len(REFUSED) :]] == [
        reason for _, reason, _ in REFUSED.values()
    ]
    assert (await bench.ask({"type": "commit", "xid": "prepared"}))["ok"]
    ack = {"type": "ack", "queue": "orders", "consumer": "holder", "message": "D"}
    assert (await bench.ask(ack))["ok"], "it goes on as ever"
