"""The lake from topics of a real broker: every line once, and bad ones apart.

The lake's first run fails between two tables.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from ringfaust.config import WorkerConfig
from ringfaust.kafka.names import lake_group
from ringfaust.kafka.offsets import group_offsets
from ringfaust.protocol.records import Role
from ringfaust.spark.lake import comments, gold, minutes
from ringfaust.spark.lake import stream as lake_stream
from ringfaust.spark.lake.store import LakeError, LakeProgress
from ringfaust.spark.lake.tables import MESSAGES, TABLES, path, read
from ringfaust.spark.lake.views import ENDED_ON, VIEWS
from ringfaust.spark.lake.with_duckdb import open_duckdb
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.lake_history import LakeHistory, make_topics, parse, write_topics
from tests.spark.shared_session import run, run_command

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

BAD = {
    b"no json at all": "no_json",
    b'{"event":"added","queue":"a"}': "no_step",
    b'{"step":3,"queue":"a"}': "no_event",
    b"[1,2]": "no_step",
    b'{"step":4,"event":"added","queue":"a': "no_json",
    b"\xff\xfe": "no_json",
}
FUTURE = (
    '{"step":%d,"event":"levitated","queue":"a","height_m":3,"time_ms":1760000090000,"by":"tick"}'
)


class Lake:
    """A lake of two partitions: a plain one, and one with lines that no worker writes."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, folder: Path) -> None:
        self.spark, self.root = spark, str(folder / "lake")
        self.worker = WorkerConfig(
            application=f"lake{uuid.uuid4().hex[:6]}",
            bootstrap_servers=broker.bootstrap_servers,
            partitions=2,
        )
        self.plain, self.odd = LakeHistory(0), LakeHistory(1)
        self._rows: dict[str, list[Row]] = {}
        worker = self.worker.model_dump_json(exclude_defaults=True)
        (folder / "worker.yaml").write_text(worker)
        (folder / "queues.yaml").write_text("queues: {a: {ring_size: 3}}\n")
        self._command = ("spark", "lake", "--once", "--to", self.root, "--config", str(folder))
        asyncio.run(make_topics(self.worker))
        self._write()

    def _write(self) -> None:
        for history, seed in ((self.plain, 1), (self.odd, 2)):
            history.continue_randomly(150, seed)
        plain, odd = self.plain.values(), self.odd.values()
        half = len(odd) // 2
        first = {role: records[:9] for role, records in self.odd.records.items()}
        asyncio.run(write_topics(self.worker, 0, plain[:half]))
        asyncio.run(write_topics(self.worker, 1, odd[:half], first))
        self.fail_after("queue_minutes")
        self.catch_up()
        session = lake_stream.lake_session(self.spark, self.root, self.worker)
        gold.close(session, self.root, 0)
        self.step = self.odd.host.state.step
        strange = [*BAD, None, FUTURE.encode() % (self.step + 1)]
        rest = {role: records[9:] for role, records in self.odd.records.items()}
        asyncio.run(write_topics(self.worker, 0, plain[half:], self.plain.records))
        asyncio.run(write_topics(self.worker, 1, [*odd[half:], *strange], rest))
        others = {Role.DISPATCHED: [(b"k", b"v", [])], Role.CONTROL: [(b"a", b"{}", [])]}
        asyncio.run(write_topics(self.worker, 0, [], others))
        self.catch_up()

    def catch_up(self) -> None:
        """Read the rest."""
        self._rows.clear()
        with patch.object(gold, "CLOSING_DELAY", timedelta(days=36_500)):
            self.said = run(self.spark, *self._command)

    def close_by_clock(self) -> None:
        """Read the rest, and close the days that are over by now."""
        self._rows.clear()
        run(self.spark, *self._command)

    def fail_after(self, table: str) -> None:
        """Read the rest, but fail when this table has been written, and before the next ones."""
        with patch.object(minutes, "_depths", side_effect=RuntimeError("power cut")):
            failed = run_command(self.spark, *self._command)
        assert failed.exit_code != 0
        assert "power cut" in failed.output
        assert read(self.spark, self.root, table).count() > 0
        assert read(self.spark, self.root, "queues").count() == 0

    def rows(self, table: str) -> list[Row]:
        """The rows of a table, which is read once."""
        if table not in self._rows:
            self._rows[table] = read(self.spark, self.root, table).collect()
        return self._rows[table]


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    yield Lake(spark, broker, tmp_path_factory.mktemp("lake"))


