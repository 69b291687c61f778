"""`ringfaust spark maintain`: the lake says the same, in fewer files and less storage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from ringfaust.core import effects as e
from ringfaust.core.model import Message, plain_position
from ringfaust.errors import BadSetting
from ringfaust.protocol.events import WRITERS, event_tail, record_texts
from ringfaust.protocol.records import Payload
from ringfaust.spark.lake import gold
from ringfaust.spark.lake.store import GOLD, LakeProgress
from ringfaust.spark.lake.tables import TRANSITIONS, path, read
from ringfaust.spark.maintain import retention
from ringfaust.spark.maintain.command import cluster
from ringfaust.spark.rewind import contents
from ringfaust.spark.rewind.moment import AtTime
from tests.spark.batched_lake import LAST, TOPIC, WORKER, BatchedLake, close_day, continue_by_batch
from tests.spark.lake_history import LakeHistory
from tests.spark.shared_session import run_command

FIRST_DAY = date(2025, 10, 9)
FIRST_MS = 1_760_000_030_000
QUEUES = 2_000
BATCHES = 4
COMPARED = ("transitions", "messages_now", "deliveries_now", "queue_minutes", "queues")


# --- clustering ---------------------------------------------------------------------------------


def _one_message_each(batch: int) -> list[bytes]:
    """Records in which each of the queues gets its next message."""
    lines = []
    for number in range(QUEUES):
        source = f"orders/0/{batch * QUEUES + number}"
        message = Message(
            source, batch + 1, plain_position(batch + 1), 4, FIRST_MS, 0, 0, "", 0, 0, (), 200,
            Payload(None, b"", (), source),
        )  # fmt: skip
        effect = e.Added(f"device-{number * 7_919 % QUEUES:05}", message)
        step = batch * QUEUES + number + 1
        lines.append(WRITERS[e.Added](effect, step) + event_tail(FIRST_MS + batch, source))
    return [text.encode() for text in record_texts(lines)]


def _files_of_a_rewind(lake: BatchedLake, queue: str) -> int:
    """How many files of transitions Spark reads to rewind a queue."""
    lines = read(lake.spark, lake.root, "transitions")
    return len(contents._lines_by_request(lines, [(queue, AtTime(FIRST_MS + 10))]).inputFiles())


def _digest(lake: BatchedLake) -> list[Row]:
    """The number of transitions, and the sum of the hashes of their values."""
    lines = read(lake.spark, lake.root, "transitions")
    hashes = F.xxhash64(*lines.columns).cast("decimal(38)")
    return lines.agg(F.count("*"), F.sum(hashes)).collect()


def test_rewinding_one_of_many_queues_reads_few_files(spark: SparkSession, tmp_path: Path) -> None:
    lake = BatchedLake(spark, tmp_path / "lake")
    for batch in range(BATCHES):
        lake.write(_one_message_each(batch), FIRST_MS)
    queues = ["device-00000", "device-01023", "device-01999"]
    assert min(_files_of_a_rewind(lake, queue) for queue in queues) >= BATCHES
    before = _digest(lake)
    session = lake.spark.newSession()
    stored = sum(Path(file).stat().st_size for file in lake.live_files("transitions"))
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(stored // 24))
    cluster(session, lake.root, TRANSITIONS, date(2025, 10, 10))

    assert len(lake.live_files("transitions")) >= 16
    assert max(_files_of_a_rewind(lake, queue) for queue in queues) <= 4
    assert _digest(lake) == before
    lines = read(lake.spark, lake.root, "transitions")
    ((held,),) = contents.read_contents(lines, [(queues[1], AtTime(FIRST_MS + 10))])
    assert [message.sequence for message in held.held["ready"]] == [*range(1, BATCHES + 1)]

    clustered = lake.live_files("transitions")
    cluster(session, lake.root, TRANSITIONS, date(2025, 10, 10))
    assert lake.live_files("transitions") == clustered, "a clustered day is not rewritten"


# --- the command --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(
    stages: list[BatchedLake], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BatchedLake]:
    """Three days of two batches: the first two are closed, gold lacks the last batch."""
    made, history = stages[-1].copy(tmp_path_factory.mktemp("maintained") / "lake"), LakeHistory(0)
    for batch in range(6):
        values = continue_by_batch(history, batch)
        if batch > LAST:
            made.write(values, history.now_ms)
        if LAST < batch < 5:
            gold.catch_up(made.spark, made.root, batch)
    assert LakeProgress(made.spark, made.root, GOLD).batch == made.batch - 1
    with patch.object(retention, "today", lambda: date(2025, 10, 31)):
        yield made


@pytest.mark.parametrize(
    ("table", "too_short", "valid"), [("transitions", "18d", "20d"), ("queue_minutes", "1d", "20d")]
)
def test_a_retention_that_deletes_what_the_lake_needs_is_refused(
    lake: BatchedLake, table: str, too_short: str, valid: str
) -> None:
    before = lake.live_files(table)
    refused = lake.maintain("--retention", f"{table}={too_short}")
    assert refused.exit_code == 2
    shown = " ".join(refused.output.split())
    assert f"retention of {table} = '{too_short}'" in shown
    assert f"need the days since 2025-10-11: use at least {valid}" in shown
    assert lake.live_files(table) == before


def test_a_batch_that_is_only_in_bronze_is_needed(lake: BatchedLake) -> None:
    used = retention.used_days(lake.spark, lake.root, WORKER)
    assert used["bronze"] == retention.UsedDays(None, date(2025, 10, 11))
    other = BatchedLake(lake.spark, Path(lake.root).parent / "other")
    other.write_bronze([b"{}"], FIRST_MS)
    used = retention.used_days(other.spark, other.root, WORKER)
    assert used["bronze"].needed == FIRST_DAY
    with pytest.raises(BadSetting, match="use at least 22d"):
        retention.check(used, {"bronze": 21})


@pytest.mark.slow
def test_maintenance_changes_no_view_and_frees_storage(lake: BatchedLake) -> None:
    before = {table: lake.rows(table) for table in COMPARED}
    files = {table: len(lake.live_files(table)) for table in COMPARED if "_now" not in table}
    done = lake.maintain("--deleted-file-retention", "1h")
    assert done.exit_code == 0, done.output
    assert {table: lake.rows(table) for table in COMPARED} == before
    assert len(lake.live_files("transitions")) < files["transitions"]
    assert max(map(len, done.output.splitlines())) <= 80
    after = len(lake.live_files("transitions"))
    shown = rf"^transitions +{files['transitions']} +{after} "
    assert re.search(shown, done.output, re.MULTILINE), done.output
    assert "more stored: vacuum deletes the files" in done.output

    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    lake.spark.sql(f"VACUUM delta.`{path(lake.root, 'transitions')}` RETAIN 0 HOURS")
    assert lake.stored_files("transitions") == lake.live_files("transitions")


@pytest.mark.slow
def test_retention_deletes_whole_days_but_nothing_that_is_open(lake: BatchedLake) -> None:
    close_day(lake, date(2025, 10, 10), {(TOPIC, 0): lake.batch * 1_000_000})
    open_before = read(lake.spark, lake.root, "messages_now").where("fate IS NULL").count()
    done = lake.maintain(
        "--retention", "bronze=21d", "--retention", "messages=1d", "--retention", "transitions=20d"
    )
    assert done.exit_code == 0, done.output
    for table, first in (("bronze", "2025-10-10"), ("transitions", "2025-10-11")):
        days = read(lake.spark, lake.root, table).selectExpr("string(min(date))").collect()
        assert days[0][0] == first, table
    messages = read(lake.spark, lake.root, "messages_now")
    assert messages.where("fate IS NULL").count() == open_before
    # The last closing wrote rows of the day before: its number stays known.
    closed = messages.where("batch IS NOT NULL AND ended_date IS NOT NULL")
    assert closed.selectExpr("string(min(ended_date))").collect()[0][0] == "2025-10-10"
    gold.catch_up(lake.spark, lake.root, lake.batch)


def test_a_folder_without_a_lake_is_refused(lake: BatchedLake, tmp_path: Path) -> None:
    refused = run_command(lake.spark, "spark", "maintain", "--lake", str(tmp_path / "none"))
    assert refused.exit_code == 2
    assert "does not exist: use the folder that" in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("retention_", "deleted", "said"),
    [
        ("queues=30d", "7d", "use TABLE=DAYS, such as bronze=30d; tables: bronze, transitions,"),
        ("bronze=30h", "7d", "retention of bronze = '30h': use a number of days"),
        ("bronze=0d", "7d", "retention of bronze = '0d': use a number of days"),
        ("bronze=30d", "10m", "deleted-file-retention = '10m': use a number and h or d"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_valid(
    retention_: str, deleted: str, said: str
) -> None:
    with pytest.raises(BadSetting, match=re.escape(said)):
        retention.read_days([retention_])
        retention.read_hours(deleted)
