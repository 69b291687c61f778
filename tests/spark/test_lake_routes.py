"""The lake while routes come and go: each record of the topics that they name is there once."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import Collection
from pathlib import Path
from unittest.mock import patch

import pytest
from aiokafka.admin import NewPartitions, RecordsToDelete
from aiokafka.structs import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from typer.testing import Result

from ringfaust.config import QueuesConfig, WorkerConfig, load_queues
from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol.records import Role
from ringfaust.protocol.revisions import Configuration, revision_rows
from ringfaust.spark.audit.offsets import CannotAudit, compacted_topics
from ringfaust.spark.audit.period import PeriodReader
from ringfaust.spark.audit.rounds import audit_offsets
from ringfaust.spark.audit.sources import AuditRequest
from ringfaust.spark.lake import command, inputs
from ringfaust.spark.lake import stream as lake_stream
from ringfaust.spark.lake.stream import LakeStream, streams
from ringfaust.spark.lake.tables import read
from ringfaust.spark.topic_ids import current_ids
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.batched_lake import WORKER, copy_empty
from tests.spark.lake_history import make_topics
from tests.spark.shared_session import run_command
from tests.spark.topics import make_topic, write_records

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]


class RoutedLake:
    """A lake of an application whose routes change. Each topic begins with three records."""

    def __init__(self, spark: SparkSession, worker: WorkerConfig, folder: Path) -> None:
        self.spark, self.worker = spark, worker
        self.root, self.folder = str(folder / "lake"), folder
        self.name = f"of{uuid.uuid4().hex[:6]}"
        copy_empty(spark, Path(self.root))
        (folder / "worker.yaml").write_text(worker.model_dump_json(exclude_defaults=True))
        for topic in ("a", "b"):
            self.make(topic)
            self.send(topic, 3)

    def topic(self, name: str) -> str:
        return f"{self.name}.{name}"

    def make(self, topic: str) -> None:
        make_topic(self.worker, self.topic(topic), 1)

    def send(self, topic: str, records: int, partition: int = 0) -> None:
        record = {"topic": self.topic(topic), "value": b"message", "key": b"k"}
        record["partition"] = partition
        asyncio.run(write_records(self.worker.bootstrap_servers, [record] * records))

    def drop(self, topic: str, before: int) -> None:
        """What retention does."""
        first = RecordsToDelete(before_offset=before)
        self._admin("delete_records", {TopicPartition(self.topic(topic), 0): first})

    def delete(self, topic: str) -> None:
        self._admin("delete_topics", [self.topic(topic)])

    def id_of(self, topic: str) -> str:
        return asyncio.run(current_ids(self.worker, [self.topic(topic)]))[self.topic(topic)]

    def grow(self, topic: str) -> None:
        self._admin("create_partitions", {self.topic(topic): NewPartitions(2)})

    def _admin(self, request: str, argument: object) -> None:
        async def ask() -> None:
            async with connected_admin(self.worker.client_options()) as admin:
                await getattr(admin, request)(argument)

        asyncio.run(ask())

    def write_routes(self, *routes: str) -> QueuesConfig:
        """Let queues.yaml have routes of these topics."""
        config = {
            "routes": [{"topic": self.topic(topic), "queue": "q"} for topic in routes],
            "queues": {"q": {"ring_size": 3}},
        }
        (self.folder / "queues.yaml").write_text(json.dumps(config))
        return QueuesConfig.model_validate(config)

    def apply(self, *routes: str) -> None:
        """What `ringfaust apply` writes."""
        topic = self.worker.topic(Role.CONFIGURATION)
        make_topic(self.worker, topic, 1)
        document = self.write_routes(*routes).document()
        (row,) = revision_rows(topic, [Configuration(1, document, "ann", "", 1)])
        record = {"topic": topic, "key": row.key, "value": row.value, "partition": 0}
        asyncio.run(write_records(self.worker.bootstrap_servers, [record]))

    def try_to_read(self, *routes: str) -> Result:
        """Run the command with routes of these topics, without the streams of other topics."""
        self.write_routes(*routes)
        arguments = ("--to", self.root, "--config", str(self.folder))
        with patch.object(command, "streams", _inputs_alone):
            return run_command(self.spark, "spark", "lake", "--once", *arguments)

    def read(self, *routes: str) -> None:
        """Run the command; it must succeed."""
        done = self.try_to_read(*routes)
        assert done.exit_code == 0, done.output

    def inputs(self) -> list[str]:
        """The records of the producers' topics, as topic/partition/offset."""
        rows = read(self.spark, self.root, "bronze").where(f"topic like '{self.name}.%'")
        found = rows.selectExpr("topic", "partition", "offset").collect()
        names = {self.topic(name): name for name in ("a", "b", "c")}
        return sorted(f"{names[t]}/{p}/{o}" for t, p, o in found if t in names)


def _inputs_alone(root: str, worker: WorkerConfig, topics: Collection[str]) -> list[LakeStream]:
    """The stream of what workers read.

    Those of events and outputs, which have nothing to do with routes, would take most of each run.
    `test_lake` runs all three.
    """
    return [each for each in streams(root, worker, topics) if each.name == inputs.STREAM]


