"""What a worker exports for Prometheus, and how it answers a supervisor."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from ringfaust.config import QueuesConfig, WebConfig, WorkerConfig
from ringfaust.core.effects import Evicted
from ringfaust.core.model import EvictReason, Message
from ringfaust.processor.outbox import OTHERS, Activity, EvictionCounts
from ringfaust.protocol.records import FetchedRecord, Payload
from ringfaust.protocol.routes import Route
from ringfaust.worker.app import run
from ringfaust.worker.observe import numbers
from ringfaust.worker.observe.health import Health
from ringfaust.worker.observe.memory import MemoryBudget
from ringfaust.worker.observe.metrics import FAMILIES, MOST_QUEUES, WorkerMetrics
from ringfaust.worker.observe.numbers import Numbers
from ringfaust.worker.observe.processes import UP
from ringfaust.worker.observe.web import CannotListen, served, web_app
from ringfaust.worker.partition import numbers as partition_numbers
from ringfaust.worker.partition.numbers import Holding, PartitionNumbers
from ringfaust.worker.partition.repartition import RepartitionWork
from tests.background import running, until
from tests.worker.observe.partition import Partition

COMPOSE = Path(__file__).parents[3] / "compose"
MESSAGE = Message("m", 1, 1, 4, 0, 0, 0, "", 0, 0, (), 1, Payload(None, b"", (), "in/0/0"))


def counted(queues: Iterable[str]) -> EvictionCounts:
    """One eviction in each."""
    counts = EvictionCounts()
    for queue in queues:
        counts.add(Evicted(queue, MESSAGE, EvictReason.OVERFLOW, "", 1, 1, 5, "full"))
    return counts


class World:
    """A worker with one partition."""

    def __init__(self, work: Any) -> None:
        buffer = SimpleNamespace(held_bytes=4_096)
        self.task = SimpleNamespace(trouble="", stopped=None, work=work, buffer=buffer)
        self.memory = MemoryBudget(1 << 40)
        self.silent_s = 0.0
        self.works = [work]
        self.health = Health(
            lambda: [self.task], {}, lambda: self.silent_s, lambda: 0.0, self.memory,
            has_joined=lambda: True, late_standbys=dict, unreadable=tuple,
        )  # fmt: skip
        works = lambda: [] if self.task.trouble else [*self.works]  # noqa: E731
        self.numbers = Numbers(self.health, works, lambda tp: 100, lambda: {3: 7, 4: None})
        info = {"version": "1", "engine": "pure Python", "application": "app"}
        self.metrics = WorkerMetrics(self.numbers, info)

    async def count(self) -> None:
        """Have everything counted once."""
        async with running(self.numbers.count(Mock())):
            await until(lambda: self.works[0].numbers.holding)


def busy(queues: ManyQueues) -> PartitionNumbers:
    """The numbers of a partition whose queues all have rates."""
    found = PartitionNumbers()
    found.rates = {name: {"added": 1.0} for name, _ in queues.rows}
    return found


def samples(body: bytes) -> dict[tuple[str, ...], float]:
    """By name and label values: the value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


@pytest.fixture
def work() -> Partition:
    work = Partition({"q": {"ring_size": 3}, "other.q": {}})
    work.send("q", *"abcde")
    work.send("other.q", "z")
    return work


@pytest.fixture
def world(work: Partition) -> World:
    return World(work)


async def test_the_metrics_of_a_partition_are_totals(world: World) -> None:
    await world.count()
    found = samples(world.metrics.coarse())
    assert found["ringfaust_ready",] == 1
    assert found["ringfaust_intake_paused",] == 0
    assert found["ringfaust_memory_limit_bytes",] == 1 << 40
    assert found["ringfaust_partition_input_bytes", "0"] == 4_096
    assert found["ringfaust_partition_evicted_messages_total", "0", "overflow"] == 2
    assert found["ringfaust_partition_messages", "0", "ready"] == 4
    assert found["ringfaust_partition_queues", "0"] == 2
    assert found["ringfaust_accounts_balanced", "0"] == 1
    assert found["ringfaust_partition_lag_records", "0", "in"] == 94
    assert found["ringfaust_partition_input_paused", "0", "in"] == 0
    assert found["ringfaust_partition_written_records_total", "0", "evicted"] == 2
    assert found["ringfaust_commit_duration_seconds_count", "0"] == 2
    assert found["ringfaust_commit_duration_seconds_bucket", "0.01", "0"] == 0
    assert found["ringfaust_commit_duration_seconds_bucket", "0.025", "0"] == 2
    assert found["ringfaust_eviction_age_seconds_sum", "0"] == 6
    assert found["ringfaust_recovery_remaining_records", "0"] == 0
    assert found["ringfaust_standby_behind_records", "3"] == 7
    assert found["ringfaust_standby_behind_records", "4"] == -1


