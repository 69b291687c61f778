"""The audit of a lake by days: each day is read once, and the verdict is that of the history."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ringfaust.config import RouteConfig
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.spark.audit import period
from ringfaust.spark.audit.balance import ClosedDays, kept
from ringfaust.spark.audit.offsets import CannotAudit, TopicOffsets
from ringfaust.spark.audit.period import PeriodReader, start_of
from ringfaust.spark.audit.rounds import DayVerdict, LakeDays
from ringfaust.spark.audit.show import remarks
from ringfaust.spark.audit.sources import AuditRequest
from ringfaust.spark.audit.verdict import Verdict, reconcile
from ringfaust.spark.lake.tables import path
from tests.spark.audit_history import QUEUES, SCHEMA, WORKER
from tests.testing.test_accounts import History

DAY_MS = 86_400_000
FIRST = date(1970, 1, 2)
SECOND = date(1970, 1, 3)
THIRD = date(1970, 1, 4)
FOURTH = date(1970, 1, 5)
REQUEST = AuditRequest(WORKER, QUEUES)


def topic_of(role: str) -> str:
    return "in" if role == "in" else WORKER.topic(role)


def one_day(history: History, day: date) -> None:
    """The same every day. Some messages and deliveries stay open overnight."""
    history.now_ms = start_of(day) + 1_000
    for number in range(12):
        history.send("a", b"evicted %d" % number)
    for name in ("first", "second"):
        history.ask("attach", "q.b", consumer=name, credit=1)
        history.send("b", b"delivering until the next day")
        held = f"in/0/{len(history.topics['in']) - 1}"
        history.pass_time(500)
        history.ask("ack", "q.b", consumer=name, message=held)
        history.send("b", b"held by " + name.encode())
    history.send("c", b"expired", ttl_ms=10)
    history.send("c", b"comes due tomorrow", delay_ms=DAY_MS)
    history.pass_time(20)


def write_bronze(spark: SparkSession, history: History, root: Path) -> TopicOffsets:
    """All topics as the lake's bronze table, as if Kafka had dropped all of them."""
    offsets = {}
    rows: list[tuple[Any, ...]] = []
    for role in (Role.EVENTS, Role.DISPATCHED, Role.EVICTED, Role.DEAD, "in", "control", "hop"):
        topic, records = topic_of(role), history.topics.get(role, [])
        offsets[topic, 0] = (len(records), len(records))
        rows += [
            (topic, 0, number, None, record.key,
             # The history's processor names the topic of commands without its application.
             record.value and record.value.replace(b'"control/', b'"app.control/'),
             list(record.headers) or None, record.timestamp)
            for number, record in enumerate(records)
            if record.topic != "nowhere"
        ]  # fmt: skip
    frame = spark.createDataFrame(rows, SCHEMA + ", ms long").selectExpr(
        "* except (timestamp, ms)", "timestamp_millis(ms) timestamp",
        "to_date(timestamp_millis(ms)) date",
    )  # fmt: skip
    frame.write.format("delta").partitionBy("topic", "date").save(path(str(root), "bronze"))
    return offsets


