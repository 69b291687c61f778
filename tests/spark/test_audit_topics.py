"""The audit of real topics: a worker's history balances, each fault in a copy is reported."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.offsets import topic_offsets
from ringfaust.spark.audit.period import PeriodReader, day_at, end_of
from ringfaust.spark.audit.report.page import write_report
from ringfaust.spark.audit.rounds import audit
from ringfaust.spark.audit.show import headline
from ringfaust.spark.audit.sources import AuditRequest, read_events, read_outputs, topics_of
from ringfaust.spark.audit.verdict import Verdict, reconcile
from ringfaust.spark.kafka import client_options, read_topics
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import reader_of
from tests.chaos.harness import Application, command, environment, until
from tests.chaos.load import KEYS, LONGEST_MS, RING_SIZE, Load, ask_lists, queue_of
from tests.chaos.rounds import new_application
from tests.chaos.verdict import wait_until_read
from tests.spark.shared_session import for_small_data, run, run_command
from tests.spark.test_report import CHARTS

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(3_600),
]

COPIED = (Role.EVENTS, Role.EVICTED, Role.DISPATCHED, Role.DEAD)
WINDOW = "10 seconds"
FEW = 1_500
"""Messages of the history that is not slow to write."""
EVICTED = 50
"""Messages that are evicted however fast the load is consumed."""
EXPIRED = 5
"""Messages that expire, as nobody consumes them."""


async def history(folder: Path, broker: EmbeddedBroker, messages: int, rate: int) -> Application:
    """Topics as a real worker writes them, with every outcome; the worker has stopped."""
    app = new_application(folder, broker.bootstrap_servers, f"readings-{folder.parent.name}")
    try:
        worker = app.new_worker()
        load = Load(app, app.inputs[0], seed=7, rate=rate)
        await ask_lists(app)  # it is ready: what the load sends meanwhile would have no bound
        await load.start()
        await some_of_each(app, load)
        await until(lambda: load.produced >= messages, messages / 500 + 60, "all are sent")
        await load.control(KEYS[5], type="list")
        await load.control(KEYS[6], type="detach", consumer="nobody")
        await load._producer.send(
            load._topic, b"?", key=KEYS[0].encode(), headers=[("ringfaust-priority", b"high")]
        )
        rest_at = time.monotonic() + LONGEST_MS / 1000
        await load.stop()
        await wait_until_read(app, messages / 1_000 + 60)
        await keep_some(app)
        await wait_until_read(app, 60)
        await asyncio.sleep(max(rest_at - time.monotonic(), 0) + 0.5)  # every ttl and delay is over
        assert await asyncio.to_thread(worker.stop) == 0
    finally:
        app.end()
    return app


async def keep_some(app: Application) -> None:
    """Attach consumers that keep their deliveries."""
    async with AIOKafkaProducer(bootstrap_servers=app.servers, acks="all") as producer:
        for key in KEYS[:4]:
            attach = {"type": "attach", "queue": queue_of(key), "consumer": "keeper", "credit": 5}
            await producer.send(app.topic("control"), json.dumps(attach).encode(), key=key.encode())


async def some_of_each(app: Application, load: Load) -> None:
    """Send to quiet queues, ack and reject there, fill one, and let some expire.

    The load may do none of it.
    """
    for _ in range(RING_SIZE + EVICTED):
        await load._producer.send(load._topic, b"full", key=b"full")
    for _ in range(EXPIRED):
        headers = [("ringfaust-ttl-ms", b"1")]
        await load._producer.send(load._topic, b"brief", key=b"brief", headers=headers)
    keys = [f"calm-{number}" for number in range(8)]
    for key in keys:
        for number in range(6):
            headers = [("ringfaust-id", b"%d" % number), ("kind", b"calm")]
            await load._producer.send(load._topic, b"calm", key=key.encode(), headers=headers)
        await load.control(key, type="attach", consumer="calm", credit=6)
    await until_dispatched(app, 6 * len(keys))
    for key in keys:
        for number, done in enumerate(("ack", "reject", "reject", "release", "reject")):
            await load.control(key, type=done, consumer="calm", message=str(number))


async def until_dispatched(app: Application, deliveries: int) -> None:
    """Wait for the deliveries to the consumer `calm`."""
    async with asyncio.timeout(60), reader_of(app, "dispatched") as consumer:
        while deliveries:
            record = await consumer.getone()
            deliveries -= ("ringfaust-consumer", b"calm") in record.headers


class Faults:
    """Chooses records of the copy to omit, to duplicate and to alter; knows the findings."""

    def __init__(self, spark: SparkSession, worker: WorkerConfig) -> None:
        self._spark = spark
        self._worker = worker
        self.expected: set[tuple[Any, ...]] = set()
        """(kind, queue, sequence, id, source) of the affected messages."""

    def pick(self, role: Role) -> dict[str, int]:
        """Offsets in partition 0 of three messages of a topic, by fault."""
        found = read_outputs(
            read_topics(self._spark, self._worker, [self._worker.topic(role)]), self._worker
        )
        found = found.filter((F.col("partition") == 0) & (F.col("role") == str(role)))
        # Different messages, so that their findings are not merged.
        found = found.groupBy("queue", "sequence").agg(
            F.max("offset").alias("offset"), F.max("id").alias("id"),
            F.max("source").alias("source"), F.count("*").alias("times"),
        ).filter("times = 1")  # fmt: skip
        number = found.count() // 5
        three = found.orderBy("offset").collect()[number :: number + 1][:3]
        kinds = ("missing", "doubled", "altered")
        for kind, row in zip(kinds, three, strict=True):
            self.expected.add((kind, row["queue"], int(row["sequence"]), row["id"], row["source"]))
        return dict(zip(kinds, (row["offset"] for row in three), strict=True))


def copied(
    spark: SparkSession, apps: tuple[WorkerConfig, WorkerConfig], role: Role,
    faults: Mapping[str, int] | None = None, altered: Any = None, *, partition: int = 0,
) -> None:  # fmt: skip
    """Copy a topic with its partitions and order, and put the faults into one partition."""
    (worker, copy), faults = apps, faults or {}
    here = F.col("partition") == partition
    at = {kind: here & (F.col("offset") == offset) for kind, offset in faults.items()}
    value = F.col("value")
    if "altered" in at:
        value = F.when(at["altered"], altered).otherwise(value)
    times = F.lit(1)
    for kind, count in (("missing", 0), ("doubled", 2)):
        if kind in at:
            times = F.when(at[kind], count).otherwise(times)
    record = F.struct("partition", "key", value.alias("value"), "headers")
    frame = read_topics(spark, worker, [worker.topic(role)])
    frame = frame.select(F.explode(F.array_repeat(record, times)).alias("it")).select("it.*")
    options = client_options(worker) | {"topic": copy.topic(role), "includeHeaders": "true"}
    frame.write.format("kafka").options(**options).save()


def in_copy(spark: SparkSession, app: Application, copy: WorkerConfig) -> Verdict:
    """Audit the copied outputs against the original inputs."""
    worker = app.worker_config
    request = AuditRequest(worker, app.queues_config, WINDOW)
    topics = topics_of(request)
    offsets = asyncio.run(topic_offsets(worker, [*topics["inputs"], *topics["ours"]]))
    outputs = [copy.topic(role) for role in COPIED if role is not Role.EVENTS]
    data = replace(
        PeriodReader(spark, request, offsets).read(),
        lines=read_events(read_topics(spark, copy, [copy.topic(Role.EVENTS)])),
        outputs=read_outputs(read_topics(spark, copy, outputs), copy),
        offsets={},
    )
    return reconcile(request, data)


def make_copy(app: Application, folder: Path) -> WorkerConfig:
    """Create the topics of another application of the same shape."""
    other = Application(
        folder, app.servers, json.loads(app.queues_config.model_dump_json(exclude_defaults=True))
    )
    other.create_topics()
    return other.worker_config


def named(verdict: Verdict) -> list[Row]:
    return verdict.findings.collect()


def lines_of(spark: SparkSession, worker: WorkerConfig) -> DataFrame:
    return read_events(read_topics(spark, worker, [worker.topic(Role.EVENTS)]))


@pytest.fixture(
    scope="module",
    params=[FEW, pytest.param(1_000_000, marks=pytest.mark.slow)],
    ids="{:,} messages".format,
)
def app(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Application:
    folder = tmp_path_factory.mktemp(f"audit-{request.param}")
    rate = 4_000 if request.param == FEW else 1_000_000
    return asyncio.run(history(folder / "app", broker, request.param, rate))


def check_report(page: Path, verdict: Verdict) -> None:
    """The report contains the verdict and every chart."""
    text = page.read_text(encoding="utf-8")
    assert "flights &lt;b&gt;" in text
    assert headline(verdict) in text
    for name in ("evicted", "acked"):
        assert f"<td>{verdict.totals[name]:,}</td>" in text
    assert text.count("<figure") == len(CHARTS)
    for name in CHARTS:
        for theme in ("light", "dark"):
            assert (page.parent / f"{name}-{theme}.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def verdict(spark: SparkSession, app: Application) -> Verdict:
    """That of the topics."""
    began = time.monotonic()
    found = audit(spark, AuditRequest(app.worker_config, app.queues_config, WINDOW))
    print(f"{found.inputs:,} messages in {time.monotonic() - began:.0f} s")
    return found


def test_a_real_history_balances(verdict: Verdict) -> None:
    """There are no false alarms, and the history contains every outcome."""
    assert named(verdict) == []
    assert verdict.balanced
    assert verdict.inputs >= FEW
    assert verdict.waiting == verdict.repeats == 0
    assert min(verdict.totals[n] for n in ("acked", "evicted", "expired", "dead")) > 0
    assert min(verdict.totals[n] for n in ("ready", "delivering")) > 0
    assert verdict.totals["added"] == verdict.inputs - 1  # one is undecodable
    assert verdict.windows is not None
    total = verdict.windows.agg(F.sum("added"), F.sum("evicted")).first()
    assert total is not None
    assert tuple(total) == (verdict.totals["added"], verdict.totals["evicted"])


@pytest.mark.slow
def test_the_report_of_a_real_history(verdict: Verdict, tmp_path: Path) -> None:
    """`test_report` checks that of a small one."""
    check_report(write_report(tmp_path / "report", "flights <b>", verdict), verdict)


@pytest.mark.slow
def test_each_fault_is_reported(spark: SparkSession, app: Application, tmp_path: Path) -> None:
    """Each topic has a record omitted, one duplicated and one altered: exactly these are found.

    The faults of the outputs are in partition 0, those of the events in partition 1, whose records
    contain lines of many messages.
    """
    worker, copy = app.worker_config, make_copy(app, tmp_path)
    faults = Faults(spark, worker)
    changed = F.concat(F.col("value"), F.lit(b"!"))
    for role in (Role.EVICTED, Role.DISPATCHED, Role.DEAD):
        copied(spark, (worker, copy), role, faults.pick(role), changed)
    lines = lines_of(spark, worker).filter("partition = 1").cache()
    lost, victim = damage_events(spark, (worker, copy), lines)
    verdict = in_copy(spark, app, copy)
    assert not verdict.balanced
    found = named(verdict)
    of_outputs = [row for row in found if row["partition"] == 0]
    fields = ("kind", "queue", "sequence", "id", "source")
    assert {tuple(row[name] for name in fields) for row in of_outputs} == faults.expected
    assert len(of_outputs) == 9
    check_event_findings(
        [row for row in found if row["partition"] != 0], lost, victim, worker.topic("events")
    )


def damage_events(
    spark: SparkSession, apps: tuple[WorkerConfig, WorkerConfig], lines: DataFrame
) -> tuple[DataFrame, Row]:
    """Copy the events with three faults; the lines that are lost, and the line that is altered."""
    evicted = lines.filter("event = 'evicted'")
    offsets = [
        row["offset"] for row in evicted.select("offset").distinct().orderBy("offset").collect()
    ]
    third = len(offsets) // 4
    at = dict(zip(("missing", "doubled", "altered"), offsets[third::third][:3], strict=True))
    lost = lines.filter(F.col("offset") == at["missing"])
    # Not a message of the lost record, so that their findings are not merged.
    victim = (
        evicted.filter(F.col("offset") == at["altered"])
        .join(lost, ["queue", "sequence"], "left_anti").orderBy("line").first()
    )  # fmt: skip
    assert victim is not None
    changed = F.regexp_replace(
        F.col("value").cast("string"),
        rf'("id":"{victim["id"]}","reason":[^\n]*?"age_ms":)\d+',
        "$1987654321",
    )
    copied(spark, apps, Role.EVENTS, at, changed.cast("binary"), partition=1)
    return lost, victim


def check_event_findings(rows: list[Row], lost: DataFrame, victim: Row, topic: str) -> None:
    """The findings are those of the lost record, the duplicated record and the altered line."""
    of_messages = {
        (row["queue"], row["sequence"]) for row in rows
        if row["queue"] and (row["queue"], row["sequence"]) != (victim["queue"], victim["sequence"])
    }  # fmt: skip
    in_record = {
        tuple(row) for row in lost.filter("sequence is not null").select("queue", "sequence")
        .distinct().collect()
    }  # fmt: skip
    # A lost line that acked a message or made it due leaves no trace elsewhere; commands do.
    provable = lost.filter(
        F.col("event").isin("added", "scheduled", "dispatched", "evicted", "expired", "dead")
    )
    assert of_messages <= in_record
    assert of_messages >= {
        tuple(row) for row in provable.select("queue", "sequence").distinct().collect()
    }
    causes = lost.select("event", "by", "source").collect()
    commands = {row["by"] for row in causes if row["event"] == "done"}
    missing = {row["source"] for row in rows if not row["queue"] and row["kind"] == "missing"}
    # None of them comes from a fault of the outputs. Numbers of lost deliveries have no source.
    sources = {row["by"] for row in causes} | {row["source"] for row in causes} | {None}
    assert commands <= missing <= sources
    doubled = [row for row in rows if row["kind"] == "doubled"]
    assert [row["record"].rpartition("/")[0] for row in doubled] == [f"{topic}/1"]
    altered = [(row["queue"], row["sequence"]) for row in rows if row["kind"] == "altered"]
    assert altered == [(victim["queue"], victim["sequence"])]


short = pytest.mark.parametrize("app", [FEW], ids="{:,} messages".format, indirect=True)


@short
def test_the_command_closes_the_days_of_a_lake(
    spark: SparkSession, app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, config = tmp_path / "lake", str(app.folder / app.config_dir)
    run(spark, "spark", "lake", "--once", "--to", str(lake), "--config", config)
    # As if it were tomorrow.
    now_ms = time.time_ns() // 1_000_000
    today = day_at(now_ms)
    monkeypatch.setattr("ringfaust.spark.audit.rounds.last_end", lambda *_: end_of(today))
    asked = ("spark", "audit", "--lake", str(lake), "--config", config)
    done = run_command(spark, *asked, "--json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    days = [line for line in lines if line["type"] == "day"]
    assert all(day["balanced"] for day in days)
    (after,) = [line for line in lines if line["type"] == "verdict"]
    assert (after["balanced"], after["inputs"], after["events"]) == (True, 0, 0)
    # All inputs but the undecodable one have entered a queue.
    assert sum(day["inputs"] for day in days) == after["added"] + 1 > FEW
    assert after["evicted"] >= EVICTED

    again = run_command(spark, *asked, "--until", "2100-01-01")
    assert again.exit_code == 0
    assert f"There is no day to close: {today} is the last." in again.output
    # Another lake of the same topics that has not read the outputs.
    shutil.rmtree(lake / "state/audit")
    shutil.rmtree(lake / "state/checkpoints/outputs/commits")
    refused = run_command(spark, *asked, "--until", "2100-01-01")
    assert refused.exit_code == 2
    assert "only up to offset 0" in refused.output


@short
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--since", "2026-01-31"), "only a lake keeps closed days"),
        (("--lake", "/nowhere", "--until", "31.1.2026"), "use a date in UTC"),
        (("--lake", "/nowhere", "--until", "2999-01-01"), "is in the future"),
        (("--lake", "/nowhere", "--since", "2026-01-02", "--until", "2026-01-02"), "must be later"),
        (("--lake", "/nowhere", "--every", "1m", "--until", "2026-01-02"), "has no use with"),
        (("--lake", "/nowhere"), "there is no lake at /nowhere"),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, app: Application, options: tuple[str, ...], text: str
) -> None:
    config = str(app.folder / app.config_dir)
    refused = run_command(spark, "spark", "audit", "--config", config, *options)
    assert refused.exit_code == 2
    assert text in " ".join(refused.output.split())


@short
@pytest.mark.slow
def test_the_command_repeats_the_audit_and_returns_an_exit_status(app: Application) -> None:
    """It audits round after round until SIGTERM."""
    asked = ("spark", "audit", "--config", app.config_dir)
    rounds = command(*asked, "--json", "--window", "1h", "--every", "1s")
    reports: list[list[dict[str, Any]]] = []
    with subprocess.Popen(
        rounds, cwd=app.folder, env=for_small_data(app.folder) | environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in map(json.loads, process.stdout):
            if line["type"] == "verdict":
                reports.append([])
            reports[-1].append(line)
            if len(reports) == 2 and len(reports[1]) == len(reports[0]):
                process.terminate()
    assert process.returncode == 0
    first, second = reports
    assert first[0]["balanced"] and second[0]["balanced"]
    assert first[1:] == second[1:]
    assert {line["type"] for line in first} == {"verdict", "queue", "window"}
    odd = app.run(*asked, "--window", "1 fortnight")
    assert (odd.returncode, odd.stdout) == (2, "")
    assert "write it like 500ms, 5s" in odd.stderr
