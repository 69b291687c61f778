"""Redrive from a lake to a real broker: what is sent again, in which form, and how often."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata
from pyspark.sql import Row, SparkSession

from ringfaust.config import QueuesConfig, RouteConfig, WorkerConfig
from ringfaust.core.state import State
from ringfaust.kafka.offsets import commit_group_offsets, group_offsets
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import Route
from ringfaust.redrive import send as sending
from ringfaust.redrive.lake_jobs import MaybeSent
from ringfaust.redrive.plan import RedriveContext, RedriveRequest, find
from ringfaust.redrive.send import RedriveStopped, send_messages
from ringfaust.spark.backfill.errors import BadRows, CannotBackfill, OtherJob
from ringfaust.spark.lake.tables import RECORDS, path
from ringfaust.spark.options import LakeRole, RedriveOptions
from ringfaust.spark.redrive.command import plan, redrive
from ringfaust.spark.redrive.records import REDRIVEN_FROM, LakeRedriveRequest
from ringfaust.testing.broker import EmbeddedBroker
from tests.records import new_record
from tests.spark.topics import all_records, make_topic, write_records

pytestmark = pytest.mark.kafka

DEAD = {
    "role": "dead",
    "partition": 1,
    "queue": "orders",
    "sequence": 1,
    "priority": 7,
    "group": "g",
    "reason": "rejected",
    "key": b"k",
    "value": b"v",
    "headers": [("theirs", b"1"), ("theirs", None)],
}


class Bench:
    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark = spark
        self.lake = str(folder)
        name = uuid.uuid4().hex[:8]
        self.worker = WorkerConfig(bootstrap_servers=servers, application=f"app-{name}")
        self.orders, self.named = f"orders-{name}", f"named-{name}"
        self.queues = QueuesConfig(
            routes=[
                RouteConfig(topic=self.orders, queue="orders"),
                RouteConfig(topic=self.named, queue="q.{header:ringfaust-queue}.{key}"),
            ],
            queues={"orders": {}, "q.*.*": {}, "thin": {"evicted_payload": "reference"}},
        )
        options = RedriveOptions(self.lake, LakeRole.DEAD, "reason = 'rejected'")
        self.request = LakeRedriveRequest(self.worker, self.queues, options)

    def add(self, *records: dict[str, Any]) -> None:
        """Append records to the lake; each has at least an offset."""
        rows = []
        for record in records:
            given = {"topic": self.worker.topic(record.get("role", "dead")), **DEAD, **record}
            given.setdefault("id", f"m{given['offset']}")
            given.setdefault("source", f"{self.orders}/2/{given['offset']}")
            rows.append(Row(**{name: given.get(name) for name in RECORDS.schema.names}))
        frame = self.spark.createDataFrame(rows, RECORDS.schema)
        frame.write.format("delta").mode("append").save(path(self.lake, "records"))

    def run(self, **changes: Any) -> int:
        request = replace(self.request, options=self.request.options._replace(**changes))
        return redrive(self.spark, request).written

    def ids(self, topic: str) -> list[str]:
        found = all_records(self.worker, topic)
        return sorted(dict(record.headers)["ringfaust-id"].decode() for record in found)

    def die(self, count: int) -> None:
        """Messages m0, m1 … die: their records are in the dead topic and in the lake."""
        headers = {
            h.QUEUE: "orders", h.SEQUENCE: "1", h.PRIORITY: "4", h.REASON: "rejected",
            h.TIME_MS: "1", h.ENQUEUED_MS: "1", h.HANDOVERS: "1", h.SOURCE: f"{self.orders}/2/7",
        }  # fmt: skip

        records: list[dict[str, Any]] = []
        for number in range(count):
            texts = {**headers, h.ID: f"m{number}"}
            raw = [(name, text.encode()) for name, text in texts.items()]
            topic = self.worker.topic(Role.DEAD)
            records.append({"topic": topic, "value": b"v", "partition": 1, "headers": raw})
        asyncio.run(write_records(self.worker.bootstrap_servers, records))
        self.add(*({"offset": number} for number in range(count)))

    def by_command(self, again: bool = False) -> int:
        """What `ringfaust dead redrive --reason rejected` does."""
        context = RedriveContext.of(self.worker, self.queues)
        request = RedriveRequest(role=Role.DEAD, reason="rejected", again=again)
        found = asyncio.run(find(context, request))
        return asyncio.run(send_messages(context, found.messages, again=again))


def commit(bench: Bench, group: str, offsets: dict[int, OffsetAndMetadata]) -> None:
    """Commit offsets of the dead topic, by partition."""
    topic = bench.worker.topic(Role.DEAD)
    asyncio.run(
        commit_group_offsets(
            bench.worker.client_options(), group, {(topic, at): offsets[at] for at in offsets}
        )
    )


def earlier_job(bench: Bench, name: str, positions: dict[int, int]) -> None:
    """What version 0.1.0 keeps of a job of `bench.request`, as it is at 908282b."""
    note = (
        '{"fingerprint": "1e1c58f7b571", "about": "dead messages where reason = '
        "'rejected', to their own topics\"}"
    )
    commit(
        bench, f"{bench.worker.application}-redrive-{name}",
        {partition: OffsetAndMetadata(at, note) for partition, at in positions.items()},
    )  # fmt: skip


@pytest.fixture
def bench(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> Bench:
    bench = Bench(spark, broker.bootstrap_servers, tmp_path)
    ours = [bench.worker.topic(role) for role in ("dead", "evicted")]
    for topic in (bench.orders, bench.named, *ours):
        make_topic(bench.worker, topic)
    return bench


def test_a_message_goes_back_as_the_producer_sent_it(bench: Bench) -> None:
    """The header that named its queue, which is not passed on, is restored.

    Only the last record of an id counts.
    """
    bench.add(
        {"offset": 5, "expires_at_ms": 7, "time_ms": 1},
        {"offset": 6, "queue": "q.blue.k", "source": f"{bench.named}/0/1"},
        {"offset": 15, "id": "a"},
        {"offset": 19, "id": "a", "reason": "expired"},
        {"offset": 16, "id": "b"},
        {"offset": 17, "id": "b"},
    )
    assert bench.run() == 3
    (record,) = all_records(bench.worker, bench.named)
    assert dict(record.headers)["ringfaust-queue"] == b"blue"
    sent = all_records(bench.worker, bench.orders)
    last, record = sorted(sent, key=lambda each: dict(each.headers)["ringfaust-id"])
    assert dict(last.headers)[REDRIVEN_FROM].endswith(b"/1/17")
    assert (record.partition, record.key, record.value) == (2, b"k", b"v")
    assert list(record.headers) == [
        ("theirs", b"1"),
        ("theirs", None),
        ("ringfaust-id", b"m5"),
        ("ringfaust-priority", b"7"),
        ("ringfaust-group", b"g"),
        ("ringfaust-redrives", b"1"),
        ("ringfaust-redrive-of", b"orders/1"),
        (REDRIVEN_FROM, f"{bench.worker.topic('dead')}/1/5".encode()),
    ]


def test_a_dry_run_sends_nothing_and_a_second_run_only_messages_that_died_since(
    bench: Bench,
) -> None:
    bench.add({"offset": 5}, {"offset": 6, "reason": "expired"}, {"offset": 8})
    planned = plan(bench.spark, bench.request)
    assert (planned.profile.records, planned.queues) == (2, {(bench.orders, "orders"): 2})
    assert all_records(bench.worker, bench.orders) == []
    assert (bench.run(), bench.run()) == (2, 0)
    bench.add({"offset": 9}, {"offset": 2, "partition": 3})
    assert plan(bench.spark, bench.request).already_sent == 2
    assert bench.run() == 2
    assert bench.ids(bench.orders) == ["m2", "m5", "m8", "m9"]
    assert bench.run(name="another") == 0


def test_a_name_of_an_earlier_version_belongs_to_one_condition(bench: Bench) -> None:
    bench.add({"offset": 5}, {"offset": 6, "reason": "expired"})
    earlier_job(bench, "mine", {1: 6})
    with pytest.raises(OtherJob, match="started with other rows.*rejected.*; now it is.*expired"):
        bench.run(name="mine", where="reason = 'expired'")
    assert bench.ids(bench.orders) == []


def test_what_one_redrive_has_sent_is_sent_again_only_if_asked(bench: Bench) -> None:
    """Neither by the command line nor by Spark nor by a Spark job with another condition."""
    bench.die(3)
    assert bench.run() == 3
    assert (bench.by_command(), bench.run(where="queue = 'orders'")) == (0, 0)
    assert bench.ids(bench.orders) == ["m0", "m1", "m2"]
    assert (bench.by_command(again=True), bench.run()) == (3, 0)
    assert (bench.run(again=True), bench.by_command()) == (3, 0)
    assert bench.ids(bench.orders) == sorted(3 * ["m0", "m1", "m2"])


@pytest.mark.parametrize(
    ("first", "second"), [(Bench.by_command, Bench.run), (Bench.run, Bench.by_command)]
)
def test_a_redrive_that_was_interrupted_is_continued_by_another(
    bench: Bench,
    first: Callable[[Bench], int],
    second: Callable[[Bench], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third transaction is never committed, and so sent by the other redrive."""
    bench.die(7)
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 2)
    commit_transaction, left = AIOKafkaProducer.commit_transaction, iter(range(3))

    async def fail_late(producer: AIOKafkaProducer) -> None:
        if next(left) == 2:
            raise KafkaConnectionError("closed")
        await commit_transaction(producer)

    with monkeypatch.context() as patched:
        patched.setattr(AIOKafkaProducer, "commit_transaction", fail_late)
        with pytest.raises(RedriveStopped, match="after 4 messages were sent"):
            first(bench)
    assert (second(bench), first(bench)) == (3, 0)
    assert bench.ids(bench.orders) == [f"m{number}" for number in range(7)]