def _fold(history: LakeHistory) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Each message's lifecycle, computed in the plainest way."""
    life: Counter[str] = Counter()
    messages: dict[tuple[str, int, int], dict[str, Any]] = {}
    for line in parse(history.lines):
        queue, event = line.get("queue"), line["event"]
        if event == "deleted":
            life[queue] = line["step"]
        if "sequence" not in line:
            continue
        message = messages.setdefault((queue, life[queue], line["sequence"]), {"consumers": set()})
        message |= {name: line[name] for name in ("id", "handovers") if name in line}
        if event in ("added", "scheduled"):
            message |= {name: line[name] for name in ("source", "priority", "enqueued_ms")}
        elif event == "dispatched":
            message["consumers"].add(line["consumer"])
            message["last_dispatched_ms"] = line["time_ms"]
        elif event in ("acked", "evicted", "expired", "dead", "removed", "moved_out"):
            message |= {"fate": event, "ended_ms": line["time_ms"], "reason": line.get("reason")}
    return messages


def test_each_line_is_one_transition(lake: Lake) -> None:
    for history in (lake.plain, lake.odd):
        found = [row for row in lake.rows("transitions") if row.partition == history.partition]
        found.sort(key=lambda row: (row.offset, row.line))
        raw = [row.raw for row in found]
        assert raw[: len(history.lines)] == history.lines
        assert raw[len(history.lines) :] == (
            [FUTURE % (lake.step + 1)] if history.partition else []
        )
        for row, line in zip(found, parse(raw), strict=True):
            names = [name for name in line if name not in ("settings", "counts", "height_m")]
            assert {name: row[name] for name in names} == {name: line[name] for name in names}


def test_bronze_keeps_every_record(lake: Lake) -> None:
    bronze = Counter(row.topic for row in lake.rows("bronze"))
    histories = (lake.plain, lake.odd)
    for role in (Role.EVICTED, Role.DEAD):
        written = sum(len(history.records[role]) for history in histories)
        assert bronze[lake.worker.topic(role)] == written > 9
    assert bronze[lake.worker.topic(Role.CONTROL)] == 1


def test_bad_lines_go_to_quarantine_with_the_reason(lake: Lake) -> None:
    found = {row.raw: row.why for row in lake.rows("quarantine") if row.why != "lacks_queue"}
    expected = {value.decode(errors="replace"): why for value, why in BAD.items()}
    assert found == {**expected, "": "no_json"}
    (headless,) = [row for row in lake.rows("quarantine") if row.why == "lacks_queue"]
    assert headless.topic == lake.worker.topic(Role.DISPATCHED)


def test_headers_become_columns_of_records(lake: Lake) -> None:
    for history in (lake.plain, lake.odd):
        for role, records in history.records.items():
            found = [
                row
                for row in lake.rows("records")
                if row.role == str(role) and row.partition == history.partition
            ]
            found.sort(key=lambda row: row.offset)
            assert len(found) == len(records)
            for row, (key, value, headers) in zip(found, records, strict=True):
                assert (bytes(row.key), bytes(row.value)) == (key, value)
                assert [(h.key, bytes(h.value)) for h in row.headers] == [("colour", b"blue")]
                for name, said in headers:
                    column = name.removeprefix("ringfaust-").replace("-", "_")
                    if name.startswith("ringfaust-") and column != "redelivered":
                        assert str(row[column]) == said.decode()
                assert row.extra == {}


def test_each_message_has_its_full_lifecycle(lake: Lake) -> None:
    for history in (lake.plain, lake.odd):
        expected = _fold(history)
        found = {
            (row.queue, row.life, row.sequence): row
            for row in lake.rows("messages_now")
            if row.partition == history.partition
        }
        assert found.keys() == expected.keys()
        for key, message in expected.items():
            row = found[key]
            assert sorted(message.pop("consumers")) == row.consumers, key
            message.setdefault("fate", None)
            handovers = message.pop("handovers", None)
            assert handovers is None or handovers == row.handovers, key
            assert {name: row[name] for name in message} == message, key


def test_depths_and_counts_equal_the_rings_own_counts(lake: Lake) -> None:
    depths = {(row.partition, row.queue): row for row in lake.rows("queues")}
    minutes = sorted(lake.rows("queue_minutes_now"), key=lambda row: row.minute)
    last = {(row.partition, row.queue): row for row in minutes}
    for history in (lake.plain, lake.odd):
        for name, queue in history.host.state.queues.items():
            counts = queue.counts.as_dict()
            for row in (depths[history.partition, name], last[history.partition, name]):
                for depth in ("ready", "delivering", "scheduled"):
                    assert row[depth] == counts[depth], (history.partition, name, depth)
    lines = [line for history in (lake.plain, lake.odd) for line in parse(history.lines)]
    events = Counter(line["event"] for line in lines)
    for event in ("dispatched", "acked", "returned", "evicted", "expired", "dead", "removed"):
        assert sum(row[event] for row in minutes) == events[event], event
    assert sum(row.added for row in minutes) == events["added"] + events["scheduled"]
    ages = sum(line["age_ms"] for line in lines if line["event"] == "evicted")
    assert sum(row.evicted_age_ms_sum or 0 for row in minutes) == ages