async def test_a_partition_counts_from_zero() -> None:
    """Prometheus does not see the first increase of a metric that was not there before."""
    found = samples(World(Partition({"q": {"ring_size": 3}})).metrics.coarse())
    for role in ("dispatched", "evicted", "dead", "events", "replies"):
        assert found["ringfaust_partition_written_records_total", "0", role] == 0
    for reason in EvictReason:
        assert found["ringfaust_partition_evicted_messages_total", "0", reason] == 0


async def test_promtool_finds_nothing_wrong_with_a_scrape(world: World) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    await world.count()
    families = ["messages", "transitions", "evicted", "overwrite"]
    for scrape in (world.metrics.coarse(), await world.metrics.detailed(families, "#")):
        done = subprocess.run([tool, "check", "metrics"], input=scrape, capture_output=True,
                              check=False, timeout=60)  # fmt: skip
        assert (done.returncode, done.stdout + done.stderr) == (0, b""), done


async def test_a_queue_has_metrics_of_its_own_when_asked(world: World) -> None:
    found = samples(await world.metrics.detailed(["messages", "evicted", "overwrite"], "q"))
    assert found == {
        ("ringfaust_detailed_truncated",): 0,
        ("ringfaust_queue_messages", "q", "ready"): 3,
        ("ringfaust_queue_messages", "q", "delivering"): 0,
        ("ringfaust_queue_messages", "q", "scheduled"): 0,
        ("ringfaust_queue_evicted_messages_total", "q", "overflow"): 2,
    }, "its ring is idle"
    world.works[0].numbers.rates["q"] = {"added": 0.5, "acked": 0.25}
    found = samples(await world.metrics.detailed(["overwrite"], "#"))
    assert found["ringfaust_time_to_overwrite_seconds", "q"] == 4
    body = await world.metrics.detailed(["messages"], "nowhere")
    assert samples(body) == {("ringfaust_detailed_truncated",): 0}
    found = samples(await world.metrics.detailed(["transitions"], "*.q"))
    assert found["ringfaust_queue_transitions_total", "other.q", "added"] == 1
    assert ("ringfaust_queue_transitions_total", "q", "added") not in found


async def test_a_queue_in_several_partitions_is_one_of_all_its_messages() -> None:
    """Prometheus drops a second sample with the same labels."""
    parts = [Partition({"q": {"ring_size": 3}}) for _ in range(2)]
    for number, each in enumerate(parts, 1):
        each.send("q", *"abcde")
        each.numbers.rates["q"] = {"added": number * 0.5, "acked": 0.25}
    world = World(parts[0])
    world.works = parts
    for pattern in ("q", "#"):
        body = await world.metrics.detailed(FAMILIES, pattern)
        lines = [line for line in body.decode().splitlines() if line[0] != "#"]
        names = [line.rpartition(" ")[0] for line in lines]
        assert sorted(names) == sorted({*names})
        found = samples(body)
        assert found["ringfaust_queue_messages", "q", "ready"] == 6
        assert found["ringfaust_queue_transitions_total", "q", "added"] == 10
        assert found["ringfaust_queue_evicted_messages_total", "q", "overflow"] == 4
        assert found["ringfaust_time_to_overwrite_seconds", "q"] == pytest.approx(4 / 3)


async def test_a_pattern_of_many_wildcards_is_answered() -> None:
    """A matcher that tries every number of words for each `#` would never answer."""
    work = Partition({"#": {}})
    work.send("a." * 100 + "a", "m")
    found = samples(await World(work).metrics.detailed(["messages"], "#.a." * 50 + "b"))
    assert found == {("ringfaust_detailed_truncated",): 0}


class ManyQueues:
    """A state with very many queues."""

    def __init__(self, count: int) -> None:
        row = SimpleNamespace(counts=(60, 5, 1, 166, 0, 100, 0, 0, 0, 0, 0, 0))
        self.reads = 0
        self.rows = [(f"departures.airport-{n:06}", row) for n in range(count)]

    def stored_queues(self, after: str | None, most: int) -> list[tuple[str, Any]]:
        self.reads += 1
        start = 0 if after is None else int(after.rpartition("-")[2]) + 1
        return self.rows[start : start + most]


