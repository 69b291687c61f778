"""Backfill on a real broker: what it writes, how often, and what it refuses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, RouteConfig, WorkerConfig
from ringfaust.protocol.partitioner import partition_of
from ringfaust.spark.backfill.command import BackfillRequest, backfill, plan
from ringfaust.spark.backfill.errors import BadRows, CannotBackfill, OtherJob
from ringfaust.spark.backfill.mapping import RowMapping
from ringfaust.spark.options import BackfillOptions, Format
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.topics import all_records, make_topic, read_topic

pytestmark = pytest.mark.kafka

START_MS = 1_357_034_400_000
KEYS = 7
ROWS = 500
MAPPING = RowMapping(key="carrier", timestamp="at", headers=[("n", "n")])


class Bench:
    """A topic, the route that reads it, and rows to write."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, sources: Path) -> None:
        self.spark = spark
        self.worker = WorkerConfig(bootstrap_servers=servers)
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.queues = self.routed()
        self.folder = folder
        self._sources = sources

    def routed(self, queue: str = "by.{key}", **fields: object) -> QueuesConfig:
        fields = fields or {"ring_size": 10}
        routes = [RouteConfig(topic=self.topic, queue=queue)]
        return QueuesConfig(routes=routes, queues={"by.*": fields})

    def rows(self, count: int = ROWS) -> DataFrame:
        at_ms = F.lit(START_MS) + F.pmod(F.col("n") * 7919, F.lit(count)) * 1000
        return (
            self.spark.range(count)
            .withColumnRenamed("id", "n")
            .withColumn("carrier", F.concat(F.lit("C"), F.col("n") % KEYS))
            .withColumn("at", F.timestamp_millis(at_ms))
        )

    def source(self, rows: DataFrame | int) -> str:
        """These rows as Parquet, or so many of `rows`, which all tests share."""
        if isinstance(rows, int):
            path, rows = self._sources / str(rows), self.rows(rows)
        else:
            path = self.folder / uuid.uuid4().hex
        if not path.exists():
            rows.write.parquet(str(path))
        return str(path)

    def request(self, rows: DataFrame | int = ROWS, **fields: object) -> BackfillRequest:
        mapping: Any = fields.pop("mapping", MAPPING)
        options = BackfillOptions(self.source(rows), Format.PARQUET, self.topic)
        return BackfillRequest(self.worker, self.queues, options._replace(**fields), mapping)  # type: ignore[arg-type]

    def run(self, request: BackfillRequest) -> int:
        return backfill(self.spark, request).written


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sources")


@pytest.fixture
def bench(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, sources: Path
) -> Iterator[Bench]:
    bench = Bench(spark, broker.bootstrap_servers, tmp_path, sources)
    make_topic(bench.worker, bench.topic)
    return bench


def test_each_row_is_written_once_with_its_time_and_a_second_run_writes_nothing(
    bench: Bench,
) -> None:
    request = bench.request()
    assert bench.run(request) == ROWS
    found = read_topic(bench.worker, bench.topic)
    expected = {row["n"]: row for row in bench.rows().collect()}
    seen = []
    for partition, records in found.items():
        times = [record.timestamp for record in records]
        assert times == sorted(times)
        for record in records:
            value = json.loads(record.value or b"")
            row = expected[value["n"]]
            seen.append(value["n"])
            assert record.key == row["carrier"].encode()
            assert record.timestamp == int(row["at"].timestamp() * 1000)
            assert list(record.headers) == [("n", str(value["n"]).encode())]
            assert partition == partition_of(record.key, 4)
    assert sorted(seen) == sorted(expected)
    again = backfill(bench.spark, request)
    assert (again.written, again.already_written) == (0, ROWS)
    assert len(all_records(bench.worker, bench.topic)) == ROWS


def test_another_source_under_the_same_name_is_refused(bench: Bench) -> None:
    bench.run(bench.request(name="once"))
    other = bench.request(ROWS + 1, name="once")
    with pytest.raises(OtherJob, match="was started with other rows: 500 rows of parquet"):
        bench.run(other)
    remapped = bench.request(name="once", mapping=replace(MAPPING, headers=()))
    with pytest.raises(OtherJob, match="use another --name"):
        bench.run(remapped)
    assert len(all_records(bench.worker, bench.topic)) == ROWS


