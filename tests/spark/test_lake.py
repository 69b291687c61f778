"""The lake from topics of a real broker: every line once, whatever comes twice, late or broken."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.lake.store import LakeError
from ringfaust.spark.lake.stream import lake_session, start, streams
from ringfaust.spark.lake.tables import read
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.lake_story import START_MS, Story, make_topics, tell, told

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


def catch_up(spark: SparkSession, root: str, worker: WorkerConfig) -> None:
    """As `ringfaust spark lake --once`."""
    session = lake_session(spark, root, worker)
    for stream in streams(root, worker):
        start(session, root, worker, stream, once=True).awaitTermination()


class Lake:
    """A lake of two partitions: one told plainly, one with all that can go wrong."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, folder: Path) -> None:
        self.spark, self.root = spark, str(folder / "lake")
        self.worker = WorkerConfig(
            application=f"lake{uuid.uuid4().hex[:6]}",
            bootstrap_servers=broker.bootstrap_servers,
            partitions=2,
        )
        self.plain, self.crashed = Story(0), Story(1)
        asyncio.run(make_topics(self.worker))
        self._tell()

    def _tell(self) -> None:
        for story, seed in ((self.plain, 1), (self.crashed, 2)):
            story.go_on(150, seed)
        plain, crashed = self.plain.values(), self.crashed.values()
        half = len(crashed) // 2
        # A micro-batch of a ring job, begun three times: prefixes, and then the whole.
        torn = [*crashed[:half], *crashed[half - 6 : half - 2], *crashed[half - 6 :]]
        again = [*crashed[half - 6 : half - 2], *crashed[half - 6 : half]]
        self.repeated_lines = sum(value.count(b"\n") + 1 for value in again)
        first = {role: records[:9] for role, records in self.crashed.records.items()}
        asyncio.run(tell(self.worker, 0, plain[:half]))
        asyncio.run(tell(self.worker, 1, torn[: half + 2], first))
        catch_up(self.spark, self.root, self.worker)
        late = json.dumps({"step": 1, "event": "acked", "queue": "a", "time_ms": START_MS})
        self.step = self.crashed.host.state.step
        strange = [*BAD, None, FUTURE.encode() % (self.step + 1), late.encode()]
        rest = {role: records[4:] for role, records in self.crashed.records.items()}
        twice = {role: records[-3:] for role, records in self.crashed.records.items()}
        asyncio.run(tell(self.worker, 0, plain[half:], self.plain.records))
        asyncio.run(tell(self.worker, 1, [*torn[half + 2 :], *strange], rest))
        asyncio.run(tell(self.worker, 1, [], twice))
        asyncio.run(tell(self.worker, 0, [], {Role.DISPATCHED: [(b"k", b"v", [])]}))
        catch_up(self.spark, self.root, self.worker)

    def rows(self, table: str) -> list[Row]:
        return read(self.spark, self.root, table).collect()


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    yield Lake(spark, broker, tmp_path_factory.mktemp("lake"))


def _fold(story: Story) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Each message's life, told once more in the plainest way."""
    lives: Counter[str] = Counter()
    messages: dict[tuple[str, int, int], dict[str, Any]] = {}
    for line in told(story.lines):
        queue, event = line.get("queue"), line["event"]
        if event == "deleted":
            lives[queue] = line["step"]
        if "sequence" not in line:
            continue
        message = messages.setdefault((queue, lives[queue], line["sequence"]), {"consumers": set()})
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
    for story in (lake.plain, lake.crashed):
        found = [row for row in lake.rows("transitions") if row.partition == story.partition]
        found.sort(key=lambda row: (row.offset, row.line))
        raw = [row.raw for row in found]
        assert raw[: len(story.lines)] == story.lines
        assert raw[len(story.lines) :] == ([FUTURE % (lake.step + 1)] if story.partition else [])
        for row, line in zip(found, told(raw), strict=True):
            names = [name for name in line if name not in ("settings", "counts", "height_m")]
            assert {name: row[name] for name in names} == {name: line[name] for name in names}


def test_bronze_keeps_all_and_repeats_are_counted(lake: Lake) -> None:
    counts = Counter(
        (row.table, row.topic) for row in lake.rows("repeats") for _ in range(row.repeats)
    )
    told_twice = {
        ("records", lake.worker.topic(role)): 5 + 3
        for role, records in lake.crashed.records.items()
    }
    assert all(len(records) >= 9 for records in lake.crashed.records.values())
    assert counts == {
        ("transitions", lake.worker.topic(Role.EVENTS)): lake.repeated_lines,
        **told_twice,
    }
    bronze = Counter(row.topic for row in lake.rows("bronze"))
    plain, crashed = lake.plain.records, lake.crashed.records
    assert bronze[lake.worker.topic(Role.EVICTED)] == (
        len(plain[Role.EVICTED]) + len(crashed[Role.EVICTED]) + 5 + 3
    )