async def test_the_count_leaves_a_partition_that_is_revoked_while_it_counts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its store is closed by then."""
    monkeypatch.setattr(numbers, "_BETWEEN_ROWS_S", 0)
    first = SimpleNamespace(
        number=0, numbers=PartitionNumbers(), state=ManyQueues(numbers._ROWS + 1)
    )
    revoked = SimpleNamespace(number=1, state=SimpleNamespace(stored_queues=Mock()))
    world = World(first)
    world.works.append(revoked)
    counting = asyncio.ensure_future(world.count())
    await until(lambda: first.state.reads)  # the first rows of the first partition are counted
    world.works.remove(revoked)
    await counting
    assert first.numbers.holding is not None
    assert not revoked.state.stored_queues.called


@pytest.mark.parametrize("number", [0, 1], ids=["behind it", "before it"])
async def test_a_partition_that_is_revoked_while_queues_are_looked_up_is_left_out(
    number: int,
) -> None:
    """Its store is closed by then, whether it has been read before the others or not."""

    def partition(number: int) -> Any:
        stored = ManyQueues(numbers._ROWS).stored_queues
        state = SimpleNamespace(
            stored_queues=Mock(side_effect=stored), queue=Mock(return_value=None)
        )
        found = busy(ManyQueues(numbers._ROWS))
        return SimpleNamespace(number=number, numbers=found, state=state)

    staying, revoked = partition(number), partition(1 - number)
    world = World(staying)
    world.works.append(revoked)
    looking = asyncio.ensure_future(world.metrics.detailed(["overwrite"], "#"))
    await asyncio.sleep(0)  # the first rows have been read
    world.works.remove(revoked)
    await looking
    assert staying.state.queue.called
    assert not revoked.state.queue.called
    assert revoked.state.stored_queues.call_count == number


async def test_others_run_between_the_queues_that_a_scrape_reads() -> None:
    """R122: reading a queue that is not in memory takes long."""
    turn, read_in, rows = 0, [], []

    def read(name: str) -> None:
        read_in.append(turn)

    def stored(after: str | None, most: int) -> list[tuple[str, Any]]:
        found = queues.stored_queues(after, most)
        rows.append((turn, len(found)))
        return found

    queues = ManyQueues(1_000)
    state = SimpleNamespace(stored_queues=stored, queue=read)
    work = SimpleNamespace(number=0, numbers=busy(queues), state=state)
    families = ["messages", "transitions", "evicted", "overwrite"]
    asked = asyncio.ensure_future(World(work).metrics.detailed(families, "#"))
    while not asked.done():
        turn += 1
        await asyncio.sleep(0)
    assert len(read_in) == len({*read_in}) == MOST_QUEUES
    assert len(rows) == len({at for at, _ in rows})
    assert max(found for _, found in rows) <= 25


async def test_a_hundred_thousand_queues_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "_BETWEEN_ROWS_S", 0)
    work = Partition({})
    view = SimpleNamespace(
        number=0, unit="0", name="partition 0", state=ManyQueues(100_000), numbers=work.numbers,
        tps=work.tps, positions={}, paused_topics={}, wall_ms=work.wall_ms, is_caught_up=True,
        blocked="",
    )  # fmt: skip
    evictions = counted(f"departures.airport-{n:06}" for n in range(100_000))
    work.numbers.commit({}, Activity((), evictions, (), ()), 0.1)
    world = World(view)
    await world.count()
    body = world.metrics.coarse()
    found = samples(body)
    assert found["ringfaust_partition_queues", "0"] == 100_000
    assert found["ringfaust_partition_messages", "0", "ready"] == 6_000_000
    assert len(body) < 10_000
    answer = await world.metrics.detailed(["messages", "transitions", "evicted"], "#")
    assert samples(answer)["ringfaust_detailed_truncated",] == 1
    assert answer.count(b'state="ready"') == MOST_QUEUES
    assert len(answer) < 1_000_000


def test_queues_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_numbers, "MOST_COUNTED", 2)
    done = PartitionNumbers()
    done.commit({}, Activity((), counted("abcda"), (), ()), 0.1)
    assert done.evicted["overflow"] == {"a": 2, "b": 1, OTHERS: 2}


def test_the_accounts_of_a_broken_queue_are_not_balanced(work: Partition) -> None:
    counts = work.state.queues["q"].counts
    assert Holding().with_queue(counts).is_balanced
    counts.added += 1
    assert not Holding().with_queue(counts).is_balanced


async def test_the_pages(world: World) -> None:
    async with TestClient(TestServer(web_app(world.health, world.metrics, WebConfig()))) as client:

        async def get(path: str) -> tuple[int, str]:
            async with client.get(path) as answer:
                return answer.status, await answer.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (200, "ready\n")
        world.task.trouble = "recovering"
        world.silent_s = 60.0
        assert await get("/readyz") == (
            503, "partition 0: recovering\nthe brokers do not answer\n",
        )  # fmt: skip
        status, text = await get("/metrics")
        assert status == 200
        assert "\nringfaust_ready 0.0\n" in text
        assert "\nringfaust_brokers_connected 0.0\n" in text
        status, text = await get("/metrics/detailed?family=mesages")
        assert (status, "use one or more of messages, " in text) == (400, True)
        world.task.trouble = ""
        status, text = await get("/metrics/detailed?family=messages&queue=q")
        assert 'ringfaust_queue_messages{queue="q",state="ready"} 3.0' in text


@pytest.mark.parametrize("path", ["/metrics", "/metrics/detailed", "/healthz", "/readyz"])
async def test_only_names_of_the_worker_are_answered(world: World, path: str) -> None:
    """Otherwise a web site reads queue names, having pointed its own name at the worker."""
    app = web_app(world.health, world.metrics, WebConfig(hosts="worker-1"))
    async with TestClient(TestServer(app)) as client:
        for host, status in (
            ("localhost:6066", 200), ("10.0.0.7", 200), ("worker-1:6066", 200),
            (socket.gethostname(), 200), ("evil.example", 421), ("worker-1.evil.example", 421),
        ):  # fmt: skip
            async with client.get(path, headers={"Host": host}) as answer:
                assert answer.status == status, host
                assert (await answer.text()).startswith("This page answers") == (status == 421)


async def test_a_port_in_use_is_named(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"127.0.0.1, port {port}: .*in use"):
            pages = web_app(world.health, world.metrics, WebConfig())
            async with served(pages, "127.0.0.1", port):
                pass
    with pytest.raises(CannotListen, match=r"on rings\.\.example, port \d+: .*label"):
        async with served(pages, "rings..example", port):
            pass


def test_a_worker_whose_port_is_in_use_refuses_to_start(tmp_path: Path) -> None:
    """It started, and ended with status 1: a supervisor would not have stopped for that."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        pages = WebConfig(enabled=True, port=taken.getsockname()[1])
        worker = WorkerConfig(bootstrap_servers="127.0.0.1:1", data_dir=tmp_path, web=pages)
        with pytest.raises(CannotListen):
            run(worker, QueuesConfig())


