"""docs/examples/lake.ipynb: its six answers are those that plain Python reads in the topics."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from statistics import median, quantiles
from typing import Any

import matplotlib
import pytest
from pyspark.sql import SparkSession

from ringfaust.config import WorkerConfig
from ringfaust.core import commands as c
from ringfaust.core.settings import written_name
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from tests.client.test_documents import ROOT
from tests.spark.lake_history import QUEUES, LakeHistory, make_topics, parse, write_topics
from tests.spark.shared_session import run
from tests.spark.topics import all_records, read_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

NOON_MS = 1_760_011_200_000
HOUR_MS = 3_600_000
SHOP: dict[str, dict[str, object]] = {
    "orders": {"ring_size": 3, "consumer_timeout": 0},
    "prices": {"ring_size": 2, "consumer_timeout": 0},
    "quotes": {"max_messages": 3, "when_full": "reject_newest", "consumer_timeout": 0},
}
"""Queues that are plain enough for `_evicted_with`."""


def _keep_shop(history: LakeHistory, rng: random.Random) -> None:
    """Ten seconds before and after ten, eleven and twelve, with a consumer that takes its time."""
    for queue in SHOP:
        for consumer in ("quick", "slow"):
            history.do(c.Attach(queue, consumer, 2))
    for hours in (2, 1, 0):
        history.now_ms = NOON_MS - hours * HOUR_MS - 10_000
        for _ in range(150):
            queue = rng.choices(list(SHOP), (4, 2, 1))[0]
            if rng.random() < 0.6:
                delay_ms, ttl_ms = rng.choice((0,) * 9 + (9 * HOUR_MS,)), rng.choice((0, 0, 900))
                history.send(queue, delay_ms=delay_ms, ttl_ms=ttl_ms if not delay_ms else 0)
            else:
                _settle(history, rng, queue)


def _settle(history: LakeHistory, rng: random.Random, queue: str) -> None:
    held = [delivery for _, delivery in history.host.state.queues[queue].deliveries]
    if not held:
        history.do(c.Sweep())
        return
    delivery = rng.choices(held, [9 if d.consumer == "quick" else 1 for d in held])[0]
    kind = rng.choice((c.Ack,) * 6 + (c.Release, c.Reject))
    history.do(kind(queue, delivery.consumer, delivery.message.id, delivery.number))


class Asked:
    """The variables of the notebook after its cells, and what the topics contain."""

    def __init__(self, worker: WorkerConfig, names: dict[str, Any]) -> None:
        self.names = names
        self.lines = [
            (partition, line)
            for partition, records in read_topic(worker, worker.topic(Role.EVENTS)).items()
            for line in parse([t for r in records for t in (r.value or b"").decode().split("\n")])
        ]
        self.dispatched, self.evicted, self.dead = (
            [
                {name.removeprefix("ringfaust-"): value.decode() for name, value in record.headers}
                | {"at": record.partition}
                for record in all_records(worker, worker.topic(role))
            ]
            for role in (Role.DISPATCHED, Role.EVICTED, Role.DEAD)
        )

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of an answer."""
        return list(self.names[name].itertuples(index=False, name=None))