def test_what_the_command_line_of_an_earlier_version_has_sent_is_not_sent_again(
    bench: Bench,
) -> None:
    """Its memory as 908282b writes it: a bitmap with the first and the third record."""
    bench.die(4)
    group = f"{bench.worker.application}-redriven/0"
    commit(bench, group, {1: OffsetAndMetadata(3, "1:eNpjBQAABgAG")})
    assert bench.run() == 2
    assert bench.by_command() == 0
    assert bench.ids(bench.orders) == ["m1", "m3"]


def test_what_a_spark_job_of_an_earlier_version_has_sent_is_not_sent_again(bench: Bench) -> None:
    """Nothing else knows what it sent, until it has run once more."""
    bench.die(4)
    earlier_job(bench, "1e1c58f7b571", {1: 2, 3: 7})
    with pytest.raises(MaybeSent, match="2 of these .* job '1e1c58f7b571' .*reason = 'rejected'"):
        bench.by_command()
    with pytest.raises(MaybeSent, match="2 of these"):
        bench.run(where="queue = 'orders'")
    planned = plan(bench.spark, bench.request)
    assert (planned.already_sent, planned.profile.records) == (2, 2)
    assert (bench.run(), bench.run()) == (2, 0)
    assert (bench.by_command(), bench.run(where="queue = 'orders'")) == (0, 0)
    assert bench.ids(bench.orders) == ["m2", "m3"]
    topic, group = bench.worker.topic(Role.DEAD), f"{bench.worker.application}-redrive-1e1c58f7b571"
    kept = asyncio.run(group_offsets(bench.worker.client_options(), group, [(topic, 1)]))
    assert kept[topic, 1].offset == 2, "an earlier version would still know"
    earlier_job(bench, "other", {1: 1})
    assert bench.by_command(again=True) == 4