def test_each_delivery_begins_once_and_ends_at_most_once(lake: Lake) -> None:
    for history in (lake.plain, lake.odd):
        handed = {x["delivery"]: x for x in parse(history.lines) if x["event"] == "dispatched"}
        found = {
            x.delivery: x for x in lake.rows("deliveries_now") if x.partition == history.partition
        }
        assert found.keys() == handed.keys()
        open_ = set()
        for queue in history.host.state.queues.values():
            open_ |= {delivery.number for _, delivery in queue.deliveries}
        assert {number for number, row in found.items() if row.how is None} == open_
        for number, line in handed.items():
            row = found[number]
            assert (row.consumer, row.handed_ms) == (line["consumer"], line["time_ms"])
            assert row.how is None or row.held_ms == row.settled_ms - row.handed_ms
        ends = Counter(row.how for row in found.values() if row.how)
        events = Counter(x["event"] for x in parse(history.lines))
        assert (ends["acked"], ends["returned"]) == (events["acked"], events["returned"])
        assert ends["dead"] == events["dead"]


def test_each_eviction_has_its_message_reason_and_cause(lake: Lake) -> None:
    for history in (lake.plain, lake.odd):
        lines = [line for line in parse(history.lines) if line["event"] == "evicted"]
        found = {x.step: [] for x in lake.rows("evictions")}
        for row in lake.rows("evictions"):
            if row.partition == history.partition:
                found[row.step].append((row.id, row.reason, row.cause, row.age_ms))
                assert row.evicted_ms - row.enqueued_ms == row.age_ms
        expected = [(x["id"], x["reason"], x["cause"], x["age_ms"]) for x in lines]
        assert sorted(expected) == sorted(row for rows in found.values() for row in rows)


def plain(value: Any) -> Any:
    """A value as Spark and DuckDB both show it."""
    return value.timestamp() if isinstance(value, datetime) else value or None


def test_the_views_have_each_time_as_a_timestamp_too(lake: Lake) -> None:
    for name, column in (("messages_now", "ended"), ("deliveries_now", "handed")):
        rows = [row for row in lake.rows(name) if row[f"{column}_ms"] is not None]
        assert rows
        for row in rows:
            assert row[f"{column}_at"].timestamp() * 1000 == pytest.approx(row[f"{column}_ms"])
    assert {"evicted_at", "enqueued_at"} <= set(lake.rows("evictions")[0].__fields__)
    assert {"expires_at", "due_at"} <= set(lake.rows("messages_now")[0].__fields__)


def test_tables_and_columns_have_comments(lake: Lake) -> None:
    for table in TABLES.values():
        place = f"delta.`{path(lake.root, table.name)}`"
        described = lake.spark.sql(f"DESCRIBE TABLE {place}").collect()
        columns = {row.col_name: row.comment for row in described[: len(table.schema.names)]}
        assert all(columns[name] for name in table.schema.names), table.name
        detail = lake.spark.sql(f"DESCRIBE DETAIL {place}").collect()[0]
        assert detail.description == comments.TABLES[table.name]


def test_duckdb_shows_the_same_views(lake: Lake) -> None:
    for table in ENDED_ON:
        assert {row.batch for row in lake.rows(table)} == {0}
        assert {row.batch for row in lake.rows(f"{table}_now")} == {0, None}
    connection = open_duckdb(lake.root)
    for name in VIEWS:
        columns = lake.rows(name)[0].__fields__
        found = connection.sql(f"SELECT * FROM {name}")
        assert found.columns == columns
        ours = [tuple(map(plain, row)) for row in lake.rows(name)]
        theirs = [tuple(map(plain, row)) for row in found.fetchall()]
        assert Counter(map(str, ours)) == Counter(map(str, theirs)), name


def test_the_command_says_what_it_has_read_and_commits_it(lake: Lake) -> None:
    assert re.fullmatch(
        r"\d+ records in \d+ batches \(events \d+, inputs 1, outputs \d+\); 0 offsets not yet read",
        lake.said.splitlines()[-1],
    )
    read = lake_stream.read_to(lake.spark, lake.root)
    ends = {(topic, int(n)): at for topic, of in read.items() for n, at in of.items()}
    group, client = lake_group(lake.worker.application), lake.worker.client_options()
    found = asyncio.run(group_offsets(client, group, ends))
    assert {tp: at.offset for tp, at in found.items()} == ends


def contents(rows: Iterable[Row]) -> Counter[Any]:
    """The rows without the number of their batch, and without what views add to tables."""
    found = [row.asDict(recursive=True) for row in rows]
    kept = {k for row in found for k in row if k != "batch" and not k.endswith("_at")}
    return Counter(str({k: row[k] for k in sorted(kept)}) for row in found)