def test_bad_rows_stop_the_backfill_before_anything_is_written(bench: Bench) -> None:
    rows = bench.rows().withColumn("prio", F.when(F.col("n") % 100 == 3, 12).otherwise(5))
    rows = rows.withColumn("carrier", F.when(F.col("n") != 8, F.col("carrier")))
    headers = [("ringfaust-priority", "prio")]
    request = bench.request(rows, mapping=replace(MAPPING, headers=headers))
    with pytest.raises(BadRows) as error:
        bench.run(request)
    assert error.value.count == 6
    assert "ringfaust-priority must be a whole number from 0 to 9, not b'12'" in str(error.value)
    assert "the route needs the record's key, which it does not have" in str(error.value)
    assert all_records(bench.worker, bench.topic) == []


def test_bad_rows_can_be_skipped_into_quarantine(bench: Bench) -> None:
    rows = bench.rows().withColumn("carrier", F.when(F.col("n") != 8, F.col("carrier")))
    place = bench.folder / "bad"
    request = bench.request(rows, name="some", skip_bad=str(place))
    result = backfill(bench.spark, request)
    assert (result.written, result.skipped) == (ROWS - 1, 1)
    bad = bench.spark.read.parquet(str(place / "some")).collect()
    assert [(row["what"], json.loads(row["value"])["n"]) for row in bad] == [("queue", 8)]
    assert len(all_records(bench.worker, bench.topic)) == ROWS - 1


def test_a_folder_for_bad_rows_that_cannot_be_written_is_named(bench: Bench) -> None:
    place = bench.folder / "a file"
    place.touch()
    rows = bench.rows().withColumn("carrier", F.when(F.col("n") != 8, F.col("carrier")))
    with pytest.raises(CannotBackfill, match=f"--skip-bad: '{place}/some' cannot be written: "):
        backfill(bench.spark, bench.request(rows, name="some", skip_bad=str(place)))
    assert all_records(bench.worker, bench.topic) == []


def test_an_open_quote_is_refused_also_if_bad_rows_are_skipped(bench: Bench) -> None:
    place = bench.folder / "bad"
    request = bench.request(name="open", skip_bad=str(place))
    source = bench.folder / "open.csv"
    source.write_text('n,carrier\n1,AA\n2,"BB\n3,CC\n')
    options = request.options._replace(source=str(source), kind=Format.CSV)
    request = replace(request, options=options, mapping=RowMapping(key="carrier"))
    with pytest.raises(CannotBackfill) as refused:
        backfill(bench.spark, request)
    assert str(refused.value) == (
        "SOURCE: row 3 of open.csv, column carrier: BB has no closing quote, so all that follows "
        "is part of it: add it, or write a quote of the text itself twice"
    )
    assert not place.exists()
    assert all_records(bench.worker, bench.topic) == []


def test_rows_without_a_time_are_bad_rows(bench: Bench) -> None:
    rows = bench.rows().withColumn("at", F.when(F.col("n") != 5, F.col("at").cast("string")))
    rows = rows.withColumn("at", F.when(F.col("n") == 6, "yesterday").otherwise(F.col("at")))
    with pytest.raises(BadRows, match="at = yesterday: not a time such as 2013-01-01T05:15:00Z"):
        bench.run(bench.request(rows))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"retention.ms": "604800000"}, "Set retention.ms=-1"),
        ({"message.timestamp.type": "LogAppendTime"}, "set the topic to CreateTime"),
    ],
)
def test_a_topic_that_would_lose_the_times_is_refused(
    bench: Bench, settings: dict[str, str], text: str
) -> None:
    bench.topic += "-x"
    bench.queues = bench.routed()
    make_topic(bench.worker, bench.topic, settings=settings)
    request = bench.request()
    with pytest.raises(CannotBackfill, match=text):
        bench.run(request)
    objections = plan(bench.spark, request).objections
    assert [text in objection for objection in objections] == [True]
    assert all_records(bench.worker, bench.topic) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": "elsewhere"}, "--topic: no route reads 'elsewhere'"),
        ({"source": "/no/such/place"}, "SOURCE: '/no/such/place' cannot be read"),
        ({"name": "a b"}, "--name: 'a b': use 1 to 100 letters, digits"),
        (
            {"mapping": RowMapping(key="carier")},
            "--key: 'carier' is not a column .*Columns: n, carr",
        ),
        ({"mapping": RowMapping(timestamp="n / 2")}, "--timestamp: 'n / 2' is double"),
        (
            {"mapping": RowMapping(key="max(carrier)")},
            "--key: .*max.carrier.* of one row: .MISSING_GROUP_BY",
        ),
        (
            {"mapping": RowMapping(headers=[("h", "explode(array(n))")])},
            "--header h: .*explode.* of one row: .UNSUPPORTED_GENERATOR",
        ),
        ({"mapping": RowMapping(key="uuid()")}, "other values each time"),
        (
            {"mapping": RowMapping(headers=[("ringfaust-prio", "n")])},
            "--header: producers cannot set ringfaust-prio; did you mean",
        ),
    ],
)
def test_an_invalid_request_is_refused(bench: Bench, change: dict[str, object], text: str) -> None:
    request = bench.request(3, **change)
    with pytest.raises(CannotBackfill, match=text):
        bench.run(request)