@pytest.fixture(scope="module")
def worker(broker: EmbeddedBroker) -> WorkerConfig:
    """An application for all tests. Its own topics stay empty."""
    found = WORKER.model_copy(update={"bootstrap_servers": broker.bootstrap_servers})
    asyncio.run(make_topics(found))
    return found


@pytest.fixture
def lake(spark: SparkSession, worker: WorkerConfig, tmp_path: Path) -> RoutedLake:
    return RoutedLake(spark, worker, tmp_path)


def places(**offsets: range) -> list[str]:
    return sorted(f"{topic}/0/{offset}" for topic, of in offsets.items() for offset in of)


BOTH = places(a=range(3), b=range(3))


def test_routes_are_those_that_were_applied(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The file of the machine that runs the job may be an older one (R128)."""
    found = {"bootstrap_servers": broker.bootstrap_servers, "application": "has-applied"}
    worker = WORKER.model_copy(update=found)
    asyncio.run(make_topics(worker))
    lake = RoutedLake(spark, worker, tmp_path)
    shutil.rmtree(lake.root)  # of the application of the other tests
    lake.apply("a", "b")
    done = lake.try_to_read("a")
    assert done.exit_code == 0, done.output
    assert "queues.yaml of this worker differs from revision 1, which ann applied" in done.stderr
    assert lake.inputs() == BOTH

    audited = run_command(spark, "spark", "audit", "--json", "--config", str(tmp_path))
    assert audited.exit_code == 0, audited.output
    assert "queues.yaml of this worker differs from revision 1" in audited.stderr
    verdict = json.loads(audited.stdout.splitlines()[-1])
    assert (verdict["inputs"], verdict["waiting"]) == (6, 6)

    (tmp_path / "rows.csv").write_text("text\nhello\n")
    rows = ("backfill", f"{tmp_path}/rows.csv", "--format", "csv", "--topic", lake.topic("b"))
    dead = ("redrive", "--lake", lake.root, "--from", "dead", "--where", "true")
    for status, *arguments in (
        (0, *rows, "--dry-run"),
        (0, *dead, "--dry-run"),
        (2, "rewind", "--queue", "unknown", "--ring-size", "3"),
        (2, "move-to-worker", "--checkpoint", f"{tmp_path}/none"),
    ):
        ran = run_command(spark, "spark", *map(str, arguments), "--config", str(tmp_path))
        assert ran.exit_code == status, ran.output
        assert "queues.yaml of this worker differs from revision 1" in ran.stderr


def test_the_audit_asks_which_topics_are_compacted(worker: WorkerConfig) -> None:
    names = [f"compacted-{uuid.uuid4().hex[:6]}", f"kept-{uuid.uuid4().hex[:6]}", "missing"]
    make_topic(worker, names[0], 1, {"cleanup.policy": "compact,delete"})
    make_topic(worker, names[1], 1)
    assert asyncio.run(compacted_topics(worker, names)) == {names[0]}


def test_a_route_that_comes_back_continues_where_it_stopped(lake: RoutedLake) -> None:
    lake.read("a", "b")
    assert lake.inputs() == BOTH
    lake.send("a", 2)
    lake.send("b", 2)
    lake.read("a")
    assert lake.inputs() == places(a=range(5), b=range(3)), "the lake keeps reading topic a"
    lake.send("a", 1)
    lake.read("a")
    assert lake.inputs() == places(a=range(6), b=range(3)), "also in the next run"
    lake.send("a", 1)
    lake.read("a", "b")
    assert lake.inputs() == places(a=range(7), b=range(5))
    lake.read()
    lake.send("a", 1)
    lake.send("b", 1)
    lake.read("b")
    assert lake.inputs() == places(a=range(7), b=range(6))


def test_records_may_be_dropped_without_their_route_once_they_were_read(lake: RoutedLake) -> None:
    lake.read("a", "b")
    lake.read("a")
    lake.send("b", 2)
    lake.drop("b", before=3)
    lake.read("a", "b")
    both = places(a=range(3), b=range(5))
    assert lake.inputs() == both
    lake.read("a")
    lake.send("b", 3)
    lake.drop("b", before=7)
    failed = lake.try_to_read("a", "b")
    assert failed.exit_code == 2
    assert "data may have been lost" in failed.output
    assert "failOnDataLoss" not in failed.output, "no option of this command"
    assert "Traceback" not in failed.output
    assert "tenacity" not in failed.output
    lake.read("a")
    assert lake.inputs() == both, "the lake runs without the route"


def test_a_new_route_begins_where_its_topic_does(lake: RoutedLake) -> None:
    lake.drop("b", before=2)
    lake.read("a")
    lake.read("a", "b")
    assert lake.inputs() == places(a=range(3), b=range(2, 3))
    # A route more or less has a checkpoint of its own, whose loss is noticed.
    shutil.rmtree(Path(lake.root, "state/checkpoints/inputs-2"))
    refused = lake.try_to_read("a")
    assert refused.exit_code == 2
    assert "checkpoint of its stream inputs-2 is missing" in " ".join(refused.output.split())


def test_routes_may_change_before_the_first_record(lake: RoutedLake) -> None:
    for topic in ("a", "b"):
        lake.drop(topic, before=3)
    lake.make("c")
    lake.read("b", "c")
    lake.send("a", 1)
    lake.send("b", 1)
    lake.read("a", "b")
    assert lake.inputs() == places(a=range(3, 4), b=range(3, 4))


def test_the_topic_of_a_removed_route_may_be_deleted(lake: RoutedLake) -> None:
    """The audit reads from the lake what it has of it."""
    lake.read("a", "b")
    lake.send("a", 1)
    lake.send("b", 2)
    lake.delete("b")
    lake.read("a")
    lake.read("a")
    assert lake.inputs() == places(a=range(4), b=range(3))
    queues = load_queues(lake.folder / "queues.yaml")
    request = AuditRequest(lake.worker, queues, lake=lake.root)
    offsets = audit_offsets(lake.spark, request)
    of_inputs = {topic: at for (topic, _), at in offsets.items() if topic.endswith((".a", ".b"))}
    assert of_inputs == {lake.topic("a"): (0, 4), lake.topic("b"): (3, 3)}
    reader = PeriodReader(lake.spark, request, offsets)
    sources = [row["source"] for row in reader.read().inputs.select("source").collect()]
    assert sorted(sources) == [f"{lake.name}.{place}" for place in lake.inputs()]


def test_a_topic_that_was_created_again_is_refused(lake: RoutedLake) -> None:
    """Spark itself notices only that there are fewer partitions or records than it has read."""
    lake.grow("b")
    lake.make("c")
    lake.send("c", 3)
    lake.read("a", "b", "c")
    lake.read("a")
    for topic, sent in (("b", 1), ("c", 5)):
        old = lake.id_of(topic)
        lake.delete(topic)
        lake.make(topic)
        lake.send(topic, sent)
        refused = lake.try_to_read("a", topic)
        assert refused.exit_code == 2
        shown = " ".join(refused.output.split())
        assert f"topic {lake.topic(topic)} was deleted and created again: the lake at" in shown
        assert f"id {old}, and now it has the id {lake.id_of(topic)}." in shown
        assert "Begin a new lake in an empty folder" in shown
        assert lake.inputs() == places(a=range(3), b=range(3), c=range(3))
        queues = load_queues(lake.folder / "queues.yaml")
        request = AuditRequest(lake.worker, queues, lake=lake.root)
        with pytest.raises(CannotAudit, match=f"id {old}, and now it has the id"):
            audit_offsets(lake.spark, request)
    lake.read("a")


def test_a_time_in_nanoseconds_is_explained(lake: RoutedLake) -> None:
    topic = lake.topic("c")
    make_topic(lake.worker, topic, 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    record = {"topic": topic, "value": b"v", "timestamp_ms": 1_700_000_000_000_000_000}
    asyncio.run(write_records(lake.worker.bootstrap_servers, [record]))
    refused = lake.try_to_read("c")
    assert refused.exit_code == 2
    assert "timestamp that Spark cannot read, such as one in nanoseconds" in refused.output


def test_a_second_lake_in_one_folder_is_refused_in_plain_words(lake: RoutedLake) -> None:
    """The other driver completes the batch while this one writes it."""
    lake.read("a")
    lake.send("a", 2)
    commits = Path(lake.root, "state/checkpoints/inputs/commits")
    complete = inputs.complete

    def after_the_other(
        root: str, name: str, spark: SparkSession, batch: int, rows: DataFrame | None
    ) -> None:
        complete(root, name, spark, batch, rows)
        (commits / str(batch)).write_text((commits / "0").read_text())

    with patch.object(inputs, "complete", after_the_other):
        refused = lake.try_to_read("a")
    assert refused.exit_code == 2
    said = "is being written by another run of this command, which has overtaken this one"
    assert said in " ".join(refused.stderr.split())
    lake.read("a")
    assert lake.inputs() == places(a=range(5))


def test_partitions_may_be_added_at_the_same_time(lake: RoutedLake) -> None:
    lake.read("a", "b")
    for topic in ("a", "b"):
        lake.grow(topic)
        lake.send(topic, 1, partition=1)
    lake.read("a")
    assert lake.inputs() == sorted([*BOTH, "a/1/0"])
    lake.read("a", "b")
    assert lake.inputs() == sorted([*BOTH, "a/1/0", "b/1/0"])


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_batch_that_was_not_finished_is_there_once(lake: RoutedLake, fails: str) -> None:
    """A power cut before or after the commit of bronze, then other routes."""
    lake.read("a", "b")
    lake.send("a", 2)
    lake.send("b", 2)
    power_cut = RuntimeError("power cut")
    if fails == "before":
        cut = patch.object(lake_stream, "append", side_effect=power_cut)
    else:  # the start completes the batch before once more
        cut = patch.object(inputs, "complete", side_effect=[None, power_cut])
    with cut:
        failed = lake.try_to_read("a", "b")
    assert "power cut" in failed.output
    lake.delete("b")
    lake.read("a")
    assert lake.inputs() == places(a=range(5), b=range(3 if fails == "before" else 5))