async def test_lag_and_dead_letters_of_a_repartitioned_topic_are_known(world: World) -> None:
    """Alerts look at these numbers."""
    config = SimpleNamespace(max_record_bytes=1_000, cloud_events_of="")
    context: Any = SimpleNamespace(partitions=1, processor_config=config)
    world.task.work = work = RepartitionWork(Route("orders", "{header:to}"), 2, context, 0)
    work.restore(None, {}, list)  # type: ignore[arg-type]
    name = "ringfaust_partition_written_records_total"
    assert samples(world.metrics.coarse())[name, "orders/2", "dead"] == 0
    good = FetchedRecord("orders", 2, 0, headers=[("to", b"q")])
    work.decide(iter([good, FetchedRecord("orders", 2, 1)]), 0)
    pending = work.take_commit(0)
    assert pending is not None
    work.committed(pending, 0.1)
    found = samples(world.metrics.coarse())
    assert found[name, "orders/2", "dead"] == found[name, "orders/2", "events"] == 1
    assert found["ringfaust_partition_lag_records", "2", "orders"] == 98
    world.task.trouble = "opening"
    assert (name, "orders/2", "dead") not in samples(world.metrics.coarse())


async def test_alerts_and_dashboard_name_only_metrics_that_exist(world: World) -> None:
    exported = world.metrics.coarse() + await world.metrics.detailed(
        ["messages", "transitions", "evicted", "overwrite"], "#"
    )
    known = {UP, *re.findall(r"^# TYPE (\S+)", exported.decode(), re.MULTILINE)}
    rules = yaml.safe_load((COMPOSE / "prometheus-alerts.yaml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning")
    dashboard = json.loads((COMPOSE / "grafana-dashboard.json").read_text())
    panels = [target["expr"] for each in dashboard["panels"] for target in each["targets"]]
    asked = [*(rule["expr"] for rule in alerts), *panels]
    for expression in asked:
        named = re.findall(r"\b(?:ringfaust|process)_\w+|\bup\b", expression)
        assert named, expression
        bases = {re.sub(r"_bucket$", "", name) for name in named} - {"up"}
        assert bases <= known, expression
    scrape = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())
    assert [each["job_name"] for each in scrape["scrape_configs"]][0] == "ringfaust"