@pytest.mark.slow
def test_many_compacted_batches_give_the_same_tables(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second lake of the same topics, in other batches."""
    spark, worker, root = lake.spark, lake.worker, str(tmp_path / "lake")
    monkeypatch.setattr(lake_stream, "_BATCHES_PER_COMPACTION", 2)
    session = lake_stream.lake_session(spark, root, worker)
    inputs = [worker.topic(Role.CONTROL)]
    with patch.object(gold, "catch_up"):
        for stream, most in zip(
            lake_stream.streams(root, worker, inputs), (35, 110, 110), strict=True
        ):
            small = replace(stream, max_records=most)
            lake_stream.start(session, root, worker, small, once=True).awaitTermination()
    assert LakeProgress(spark, root, "events").batch >= 2
    # Rebuild gold from all batches, as docs/lake.md describes.
    shutil.rmtree(tmp_path / "lake/gold")
    session = lake_stream.lake_session(spark, root, worker)
    events = lake_stream.streams(root, worker)[0]
    lake_stream.start(session, root, worker, events, once=True).awaitTermination()

    compared = (*(set(TABLES) - {*ENDED_ON, "queue_counts", "queue_minutes"}), *VIEWS)
    for table in compared:
        assert contents(read(spark, root, table).collect()) == contents(lake.rows(table)), table
    assert len(lake.rows("messages_now")) > 50


def test_the_documented_examples_work(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(__file__, "../../../docs/lake.md").resolve().read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(example, {"lake": lake.root})
        assert re.search("acked|age_ms|added", capsys.readouterr().out)


def test_the_columns_are_documented() -> None:
    text = Path(__file__, "../../../docs/lake.md").resolve().read_text(encoding="utf-8")
    for name in TABLES.keys() - {"transitions", "records"}:  # theirs are those of other pages
        about = re.search(
            rf"^\*\*{name}\*\*(.*?)(?=^\*\*[a-z]|^##)", text, re.MULTILINE | re.DOTALL
        )
        assert about, name
        said = re.sub(
            r"_sum`, `_min`, `_max", "_sum` `evicted_age_ms_min` `evicted_age_ms_max", about[1]
        )
        columns = {*TABLES[name].schema.names} - {"batch", "date"}
        assert columns <= {*re.findall(r"`(\w+)`", said)}, name


def test_the_next_day_closes_the_one_before(lake: Lake) -> None:
    """Last: it continues one of the histories."""
    before = {table: len(lake.rows(f"{table}_now")) for table in ENDED_ON}
    lines = len(lake.plain.lines)
    lake.plain.now_ms += 24 * 3_600_000
    lake.plain.continue_randomly(30, 3)
    asyncio.run(write_topics(lake.worker, 0, lake.plain.values(after=lines)))
    lake.catch_up()
    for table, ended_on in ENDED_ON.items():
        rows = lake.rows(table)
        first, second = sorted({row.batch for row in rows})
        assert first == 0
        assert {row.batch for row in rows if row[ended_on] is None} == {second}
        assert len(rows) == len(lake.rows(f"{table}_now")) > before[table]
    test_each_message_has_its_full_lifecycle(lake)
    test_each_delivery_begins_once_and_ends_at_most_once(lake)


def test_a_day_that_is_over_is_closed_at_the_end_of_a_run(lake: Lake) -> None:
    lines = len(lake.plain.lines)
    lake.plain.continue_randomly(30, 4)
    asyncio.run(write_topics(lake.worker, 0, lake.plain.values(after=lines)))
    lake.catch_up()
    now = {table: contents(lake.rows(f"{table}_now")) for table in ENDED_ON}
    assert all(contents(lake.rows(table)) != now[table] for table in ENDED_ON)
    before = {name: len(lake.rows(name)) for name in ("bronze", "transitions", "messages_now")}
    lake.close_by_clock()  # there are no new records
    for table in ENDED_ON:
        assert contents(lake.rows(table)) == now[table], table
    assert {name: len(lake.rows(name)) for name in before} == before


def test_gold_of_an_older_version_is_refused(lake: Lake, tmp_path: Path) -> None:
    older = StructType(MESSAGES.schema.fields[:5])
    lake.spark.createDataFrame([], older).write.format("delta").save(
        path(str(tmp_path), "messages")
    )
    with pytest.raises(LakeError, match="delete its folders gold and state/marks/gold"):
        lake_stream.lake_session(lake.spark, str(tmp_path), lake.worker)


def test_another_application_is_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match="each application needs a folder of its own"):
        lake_stream.lake_session(lake.spark, lake.root, WorkerConfig(application="other"))