@pytest.fixture(scope="module")
def asked(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("notebook")
    application, brokers = f"lake{uuid.uuid4().hex[:6]}", broker.bootstrap_servers
    worker = WorkerConfig(application=application, bootstrap_servers=brokers, partitions=2)
    (folder / "worker.yaml").write_text(worker.model_dump_json(exclude_defaults=True))
    queues = {
        name: {written_name(field): value for field, value in fields.items()}
        for name, fields in (QUEUES | SHOP).items()
    }
    (folder / "queues.yaml").write_text(json.dumps({"queues": queues}))
    histories = LakeHistory(0, NOON_MS - 10_000), LakeHistory(1, NOON_MS - 3 * HOUR_MS, SHOP)
    histories[0].continue_randomly(150, 1)
    _keep_shop(histories[1], random.Random(63))
    asyncio.run(make_topics(worker))
    for history in histories:
        asyncio.run(write_topics(worker, history.partition, history.values(), history.records))
    run(spark, "spark", "lake", "--once", "--to", str(folder / "lake"), "--config", str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKE", str(folder / "lake"))
        patch.setenv("CONFIG", str(folder))
        yield Asked(worker, _run_cells())


def _run_cells() -> dict[str, Any]:
    matplotlib.use("agg")
    notebook = json.loads((ROOT / "docs" / "examples" / "lake.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        assert not cell.get("outputs"), "it is stored as written, not as it once ran"
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    return names


def _p95(values: list[int]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1]


def test_evictions_by_queue_and_hour(asked: Asked) -> None:
    expected = Counter((x["queue"], int(x["time-ms"]) // HOUR_MS) for x in asked.evicted)
    found = {(q, hour.timestamp() * 1000 / HOUR_MS): n for q, hour, n in asked.rows("evictions")}
    assert found == expected
    assert len({hour for _, hour in expected}) > 2
    assert len({queue for queue, _ in expected}) > 3


def test_time_in_queue(asked: Asked) -> None:
    sent: dict[tuple[Any, ...], int] = {}
    times: dict[str, list[int]] = defaultdict(list)
    for partition, line in asked.lines:
        message = partition, line.get("queue"), line.get("sequence")
        if line["event"] in ("added", "scheduled"):
            sent[message] = line["enqueued_ms"]
        elif line["event"] == "acked":
            times[line["queue"]].append(line["time_ms"] - sent[message])
    expected = [(q, len(all_), pytest.approx(_p95(all_) / 1000)) for q, all_ in times.items()]
    assert asked.rows("time_in_queue") == sorted(expected, key=itemgetter(0))
    assert len(expected) > 3


def test_ack_latency(asked: Asked) -> None:
    consumers = {(x["at"], int(x["delivery"])): x["consumer"] for x in asked.dispatched}
    handed: dict[tuple[int, int], int] = {}
    times: dict[str, list[int]] = defaultdict(list)
    for partition, line in asked.lines:
        delivery = partition, line.get("delivery", 0)
        if line["event"] == "dispatched":
            handed[delivery] = line["time_ms"]
        elif line["event"] == "acked":
            times[consumers[delivery]].append(line["time_ms"] - handed[delivery])
    assert asked.rows("ack_latency") == [
        (consumer, len(all_), median(all_) / 1000, pytest.approx(_p95(all_) / 1000))
        for consumer, all_ in sorted(times.items())
    ]
    assert median(times["slow"]) > median(times["quick"]) > 0


def test_lost(asked: Asked) -> None:
    expected = Counter((x["queue"], "evicted", x["reason"]) for x in asked.evicted)
    for x in asked.dead:
        in_queue = "expired" if x["reason"] == "expired" else "dead"
        expected[x["queue"], "refused" if x["sequence"] == "0" else in_queue, x["reason"]] += 1
    for _, line in asked.lines:
        if line["event"] in ("removed", "lost"):
            expected[line["queue"], line["event"], line["event"]] += 1
    assert {tuple(key): n for *key, n in asked.rows("lost")} == expected
    fates = {fate for _, fate, _ in expected}
    assert fates == {"evicted", "expired", "dead", "removed", "refused"}


def test_held_at_noon(asked: Asked) -> None:
    assert (asked.names["queue"], asked.names["moment"].timestamp() * 1000) == ("orders", NOON_MS)
    expected: dict[str, str | None] = {}
    scheduled = set()
    for _, line in asked.lines:
        if line.get("queue") != "orders" or "id" not in line or line["time_ms"] > NOON_MS:
            continue
        if line["event"] in ("added", "scheduled", "returned"):
            expected[line["id"]] = None
            scheduled |= {line["id"]} if line["event"] == "scheduled" else set()
        elif line["event"] == "dispatched":
            expected[line["id"]] = line["consumer"]
        else:
            del expected[line["id"]]
    held = asked.names["held"]
    consumers = held["consumer"].where(held["consumer"].notna(), None)
    assert sorted(held["id"]) == sorted(expected)
    assert dict(zip(held["id"], consumers, strict=True)) == expected
    assert {None, "slow"} <= set(expected.values())
    assert scheduled & expected.keys()
    assert len(expected) > len(scheduled) + 3


def test_what_twice_the_ring_would_have_evicted(asked: Asked) -> None:
    was = Counter(x["queue"] for x in asked.evicted)
    twice = asked.names["twice"]
    assert dict(twice["history"]) == dict(twice["as it was"]) == was
    for queue in ("orders", "prices"):
        lines = [line for _, line in asked.lines if line.get("queue") == queue]
        ring_size = SHOP[queue]["ring_size"]
        assert isinstance(ring_size, int)
        assert _evicted_with(ring_size, lines) == was[queue]
        assert _evicted_with(2 * ring_size, lines) == twice["twice"][queue]
        assert 0 < twice["twice"][queue] < was[queue]


def _evicted_with(ring_size: int, lines: Iterable[dict[str, Any]]) -> int:
    """What a plain ring evicts whose consumers take and return as often as these lines say."""
    ready: list[int] = []
    held: dict[int, int] = {}
    """By the message that was held in history."""
    expires: dict[int, int] = {}
    evicted = 0
    for _, step in groupby(lines, key=itemgetter("step")):
        for line in step:
            event, now, number = line["event"], line["time_ms"], line.get("sequence")
            ready = [each for each in ready if expires.get(each, now + 1) > now]
            if event == "added":
                ready.append(number)
                expires |= {number: line["expires_at_ms"]} if "expires_at_ms" in line else {}
            elif event == "dispatched":
                held[number] = ready.pop(0)
            elif event in ("acked", "dead") and number:
                del held[number]
            elif number in held:  # it comes back
                back = held.pop(number)
                if expires.get(back, now + 1) > now and len(ready) < ring_size:
                    insort(ready, back)
                elif expires.get(back, now + 1) > now:
                    evicted += 1
        while len(ready) > ring_size:
            ready.pop(0)
            evicted += 1
    return evicted