@dataclass(frozen=True)
class Lake:
    spark: SparkSession
    root: Path
    offsets: TopicOffsets

    def days(self) -> LakeDays:
        return LakeDays(self.spark, self.request(), self.offsets)

    def close(self, until: date, since: date | None = None) -> list[DayVerdict]:
        days = self.days()
        opening = days.opening(since)
        return list(days.close(days.open_days(opening, start_of(until)), opening))

    def whole(self) -> Verdict:
        return reconcile(REQUEST, self.reader().read())

    def reader(self) -> PeriodReader:
        return PeriodReader(self.spark, self.request(), self.offsets)

    def request(self) -> AuditRequest:
        return replace(REQUEST, lake=str(self.root))

    def as_kafka(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let Kafka have all the records."""

        def read_topics(spark: SparkSession, _: Any, topics: Any, *__: Any) -> Any:
            bronze = spark.read.format("delta").load(path(str(self.root), "bronze"))
            return bronze.where(F.col("topic").isin(*topics)).drop("date")

        monkeypatch.setattr(period, "read_topics", read_topics)

    def copy(self, folder: Path) -> Lake:
        shutil.copytree(self.root, folder)
        return replace(self, root=folder)


@pytest.fixture(scope="module", autouse=True)
def no_kafka(spark: SparkSession) -> Any:
    """Kafka has dropped all records."""
    columns = SCHEMA + ", timestampType int"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(period, "read_topics", lambda *_: spark.createDataFrame([], columns))
        yield


def numbers(history: History, role: str, day: date) -> list[int]:
    """The records of a topic and day."""
    start = start_of(day)
    return [
        number
        for number, record in enumerate(history.topics[role])
        if start <= record.timestamp < start + DAY_MS
    ]


def lose(history: History, role: str, number: int) -> None:
    records = history.topics[role]
    records[number] = records[number]._replace(topic="nowhere")


def other_headers(headers: Any, **values: bytes) -> Any:
    other = {h.PREFIX + name: value for name, value in values.items()}
    return tuple((name, other.get(name, value)) for name, value in headers)


def line_with(history: History, day: date, **values: Any) -> tuple[int, dict[str, Any]]:
    """The first record of a day that has such a line, and the line."""
    for number in numbers(history, Role.EVENTS, day):
        for text in (history.topics[Role.EVENTS][number].value or b"").split(b"\n"):
            line = json.loads(text)
            if values.items() <= line.items():
                return number, line
    raise AssertionError(values)


def plant(history: History) -> None:
    """Faults in the middle of the first day, at its end, and at the beginning of the second."""
    one_day(history, FIRST)
    # Read by no worker, though later ones are.
    history.put("in", b"a", b"never processed", ())
    history.put("control", None, b'{"type":"detach","queue":"q.a","consumer":"x"}', ())
    one_day(history, SECOND)
    one_day(history, THIRD)
    evicted, dispatched = (
        [numbers(history, role, day) for day in (FIRST, SECOND)]
        for role in (Role.EVICTED, Role.DISPATCHED)
    )
    lose(history, Role.EVICTED, evicted[0][3])
    history.change(Role.EVICTED, evicted[0][5], value=b"altered")
    lose(history, Role.EVICTED, evicted[0][-1])  # the last record of its day
    lose(history, Role.DISPATCHED, dispatched[1][0])  # the first one
    history.change(Role.EVICTED, evicted[1][0], value=b"altered")  # its source is of the first day
    history.change(Role.EVICTED, evicted[1][4], headers=other_headers(
        history.topics[Role.EVICTED][evicted[1][4]].headers, source=b"in/0/999", sequence=b"77"
    ))  # fmt: skip
    for number in (6, 0):
        lose(history, "in", numbers(history, "in", SECOND)[number])
    plant_events(history)


def plant_events(history: History) -> None:
    events = history.topics[Role.EVENTS]
    # A copy of the first day's last record is the second's first: in its place, as none is lost.
    last = numbers(history, Role.EVENTS, FIRST)[-1]
    events.insert(last + 1, events[last]._replace(timestamp=start_of(SECOND)))
    # A message that was delivered on the first day is evicted on the second.
    number, line = line_with(history, SECOND, event="added", queue="q.b")
    _, held = line_with(history, FIRST, event="dispatched", sequence=2, queue="q.b")
    late = {"event": "evicted", "queue": "q.b", "sequence": 2, "reason": "overflow",
            "step": line["step"], "id": held["id"], "by": "tick",
            "time_ms": line["time_ms"]}  # fmt: skip
    text = json.dumps(late).encode()
    history.change(Role.EVENTS, number, value=text + b"\n" + (events[number].value or b""))
    number, _ = line_with(history, SECOND, event="added", queue="q.c")
    history.change(Role.EVENTS, number, value=b'{"event":"add\n' + (events[number].value or b""))


def input_bytes(spark: SparkSession) -> int:
    """The bytes that all tasks have read so far."""
    scala: Any = spark.sparkContext._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    return int(scala.statusStore().executorSummary("driver").totalInputBytes())


def named(verdict: Verdict) -> set[tuple[Any, ...]]:
    fields = ("kind", "queue", "sequence", "source")
    return {tuple(row[name] for name in fields) for row in verdict.findings.collect()}


@pytest.mark.slow
def test_each_fault_is_reported_on_its_day_or_the_next(spark: SparkSession, tmp_path: Path) -> None:
    history = History()
    plant(history)
    lake = Lake(spark, tmp_path, write_bronze(spark, history, tmp_path))
    days = lake.close(FOURTH)
    assert [each.day for each in days] == [FIRST, SECOND, THIRD]
    by_day = [named(each.verdict) for each in days]
    assert by_day[0] == {
        ("missing", "q.a", 4, "in/0/3"),
        ("altered", "q.a", 6, "in/0/5"),
    }
    # A copy of a line of the day before is a line about a message that has ended.
    copy = {("missing", "q.c", 1, "in/0/16")}
    assert by_day[1] == copy | {
        ("missing", "q.a", 10, "in/0/9"),  # the last record of the first day
        ("missing", None, None, "in/0/18"),
        ("missing", None, None, "app.control/0/4"),
        ("altered", "q.a", 11, "in/0/10"),
        ("evicted_while_held", "q.b", 2, "in/0/13"),
        ("missing", "q.a", 15, "in/0/21"),
        ("unexplained", "q.a", 77, "in/0/999"),
        ("unexplained", "q.a", 13, "in/0/19"),
        ("unexplained", "q.a", 19, "in/0/25"),
        ("damaged", None, None, None),
    }
    assert by_day[2] == {("missing", "q.b", 5, "in/0/31")}  # the second day's only delivery
    whole = named(lake.whole())
    assert whole == set().union(*by_day) - copy | {("doubled", None, None, None)}
    assert list(days[2].closing.faults) == [str(FIRST), str(SECOND), str(THIRD)]


@pytest.mark.slow
def test_the_last_day_has_the_totals_of_the_whole_history(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History()
    for day in (FIRST, SECOND):
        one_day(history, day)
    lake = Lake(spark, tmp_path, write_bronze(spark, history, tmp_path))
    first, second = lake.close(THIRD)
    assert [each.day for each in (first, second)] == [FIRST, SECOND]
    assert named(first.verdict) == named(second.verdict) == set()
    assert first.verdict.balanced and second.verdict.balanced
    whole = lake.whole()
    assert whole.balanced
    assert second.verdict.totals == whole.totals
    assert first.verdict.lines + second.verdict.lines == whole.lines
    assert first.verdict.records + second.verdict.records == whole.records
    assert sum(each.verdict.inputs - each.verdict.waiting for each in (first, second)) == (
        whole.inputs
    )
    file = lake.root / "state/audit/closed/19700103"
    before = file.read_text()
    assert lake.close(THIRD) == []
    assert [each.day for each in lake.close(THIRD, since=SECOND)] == [SECOND]
    assert file.read_text() == before


@pytest.mark.slow
def test_the_tenth_day_reads_as_much_as_the_second(spark: SparkSession, tmp_path: Path) -> None:
    """The first one has no balance. `make bench-audit` compares with it, in days of real size."""
    history = History()
    for number in range(10):
        one_day(history, FIRST + timedelta(number))
    lake = Lake(spark, tmp_path, write_bronze(spark, history, tmp_path))
    read = []
    before = input_bytes(spark)
    for each in lake.days().close([FIRST + timedelta(number) for number in range(10)], None):
        assert named(each.verdict) == set()
        read.append(input_bytes(spark) - before)
        before += read[-1]
    print(read)
    assert read[-1] <= 1.2 * read[1]


@pytest.mark.slow
def test_days_are_closed_as_one_if_a_clock_went_back_at_midnight(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History()
    for day in (FIRST, SECOND):
        one_day(history, day)
    early = numbers(history, Role.EVENTS, FIRST)[-3]
    history.change(Role.EVENTS, early, timestamp=start_of(SECOND) + 5)
    lake = Lake(spark, tmp_path, write_bronze(spark, history, tmp_path))
    (both,) = lake.close(THIRD)
    assert both.day == SECOND
    assert named(both.verdict) == set()
    assert both.verdict.lines == lake.whole().lines


@pytest.mark.slow
def test_a_round_reads_what_is_new_in_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    history = History()
    one_day(history, FIRST)
    before = Lake(spark, tmp_path / "1", write_bronze(spark, history, tmp_path / "1"))
    one_day(history, SECOND)
    after = Lake(spark, tmp_path / "2", write_bronze(spark, history, tmp_path / "2"))
    rounds = []
    opening = None
    for lake in (before, after):
        data = lake.reader().read(opening)
        rounds.append(reconcile(REQUEST, data, closes=True))
        assert named(rounds[-1]) == set()
        assert rounds[-1].closing
        opening = kept(rounds[-1].closing)
    whole = after.whole()
    assert rounds[0].lines + rounds[1].lines == whole.lines > rounds[0].lines > 0
    assert rounds[1].totals == whole.totals


def test_the_inputs_of_a_removed_route_are_those_of_the_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Workers read three more of them than the lake, before the route was removed."""
    history = History()
    one_day(history, FIRST)
    one_day(history, SECOND)
    count = len(history.topics["in"]) - 3
    for number in range(count, count + 3):
        lose(history, "in", number)
    offsets = write_bronze(spark, history, tmp_path) | {
        ("in", 0): (count, count), ("other", 0): (0, 0),
    }  # fmt: skip
    others = QUEUES.model_copy(update={"routes": [RouteConfig(topic="other", queue="q.other")]})
    request = replace(REQUEST, queues=others, lake=str(tmp_path))
    reader = PeriodReader(spark, request, offsets)
    verdict = reconcile(request, reader.read(), closes=True)
    assert named(verdict) == set()
    assert verdict.inputs == count
    assert verdict.closing is not None
    assert verdict.closing.next["in", 0] == count
    # A record in the middle that the lake does not have is a fault all the same.
    without = reader.read()
    without = replace(without, inputs=without.inputs.filter("offset <> 3"))
    found = reconcile(request, without)
    assert {(row["kind"], row["source"]) for row in found.findings.collect()} == {
        ("unexplained", "in/0/3")
    }


def test_without_a_lake_the_inputs_of_a_removed_route_are_not_compared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History()
    one_day(history, FIRST)
    lake = Lake(spark, tmp_path, write_bronze(spark, history, tmp_path))
    lake.as_kafka(monkeypatch)
    others = QUEUES.model_copy(update={"routes": [RouteConfig(topic="other", queue="q.other")]})
    request = replace(REQUEST, queues=others)
    offsets = {at: of for at, of in lake.offsets.items() if at[0] != "in"} | {("other", 0): (0, 0)}
    verdict = reconcile(request, PeriodReader(spark, request, offsets).read())
    assert named(verdict) == set()
    assert verdict.balanced
    count = len(history.topics["in"])
    assert verdict.not_compared == {"in": count}
    (remark,) = remarks(verdict)
    assert remark.startswith(f"{count} records were not compared")
    assert remark.endswith(f"no route names their topic any more: in {count}.")


def test_records_that_kafka_has_compacted_away_are_not_compared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History()
    one_day(history, FIRST)
    for number in (3, 4):
        lose(history, "in", number)
    count = len(history.topics["in"])
    lake = Lake(spark, tmp_path, write_bronze(spark, history, tmp_path))
    lake.as_kafka(monkeypatch)
    offsets = lake.offsets | {("in", 0): (0, count)}
    for compacted, missing in ((frozenset[str](), True), (frozenset({"in"}), False)):
        request = replace(REQUEST, compacted=compacted)
        verdict = reconcile(request, PeriodReader(spark, request, offsets).read())
        found = {source for kind, _, _, source in named(verdict) if kind == "unexplained"}
        assert found == ({"in/0/3", "in/0/4"} if missing else set())
        assert verdict.not_compared == ({} if missing else {"in": 2})
        assert verdict.inputs == count - 2


def test_a_deleted_queue_is_in_no_later_balance(spark: SparkSession, tmp_path: Path) -> None:
    history = History()
    one_day(history, FIRST)
    history.ask("delete_queue", "q.a")
    history.now_ms = start_of(SECOND) + 1_000
    history.send("b", b"on the next day")
    first, second = Lake(spark, tmp_path, write_bronze(spark, history, tmp_path)).close(THIRD)
    for found in (first, second):
        assert found.verdict.balanced
        names = {row["queue"] for row in found.closing.frames.queues.collect()}
        assert names == {"q.b", "q.c"}
    assert {row["queue"] for row in second.verdict.queues.collect()} == {"q.b", "q.c"}


# --- balances -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of which two days are closed. The second one has the balance of the first."""
    history = History()
    for day in (FIRST, SECOND, THIRD):
        one_day(history, day)
    root = tmp_path_factory.mktemp("days")
    lake = Lake(spark, root, write_bronze(spark, history, root))
    (first,) = lake.close(SECOND)
    assert first.verdict.balanced
    ClosedDays(spark, str(root)).save(SECOND, first.closing, first.closing)
    return lake


def leave_out_a_row(lake: Lake, name: str) -> None:
    """Rewrite a part of the last balance without its first row."""
    folder = str(lake.root / "state/audit/balances/19700103" / name)
    rows = lake.spark.read.parquet(folder)
    kept = lake.spark.createDataFrame(rows.collect()[1:], rows.schema)
    kept.write.mode("overwrite").parquet(folder)


def change_position(lake: Lake) -> None:
    file = lake.root / "state/audit/closed/19700103"
    about = json.loads(file.read_text())
    about["next"]["in"]["0"] += 1
    file.write_text(json.dumps(about))
    file.with_name(".19700103.crc").unlink()


def close_the_day_before_differently(lake: Lake) -> None:
    days = ClosedDays(lake.spark, str(lake.root))
    balance = kept(days.load(FIRST))
    days.save(FIRST, replace(balance, faults={"1970-01-01": {"missing": 1}}), None)


@pytest.mark.parametrize(
    ("tamper", "text"),
    [
        (lambda lake: leave_out_a_row(lake, "lines"), "its lines are not what the audit stored"),
        (lambda lake: leave_out_a_row(lake, "digests"), "its digests are not"),
        (lambda lake: leave_out_a_row(lake, "queues"), "its queues are not"),
        (lambda lake: shutil.rmtree(lake.root / "state/audit/balances/19700103/inputs"),
         "is incomplete"),
        (change_position, "its file is not what the audit stored"),
        (lambda lake: (lake.root / "state/audit/closed/19700103").write_text("{"), "damaged"),
        (close_the_day_before_differently, "does not continue the balance of 1970-01-02"),
    ],
)  # fmt: skip
def test_a_balance_that_was_changed_is_not_used(
    closed: Lake, tmp_path: Path, tamper: Callable[[Lake], None], text: str
) -> None:
    lake = closed.copy(tmp_path / "lake")
    tamper(lake)
    with pytest.raises(CannotAudit, match=rf"(?s){text}.*--since 1970-01-03"):
        lake.close(FOURTH)


def test_a_day_without_an_opening_balance_is_not_audited(closed: Lake, tmp_path: Path) -> None:
    lake = closed.copy(tmp_path / "lake")
    (lake.root / "state/audit/closed/19700103").unlink()
    with pytest.raises(CannotAudit, match="1970-01-03 is not closed. Begin with --since 1970"):
        lake.close(FOURTH, since=THIRD)
    shutil.rmtree(lake.root / "state/audit")
    with pytest.raises(CannotAudit, match="Begin with --since 1970-01-02"):
        lake.close(THIRD, since=SECOND)
    assert lake.days().opening(date.min) is None
    assert lake.close(date.min) == []


def test_a_balance_is_read_from_a_folder_with_an_odd_name(closed: Lake, tmp_path: Path) -> None:
    """Spark takes these characters for a pattern."""
    opening = closed.copy(tmp_path / "a lake of [*], {b} and ?").days().opening()
    assert opening is not None and opening.day == SECOND
