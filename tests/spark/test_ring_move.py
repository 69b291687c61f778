"""Rings move from the worker to the job and back, with everything they hold."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from ringfaust.kafka.transactions import commit_changelog
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import copied_key
from ringfaust.protocol.stored_rows import (
    INPUTS_KEY,
    OWNER_KEY,
    POSITIONS_KEY,
    InputState,
    read_positions,
    write_inputs,
    write_positions,
)
from ringfaust.spark.ring.move import _Changelog, worker_state
from ringfaust.spark.ring.pages import PagedMap
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import Process
from tests.spark.ring_harness import (
    CREDIT,
    RING_SIZE,
    RINGS,
    RingHarness,
    check_events,
    check_evicted,
    lines,
    until,
)
from tests.spark.shared_session import run, run_command
from tests.spark.test_ring_pages import MemoryPages

POSITIONS = {"control": 4, "hop": 123}
COPIED = {copied_key("sent/3", "e58706fd"): 420}

PIECE = RING_SIZE + 10
"""Records for each ring while it is in one place."""


def until_added(harness: RingHarness, worker: Process, count: int) -> None:
    """Wait until each ring has added that many messages."""
    added = count * RINGS
    until(lambda: harness.count(Role.EVICTED) > 0 and len(sources(harness)) >= added, worker)


def sources(harness: RingHarness) -> set[str]:
    found = lines(harness.read(Role.EVENTS))
    return {line["source"] for _, line in found if line["event"] == "added"}


def until_attached(harness: RingHarness, worker: Process) -> None:
    """Wait until the consumers are attached: earlier messages would be evicted, not dispatched."""

    def attached() -> int:
        events = [line["event"] for _, line in lines(harness.read(Role.EVENTS))]
        return events.count("attached")

    until(lambda: attached() == RINGS // 4, worker)


def ask(harness: RingHarness, reply: str) -> None:
    """Ask for the contents of each ring."""
    for ring in range(RINGS):
        harness.command(f"r.{ring}", type="list", reply=f"{reply}-{ring}", limit=1000)


def answers(harness: RingHarness, reply: str) -> dict[str, Any]:
    """The contents of each ring, once all have answered."""
    found: dict[str, Any] = {}

    def all_answered() -> bool:
        for record in harness.read(Role.REPLIES):
            key = record.key.decode()
            if key.startswith(f"{reply}-"):
                found[key.removeprefix(f"{reply}-")] = json.loads(record.value)["answer"]
        return len(found) == RINGS

    until(all_answered)
    return found


def test_positions_in_copied_partitions_are_stored_and_are_no_offsets_of_the_group() -> None:
    """No topic has their names: the client would send these offsets again and again."""
    pages = MemoryPages()
    paged = PagedMap(pages)
    paged.apply([(POSITIONS_KEY, write_positions(POSITIONS | COPIED))])
    paged.flush()
    changelog = _Changelog(iter([Row(page=pages[1], number=1)]), {}, {"control": 1})
    assert (POSITIONS_KEY, write_positions(POSITIONS | COPIED)) in list(changelog.rows())
    assert changelog.offsets() == POSITIONS


def test_the_time_of_a_partitions_timer_is_no_row() -> None:
    """The worker would keep a row that nothing reads or deletes."""
    pages = MemoryPages()
    paged = PagedMap(pages)
    paged.apply([(b"key", b"value")])
    paged.flush()
    timer = Row(page=b"1764000000000", number=-1)
    changelog = _Changelog(iter([timer, Row(page=pages[1], number=1)]), {}, {})
    assert list(changelog.rows()) == [(OWNER_KEY, None), (b"key", b"value")]


def test_old_rows_of_a_partition_without_pages_are_deleted() -> None:
    """The rows date from before a --take-over. The worker continues where the job stopped."""
    old = [Row(row_key=POSITIONS_KEY, page=None), Row(row_key=b"old", page=None)]
    changelog = _Changelog(iter(old), {"control": "e58706fd"}, {"control": 7})
    assert list(changelog.rows()) == [
        (OWNER_KEY, None),
        (POSITIONS_KEY, None),
        (b"old", None),
        (POSITIONS_KEY, write_positions({"control": 7})),
        (INPUTS_KEY, write_inputs({"control": InputState()._replace(topic_id="e58706fd")})),
    ]
    assert changelog.offsets() == {"control": 7}


@pytest.mark.kafka
def test_rings_of_workers_do_not_come_back_after_a_take_over(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Of a partition without records the job has no state, and there the workers' old rows are."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "empty")
    worker, changelog = harness.config, harness.config.topic(Role.CHANGELOG)
    idle = (harness.partition("r.0") + 1) % worker.partitions
    old, client = [(b"old", b"a message")], worker.client_options()
    asyncio.run(commit_changelog(client, worker.application, changelog, idle, old))
    harness.command("r.0", type="attach", consumer="c", credit=1)
    run(spark, *harness.arguments("--once", "--take-over"))
    folders = ["--config", str(tmp_path), "--checkpoint", str(tmp_path / "checkpoint")]
    run(spark, "spark", "move-to-worker", *folders)
    rows = worker_state(spark, worker).where(f"queue_partition = {idle}").collect()
    found = {bytes(row.row_key): bytes(row.row_value) for row in rows}
    assert found.keys() == {POSITIONS_KEY, INPUTS_KEY}
    topics = {worker.topic(Role.CONTROL), f"{worker.application}.sent"}
    assert read_positions(found[POSITIONS_KEY]) == dict.fromkeys(topics, 0)


@pytest.mark.kafka
@pytest.mark.parametrize("hop", ["auto", pytest.param("always", marks=pytest.mark.slow)])
def test_rings_move_to_the_job_and_back(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, hop: str
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, f"move-{hop}", hop)
    with harness.worker() as worker:
        harness.attach()
        until_attached(harness, worker)
        harness.send(0, PIECE)
        until_added(harness, worker, PIECE)
        ask(harness, "by-worker")
        by_worker = answers(harness, "by-worker")
        refused = run_command(spark, *harness.arguments("--from-worker"))
        assert refused.exit_code == 2
        assert "still has running workers (1): stop them all first" in refused.stderr

    refused = run_command(spark, *harness.arguments("--once"))
    assert refused.exit_code == 2
    owners = f"the rings of {harness.application} belong to its workers. Stop them all"
    assert owners in refused.stderr
    run(spark, *harness.arguments("--once", "--from-worker"))
    harness.send(PIECE, PIECE)
    ask(harness, "by-job")
    run(spark, *harness.arguments("--once"))
    by_job = answers(harness, "by-job")
    for ring in range(RINGS):
        assert by_job[str(ring)]["delivering"] == by_worker[str(ring)]["delivering"]

    folders = [*harness.arguments()[2:4], "--checkpoint", str(tmp_path / "checkpoint")]
    moved = run_command(spark, "spark", "move-to-worker", *folders)
    assert moved.exit_code == 0, moved.output
    assert "start the worker" in moved.stdout
    with harness.worker() as worker:
        harness.send(2 * PIECE, PIECE)
        until_added(harness, worker, 3 * PIECE)
        ask(harness, "by-worker-again")
        by_worker_again = answers(harness, "by-worker-again")
    check_events(harness.read(Role.EVENTS), 3 * PIECE)
    check_evicted(harness.read(Role.EVICTED), 3 * PIECE)
    for ring, answer in by_worker_again.items():
        assert len(answer["ready"]) == RING_SIZE
        assert answer["counts"]["delivering"] == (CREDIT if int(ring) % 4 == 0 else 0)


@pytest.mark.kafka
def test_a_checkpoint_of_another_application_is_refused(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "mine")
    path = tmp_path / "checkpoint" / "ringfaust" / "job.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"application": "yours", "partitions": 4, "tasks": 2}')
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text('v1\n{}\n{"yours.control": {"0": 7}}')
    refused = run_command(spark, *harness.arguments("--once"))
    assert refused.exit_code == 2
    assert "belongs to a job whose application is 'yours'" in refused.stderr
