"""Backfill when its process is killed or two writers compete: every row is written once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ringfaust.config import WorkerConfig, load
from ringfaust.spark.backfill.command import backfill, read_options
from ringfaust.spark.backfill.job import Job, read_progress
from ringfaust.spark.backfill.write import NumberedRow, RateLimit, WriteTask
from ringfaust.spark.options import BackfillOptions, Format
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.topics import all_records, make_topic, read_topic

pytestmark = pytest.mark.kafka

START_MS = 1_357_034_400_000
ROWS = 3_000
KINDS = (
    pa.int32(), pa.int64(), pa.binary(), pa.binary(),
    pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])), pa.int64(),
)  # fmt: skip


def test_after_a_kill_the_next_run_completes_the_job_and_every_row_is_written_once(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    source, config = tmp_path / "rows.parquet", tmp_path / "config"
    config.mkdir()
    (config / "queues.yaml").write_text(
        f"routes: [{{topic: {topic}, queue: 'by.{{key}}'}}]\nqueues: {{by.*: {{ring_size: 10}}}}\n"
    )
    numbers = range(ROWS)
    table = {
        "n": list(numbers),
        "key": [f"K{n % 11}" for n in numbers],
        "at": [START_MS + n * 7_919 % ROWS for n in numbers],
    }
    pq.write_table(pa.table(table), source)
    worker, queues = load(config, bootstrap_servers=broker.bootstrap_servers)
    make_topic(worker, topic)
    job = Job(name="k", group="ringfaust-backfill-k", topic=topic, fingerprint="", about="")

    command = [
        sys.executable, "-m", "ringfaust", "spark", "backfill", str(source), "--format", "parquet",
        "--topic", topic, "--key", "key", "--timestamp", "at", "--name", "k", "--rate", "300",
        "--config", str(config), "--bootstrap-servers", broker.bootstrap_servers,
    ]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        while sum(asyncio.run(read_progress(worker, job, range(4))).values()) < ROWS // 10:
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        process.kill()  # its JVM and tasks keep running for a while: they are fenced
        options = BackfillOptions(
            str(source), Format.PARQUET, topic, key="key", timestamp="at", name="k"
        )
        result = backfill(spark, read_options(worker, queues, options))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    assert result.already_written + result.written == ROWS
    assert result.already_written > 0
    by_key = defaultdict(list)
    for records in read_topic(worker, topic).values():
        for record in records:
            by_key[record.key].append((record.timestamp, json.loads(record.value or b"")["n"]))
    assert all(found == sorted(found) for found in by_key.values())
    assert sorted(n for found in by_key.values() for _, n in found) == list(numbers)


def test_the_older_of_two_writers_of_a_slice_waits_for_the_newer(broker: EmbeddedBroker) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    worker = WorkerConfig(bootstrap_servers=broker.bootstrap_servers)
    make_topic(worker, topic, partitions=1)
    job = Job(name=topic, group=f"g-{topic}", topic=topic, fingerprint="f", about="")
    count = 400
    rows = [NumberedRow(0, n, b"k", b"%d" % n, None, None) for n in range(1, count + 1)]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, KINDS, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, list(NumberedRow._fields))
    half_done, taken_over = threading.Event(), threading.Event()
    written: dict[str, int] = {}

    def in_halves() -> object:
        yield batch.slice(0, count // 2)
        half_done.set()
        taken_over.wait(60)
        yield batch.slice(count // 2)

    def write(who: str, batches: object) -> None:
        task = WriteTask(worker=worker, job=job, ends={0: count}, batch_bytes=1_000_000, rate=200.0)
        for result in task.batches(batches):  # type: ignore[arg-type]
            written[who] = result["written"][0].as_py()

    older = threading.Thread(target=write, args=("older", in_halves()))
    older.start()
    assert half_done.wait(60)
    write("newer", [batch])
    taken_over.set()
    older.join()
    assert [record.value for record in all_records(worker, topic)] == [row.value for row in rows]
    assert written == {"older": 100, "newer": count - 100}


def test_the_rate_limit_counts_from_the_first_record() -> None:
    rate_limit = RateLimit(rate=10.0, started=100.0, sent=25)
    assert (rate_limit.wait_s(101.0), rate_limit.wait_s(103.0)) == (1.5, 0.0)
    assert RateLimit(rate=None, sent=25).wait_s(0.0) == 0.0