@pytest.mark.parametrize(("kind", "bad"), [(Format.CSV, "x,y,z,too many"), (Format.JSON, "{oh")])
def test_unreadable_lines_are_bad_rows(bench: Bench, kind: Format, bad: str) -> None:
    rows = bench.rows(20).withColumn("at", F.unix_millis("at")).withColumn("n", F.lit("007"))
    path = bench.folder / "lines"
    if kind is Format.CSV:
        rows.coalesce(1).write.csv(str(path), header=True)
    else:
        rows.coalesce(1).write.json(str(path))
    for checksum in path.glob(".*.crc"):
        checksum.unlink()
    with next(path.glob("part-*")).open("a") as file:
        file.write(bad + "\n")
    mapping = RowMapping(key="carrier", timestamp="cast(at as bigint)")
    request = bench.request(name=kind.value, mapping=mapping, source=str(path), kind=kind)
    with pytest.raises(BadRows, match="an unreadable line"):
        bench.run(request)
    assert (
        bench.run(
            replace(request, options=request.options._replace(skip_bad=str(bench.folder / "bad")))
        )
        == 20
    )
    values = [json.loads(record.value or b"") for record in all_records(bench.worker, bench.topic)]
    assert {value["n"] for value in values} == {"007"}
    assert set(values[0]) == {"n", "carrier", "at"}


def test_delta_rows_without_keys_are_written_once(bench: Bench) -> None:
    path = bench.folder / "delta"
    bench.rows().write.format("delta").save(str(path))
    bench.rows(3).write.format("delta").mode("append").save(str(path))
    mapping = RowMapping(value="n", timestamp="at")
    bench.queues = bench.routed("by.all")
    request = bench.request(source=f"{path}@v0", kind=Format.DELTA, mapping=mapping)
    assert (bench.run(request), bench.run(request)) == (ROWS, 0)
    found = sorted(int(record.value or b"") for record in all_records(bench.worker, bench.topic))
    assert found == list(range(ROWS))


def test_the_dry_run_estimates_the_evictions_and_writes_nothing(bench: Bench) -> None:
    bench.queues = bench.routed(ring_size=30, evict="lowest_priority")
    headers = [("ringfaust-priority", "n % 10"), ("ringfaust-delay-ms", "if(n = 9, 60000, null)")]
    request = bench.request(mapping=replace(MAPPING, headers=headers), rate=50.0)
    found = plan(bench.spark, request)
    by_queue = {queue.queue: queue for queue in found.queues}
    assert set(by_queue) == {f"by.C{number}" for number in range(KEYS)}
    for number in range(KEYS):
        queue = by_queue[f"by.C{number}"]
        records = len(range(number, ROWS, KEYS))
        scheduled = int(9 in range(number, ROWS, KEYS))
        assert (queue.records, queue.ring_size, queue.ready) == (records, 30, 30)
        assert (queue.scheduled, queue.evicted) == (scheduled, records - 30 - scheduled)
    assert (found.profile.records, found.profile.bad, found.objections) == (ROWS, 0, ())
    assert all_records(bench.worker, bench.topic) == []