def test_a_spark_job_of_an_earlier_version_can_be_told_to_send_again(bench: Bench) -> None:
    bench.die(2)
    earlier_job(bench, "1e1c58f7b571", {1: 2})
    assert (bench.run(), bench.run(again=True), bench.run(), bench.by_command()) == (0, 2, 0, 0)


def test_a_message_that_was_redriven_too_often_is_left_out_unless_the_limit_is_higher(
    bench: Bench,
) -> None:
    def times(number: int) -> dict[str, Any]:
        return {"extra": {"redrives": b"%d" % number}, "headers": [(REDRIVEN_FROM, b"a/0/1")]}

    bench.add({"offset": 5, **times(4)}, {"offset": 6, **times(5)})
    result = redrive(bench.spark, bench.request)
    assert (result.written, result.skipped) == (1, 1)
    (record,) = all_records(bench.worker, bench.orders)
    counts = [value for name, value in record.headers if name == "ringfaust-redrives"]
    assert counts == [b"5"]
    assert bench.run(max_redrives=6) == 1


def test_a_worker_passes_the_redrive_count_on() -> None:
    shared = ProcessorConfig(
        control_topic="c", repartition_topic="h", routes=[Route("t", "orders")],
        max_record_bytes=9_000, log_is_clock=False,
    )  # fmt: skip
    catalog = QueuesConfig(queues={"orders": {"ring_size": 1}}).catalog()
    processor = Processor(shared, State(ByteStore(MemoryKeyValue()), catalog), {}, list)
    headers = [
        ("ringfaust-redrives", b"2"), ("ringfaust-redrive-of", b"orders/1"),
        ("ringfaust-id", b"a"),
    ]  # fmt: skip
    processor.take([new_record("t", offset, b"v", headers, b"k") for offset in range(2)], 1)
    ((_, _, headers),) = processor.outputs()[Role.EVICTED, None]
    assert ("ringfaust-redrives", b"2") in headers


def test_messages_can_go_to_another_topic(bench: Bench) -> None:
    bench.add({"offset": 5, "source": "gone/0/1"})
    with pytest.raises(CannotBackfill, match="--to-topic: no route reads 'gone'"):
        bench.run()
    assert bench.run(to_topic=bench.orders) == 1


def test_an_eviction_without_payload_cannot_be_sent_again(bench: Bench) -> None:
    bench.add(
        {"role": "evicted", "reason": "overflow", "queue": "thin", "offset": 5, "value": None},
        {"role": "evicted", "reason": "overflow", "offset": 6},
    )
    with pytest.raises(BadRows, match="its source orders-.*/2/5"):
        bench.run(role=LakeRole.EVICTED, where="true")
    assert bench.run(role=LakeRole.EVICTED, where="queue = 'orders'") == 1


def test_an_invalid_request_is_refused(bench: Bench) -> None:
    bench.add({"offset": 5})
    with pytest.raises(CannotBackfill, match="--where: .*resaon.*Columns: role, "):
        bench.run(where="resaon = 'rejected'")
    with pytest.raises(CannotBackfill, match="--where: 'id > 5' fails for some .*CAST_INVALID_IN"):
        bench.run(where="id > 5")
    with pytest.raises(CannotBackfill, match="--lake: '/no/lake' is no lake"):
        bench.run(lake="/no/lake")