def test_bad_and_late_ones_are_set_aside_with_the_reason(lake: Lake) -> None:
    found = {row.raw: row.why for row in lake.rows("quarantine") if row.why != "lacks_queue"}
    expected = {value.decode(errors="replace"): why for value, why in BAD.items()}
    late = json.dumps({"step": 1, "event": "acked", "queue": "a", "time_ms": START_MS})
    assert found == {**expected, "": "no_json", late: "late"}
    (headless,) = [row for row in lake.rows("quarantine") if row.why == "lacks_queue"]
    assert headless.topic == lake.worker.topic(Role.DISPATCHED)


def test_a_record_has_its_headers_as_columns(lake: Lake) -> None:
    for story in (lake.plain, lake.crashed):
        for role, records in story.records.items():
            found = [
                row
                for row in lake.rows("records")
                if row.role == str(role) and row.partition == story.partition
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


def test_each_message_has_its_whole_life(lake: Lake) -> None:
    for story in (lake.plain, lake.crashed):
        expected = _fold(story)
        found = {
            (row.queue, row.life, row.sequence): row
            for row in lake.rows("messages")
            if row.partition == story.partition
        }
        assert found.keys() == expected.keys()
        for key, message in expected.items():
            row = found[key]
            assert sorted(message.pop("consumers")) == row.consumers, key
            message.setdefault("fate", None)
            handovers = message.pop("handovers", None)
            assert handovers is None or handovers == row.handovers, key
            assert {name: row[name] for name in message} == message, key


def test_messages_and_depths_balance_with_the_rings_own_counts(lake: Lake) -> None:
    depths = {(row.partition, row.queue): row for row in lake.rows("queues")}
    minutes = sorted(lake.rows("queue_minutes"), key=lambda row: row.minute)
    last = {(row.partition, row.queue): row for row in minutes}
    for story in (lake.plain, lake.crashed):
        for name, queue in story.host.state.queues.items():
            counts = queue.counts.as_dict()
            for row in (depths[story.partition, name], last[story.partition, name]):
                for depth in ("ready", "delivering", "scheduled"):
                    assert row[depth] == counts[depth], (story.partition, name, depth)
    lines = [line for story in (lake.plain, lake.crashed) for line in told(story.lines)]
    events = Counter(line["event"] for line in lines)
    for event in ("dispatched", "acked", "returned", "evicted", "expired", "dead", "removed"):
        assert sum(row[event] for row in minutes) == events[event], event
    assert sum(row.added for row in minutes) == events["added"] + events["scheduled"]
    ages = sum(line["age_ms"] for line in lines if line["event"] == "evicted")
    assert sum(row.evicted_age_ms_sum or 0 for row in minutes) == ages


def test_each_delivery_is_handed_and_settled_once(lake: Lake) -> None:
    for story in (lake.plain, lake.crashed):
        handed = {x["delivery"]: x for x in told(story.lines) if x["event"] == "dispatched"}
        found = {x.delivery: x for x in lake.rows("deliveries") if x.partition == story.partition}
        assert found.keys() == handed.keys()
        open_ = set()
        for queue in story.host.state.queues.values():
            open_ |= {delivery.number for _, delivery in queue.deliveries}
        assert {number for number, row in found.items() if row.how is None} == open_
        for number, line in handed.items():
            row = found[number]
            assert (row.consumer, row.handed_ms) == (line["consumer"], line["time_ms"])
            assert row.how is None or row.held_ms == row.settled_ms - row.handed_ms
        ends = Counter(row.how for row in found.values() if row.how)
        events = Counter(x["event"] for x in told(story.lines))
        assert (ends["acked"], ends["returned"]) == (events["acked"], events["returned"])
        assert ends["dead"] == events["dead"]


def test_evictions_say_what_left_and_why(lake: Lake) -> None:
    for story in (lake.plain, lake.crashed):
        lines = [line for line in told(story.lines) if line["event"] == "evicted"]
        found = {x.step: [] for x in lake.rows("evictions")}
        for row in lake.rows("evictions"):
            if row.partition == story.partition:
                found[row.step].append((row.id, row.reason, row.cause, row.age_ms))
                assert row.source.startswith(f"in/{story.partition}/")
                assert row.evicted_ms - row.enqueued_ms == row.age_ms
        told_rows = [(x["id"], x["reason"], x["cause"], x["age_ms"]) for x in lines]
        assert sorted(told_rows) == sorted(row for rows in found.values() for row in rows)


def test_nothing_new_changes_nothing(lake: Lake) -> None:
    before = {name: len(lake.rows(name)) for name in ("bronze", "transitions", "messages")}
    catch_up(lake.spark, lake.root, lake.worker)
    assert {name: len(lake.rows(name)) for name in before} == before


def test_the_examples_in_the_docs_work(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(__file__, "../../../docs/lake.md").resolve().read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(example, {"lake": lake.root})
        assert re.search("acked|age_ms|added", capsys.readouterr().out)


def test_another_application_is_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match="each application needs a folder of its own"):
        lake_session(lake.spark, lake.root, WorkerConfig(application="other"))
